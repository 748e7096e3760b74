# A newer program in the place of the old one.
systemctl --user restart ocipd.service
install .bin/ocipd "$HOME/.local/bin/new" && mv "$HOME/.local/bin/new" "$HOME/.local/bin/ocipd"
export TEST_VERSION=v0.6.1
