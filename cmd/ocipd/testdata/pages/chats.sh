# Messages to a chat that nobody knows, and who answers for the owner.
. "$PAGES/alice-serves.sh"
for item in 1 2 3; do ocipd send telegram:4711 "How far are you with item $item?"; done
# The chat's app brings an answer.
python3 - <<'END'
import json, os, socket
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["XDG_RUNTIME_DIR"] + "/openclawos/kernel.sock")
lines, token = link.makefile("rw", encoding="utf-8", newline="\n"), None
for method, params in [
    ("app.register", {"manifest": {"id": "@chat/telegram", "name": "chat", "version": "1.0.0", "type": "app", "main": "m", "protocol": {"version": "1.0"},
                                   "capabilities": {"channels": {"provides": ["telegram"]}}}}),
    ("capability.register", {"type": "channel", "config": {"channelId": "telegram"}}),
    ("agent.queue", {"sessionKey": "telegram:4711", "text": "Two are done."}),
]:
    lines.write(json.dumps({"id": method, "type": "request", "timestamp": 1, "method": method, "params": params, **({"token": token} if token else {})}) + "\n")
    lines.flush()
    answer = json.loads(lines.readline())
    while answer.get("requestId") != method:
        answer = json.loads(lines.readline())
    assert answer["success"], answer
    token = token or answer["result"]["token"]
END
ocipd() {
	case $* in
	'contacts bind --me') types 'y\n' ocipd contacts bind --me ;;
	*) command ocipd "$@" ;;
	esac
}
