#!/usr/bin/env python3
"""Carries messages with their envelopes from the agents of one ocipd to those of another. Python 3.9, no packages.

carrier.py FROM TO, the kernel sockets of both: a message to link:bob at FROM reaches agent bob at TO.
Answers need a second carrier: carrier.py TO FROM.
"""
import json, signal, socket, sys, time, uuid


class Ocipd:
    def __init__(self, path, app, **capabilities):
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(path)
        except OSError as error:
            sys.exit(f"ocipd does not answer on {path} ({error.strerror or error}); start it: ocipd serve")
        self.lines, self.out = link.makefile("rb"), link.makefile("wb")
        self.token, self.events = None, []
        self.token = self.must("app.register", manifest={
            "id": app, "name": "Carrier", "version": "1.0.0", "type": "app", "main": "carrier.py",
            "protocol": {"version": "1.0"}, "capabilities": capabilities})["token"]

    def ask(self, method, **params):
        """The answer's frame. Events that come before it are kept."""
        request = {"id": str(uuid.uuid4()), "type": "request", "timestamp": int(time.time() * 1000), "method": method, "params": params}
        if self.token:
            request["token"] = self.token
        self.out.write(json.dumps(request).encode() + b"\n")
        self.out.flush()
        while (frame := self.next())["type"] == "event":
            self.events.append(frame)
        return frame

    def must(self, method, **params):
        frame = self.ask(method, **params)
        return frame["result"] if frame["success"] else sys.exit("{code}: {message}".format(**frame["error"]))

    def next(self):
        line = self.lines.readline()
        if not line:
            raise ConnectionError("an ocipd has closed its connection")
        return json.loads(line)


def carry(event):
    message, receipt = event["payload"]["data"], {"delivered": True}
    try:
        brought = to.ask("agent.queue", sessionKey=f"agent:{message['target']}:main", text=message["content"],
                         metadata=message["metadata"])  # the envelope is metadata.ocip
    except OSError as gone:
        brought = {"success": False, "error": {"code": "NO_ANSWER", "message": str(gone)}}
    if not brought["success"]:  # TO decides for itself, and its log has the reason
        error = brought["error"]
        receipt = {"delivered": False, "error": error.get("details", {}).get("ocip", error)["code"]}
    source.must("hook.result", eventId=event["payload"]["eventId"], result=receipt)
    print(message["target"], "carried" if receipt["delivered"] else f"refused: {receipt['error']}: {error['message']}", flush=True)
    if receipt.get("error") == "NO_ANSWER":
        sys.exit(1)  # further messages wait at FROM for the next start


if len(sys.argv) != 3:
    sys.exit("want the kernel sockets of both: carrier.py FROM TO")
signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once
try:
    source, to = Ocipd(sys.argv[1], "@example/takes", channels={"provides": ["link"]}), Ocipd(sys.argv[2], "@example/brings")
    to.must("app.ready")
    source.must("capability.register", type="channel", config={"channelId": "link"})
    source.must("app.ready")
    print("ready", flush=True)
    while True:
        event = source.events.pop(0) if source.events else source.next()
        if event["event"] == "hook:message_sending":
            carry(event)
except ConnectionError as gone:
    sys.exit(str(gone))
