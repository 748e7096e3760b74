# A service manager that runs the program of an installation in the home.
install -D .bin/ocipd "$HOME/.local/bin/ocipd"
export TEST_VERSION=v0.6.0
ocipd() { "$HOME/.local/bin/ocipd" "$@"; }
