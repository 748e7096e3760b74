# A promise is held, and who reads it says yes.
ocipd send telegram:dave 'I promise the review by Friday.'
ocipd() {
	case $* in
	'approvals approve'* | 'grants '[ar][de]*) types 'y\n' "$HOME/.local/bin/ocipd" "$@" ;;
	*) "$HOME/.local/bin/ocipd" "$@" ;;
	esac
}
