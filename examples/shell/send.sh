#!/usr/bin/env bash
# Asks ocipd about one message and sends it if that is allowed: send.sh SESSION TEXT
#
# Exit codes: 0 sent, 5 held for a person, 6 refused, 1 nothing could be asked.
set -euo pipefail
session=${1:?want a session, such as telegram:4711} text=${2:?want a text}

# Replace this with your chat network's own call, such as curl to Telegram's sendMessage.
deliver() { printf 'sent %s: %s\n' "$session" "${1%%$'\n'*}"; }

answer=$(jq -cn --arg sessionKey "$session" --arg content "$text" '{hookName: "message_sending", data: {$sessionKey, $content}}' |
  ocipd call --app "${BOT_APP:-@example/bot}" hook.emit -) || [ -n "$answer" ] # the answer says more than the exit code
if [ "$(jq .allowed <<<"$answer")" = true ]; then
  deliver "$(jq -r .data.content <<<"$answer")" # what was decided about, not what was asked
elif [ "$(jq .held <<<"$answer")" = true ]; then
  printf 'held %s: %s\n' "$session" "$(jq -r .approvalId <<<"$answer")"
  exit 5
else
  printf 'refused %s: %s\n' "$session" "$(jq -r '.ocip.code + ": " + .ocip.reason' <<<"$answer")"
  exit 6
fi
