#!/usr/bin/env bash
# Asks ocipd about one message and sends it if that is allowed: send.sh SESSION TEXT
# Each run first sends what people have approved meanwhile; without arguments it does only that.
#
# Exit codes: 0 sent, 5 held for a person, 6 refused; any other: nothing was decided.
set -euo pipefail

# Replace this with your chat network's own call, such as curl to Telegram's sendMessage.
deliver() { printf 'sent %s: %s\n' "$1" "${2%%$'\n'*}"; }

manifest=$(jq -cn --arg id "${BOT_APP:-@example/bot}" '{$id, capabilities: {redeem: true}}')
call() { ocipd call --manifest "$manifest" "$@"; }

approved=$(call approval.redeemable '{}')
for id in $(jq -r '.approvals[].approvalId' <<<"$approved"); do
  taken=$(call approval.redeem "{\"approvalId\": \"$id\"}") || continue # it was withdrawn meanwhile
  deliver "$(jq -r .data.sessionKey <<<"$taken")" "$(jq -r .data.content <<<"$taken")"
  call approval.confirm "$(jq -c '{claim, outcome: "sent"}' <<<"$taken")" >/dev/null # or else a person is asked whether it was sent
done
[ $# -gt 0 ] || exit 0

session=$1 text=${2:?want a session, such as telegram:4711, and a text}
answer=$(jq -cn --arg sessionKey "$session" --arg content "$text" '{hookName: "message_sending", data: {$sessionKey, $content}}' |
  call hook.emit -) || [ -n "$answer" ] # the answer says more than the exit code
if [ "$(jq .allowed <<<"$answer")" = true ]; then
  deliver "$session" "$(jq -r .data.content <<<"$answer")" # what was decided about, not what was asked
elif [ "$(jq .held <<<"$answer")" = true ]; then
  printf 'held %s: %s\n' "$session" "$(jq -r .approvalId <<<"$answer")"
  exit 5
else
  printf 'refused %s: %s\n' "$session" "$(jq -r '.ocip.code + ": " + .ocip.reason' <<<"$answer")"
  exit 6
fi
