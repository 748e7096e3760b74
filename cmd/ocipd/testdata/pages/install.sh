# The repository, of which the program is built already.
repository=$(cd "$PAGES/../../../.." && pwd)
cp "$repository/Makefile" . && mkdir -p bin && ln -f .bin/ocipd bin/ocipd
export MAKEFLAGS='-- GO=true'
# Who answers the questions of `ocipd config init`, and takes what is proposed but for these.
ocipd() {
	case $* in
	'config init') types '@tour/shell\n\nacme-corp\ntelegram\n4711\n\n\n\n\n\n\n' ocipd config init ;;
	*) command ocipd "$@" ;;
	esac
}
