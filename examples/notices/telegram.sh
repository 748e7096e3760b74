#!/bin/sh
# Sends a notice about an approval request to your Telegram chat.
# approvals.notify.command: [/path/to/telegram.sh, /path/to/token, CHAT]
#
# Use a bot of its own, whose token no app holds: what an agent's bot is told, the agent
# can read. The notice brings you to `ocipd approvals`; it cannot approve.
token=$(cat "${1:?want the file with the bots token}") || exit 1
exec curl -fsS -m 8 -o /dev/null --data-urlencode "chat_id=${2:?want the id of the chat}" \
  --data-urlencode "text=$OCIPD_NOTICE_TITLE
$OCIPD_NOTICE_BODY" "${TELEGRAM_API:-https://api.telegram.org}/bot$token/sendMessage"
