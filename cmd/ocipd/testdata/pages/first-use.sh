# What "make install" leaves in a new account, beside the clone. Its owner answers the questions,
# and types the next command once the bot has said something.
account() {
	export USER=$1
	if [ -n "$(jobs -p)" ]; then
		kill $(jobs -p)
		wait
	fi
	rm -rf .config .local bot.out examples sdk
	install -D .bin/ocipd .local/bin/ocipd
	cp -r "$PAGES/../../../../examples" "$PAGES/../../../../sdk" .
	said=0 program=$2
}
bot_says() {
	until grep -q "^$1 " bot.out 2>/dev/null; do sleep 0.1; done
	tail -n "+$((said + 1))" bot.out
	said=$(wc -l <bot.out)
}
python3() { command python3 "$@" >>bot.out 2>&1; }
ocipd() {
	case $* in
	'config init') "$PAGES/bin/answers" "$program\n\n\nirc\n$USER\n\n\n\n" ocipd config init ;;
	serve) exec ocipd serve ;;
	'approvals approve'*) "$PAGES/bin/answers" y ocipd "$@" && bot_says sent ;;
	*) command ocipd "$@" ;;
	esac
}
echo() {
	if [[ $1 == '=== exit '* ]] && [ "$said" = 0 ]; then
		case $(jobs -rp | wc -l) in
		1) command ocipd status --wait 20s >/dev/null ;;
		2) bot_says held ;;
		esac
	fi
	builtin echo "$@"
}
# No runtime of an agent is on the PATH.
PATH=${PATH//$PAGES\/bin:/}
account alice @alice/bot
