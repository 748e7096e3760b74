# A promise is held, and who reads it says yes.
. "$PAGES/alice-serves.sh"
ocipd send telegram:dave 'I promise the review by Friday.'
ocipd() {
	case $* in
	'approvals approve'* | 'preapprovals '[ar][de]*) types 'y\n' ocipd "$@" ;;
	*) command ocipd "$@" ;;
	esac
}
