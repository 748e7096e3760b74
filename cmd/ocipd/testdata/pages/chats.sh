# Messages to a chat that nobody knows, and who answers for the owner.
for item in 1 2 3; do ocipd send telegram:4711 "How far are you with item $item?"; done
ocipd() {
	case $* in
	'contacts bind --me') types 'y\n' "$HOME/.local/bin/ocipd" contacts bind --me ;;
	*) "$HOME/.local/bin/ocipd" "$@" ;;
	esac
}
