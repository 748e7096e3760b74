#!/usr/bin/env bash
# An ocipd app in the shell: needs nc (or socat) and jq.
set -euo pipefail
runtime=${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/openclawos} socket=${OPENCLAWOS_KERNEL_SOCKET:-${runtime:-/tmp/openclawos-$UID}/kernel.sock}
token="" n=0 events=() answer=
lost() { echo "nobody answers on $socket; start it: ocipd serve" >&2; exit 1; }
if command -v socat >/dev/null; then
  coproc kernel { socat - "UNIX-CONNECT:$socket"; }
else
  coproc kernel { nc -U "$socket"; }
fi
# The shell takes both away as soon as nobody answers.
ends=("${kernel[@]-}")
{ exec {in}<&"${ends[0]}" {out}>&"${ends[1]-}"; } 2>/dev/null || lost

# ask METHOD PARAMS sends a request and leaves its answer in $answer. Events
# that arrive in between are kept.
ask() {
  n=$((n + 1))
  jq -cn --arg id "$n" --arg method "$1" --arg token "$token" --argjson params "$2" \
    '{$id, type: "request", timestamp: (now * 1000 | floor), $method, $params} + (if $token == "" then {} else {$token} end)' >&"$out" || lost
  while read -r line <&"$in"; do
    if [ "$(jq -r .type <<<"$line")" = event ]; then events+=("$line"); continue; fi
    answer=$(jq -c 'if .success then .result else .error end' <<<"$line")
    echo "$1 → $answer"
    return
  done
  lost
}

ask app.register '{"manifest": {"id": "@tour/shell", "name": "Shell", "version": "1.0.0", "type": "app", "main": "app.sh",
  "protocol": {"version": "1.0"}, "capabilities": {"channels": {"provides": ["shell"]}, "hooks": {"subscribes": ["message_sending"]}}}}'
token=$(jq -er .token <<<"$answer")
ask capability.register '{"type": "channel", "config": {"channelId": "shell"}}'
ask hook.subscribe '{"events": ["message_sending"]}'
ask app.ready '{}'
ask message.dispatch '{"sessionKey": "shell:friend", "content": "How far is the review?"}'
ask message.dispatch '{"sessionKey": "shell:rival", "content": "Shall we compare notes?"}'
for event in "${events[@]}"; do
  jq '{event, target: .payload.data.target, content: .payload.data.content, ocip: .payload.data.metadata.ocip}' <<<"$event"
done
ask app.shutdown '{"reason": "done"}'
