#!/usr/bin/env python3
"""A bot that lets ocipd decide before it sends. Python 3.9, no packages.

Reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A text
that a person must decide about is sent once it is approved.
"""
import json, os, socket, sys, time, uuid

APP = {"id": "@example/bot", "name": "Example bot", "version": "1.0.0", "type": "app", "main": "bot.py",
       "protocol": {"version": "1.0"}, "capabilities": {}}
path = os.environ.get("OPENCLAWOS_KERNEL_SOCKET") or os.environ["XDG_RUNTIME_DIR"] + "/openclawos/kernel.sock"


if "--networks" in sys.argv:
    from networks import send  # Telegram, Slack, IRC and e-mail: the file beside this one
else:
    def send(session, content):
        """Replace this with your chat network's own call, such as those of networks.py."""
        print(f"sent {session}: {content.splitlines()[0]}", flush=True)


class Kernel:
    def __init__(self, path):
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        self.lines, self.token, self.events = s.makefile("rw", encoding="utf-8", newline="\n"), None, []

    def read(self):
        line = self.lines.readline()
        if not line:
            sys.exit("ocipd has closed the connection: nothing is sent without it")
        return json.loads(line)

    def ask(self, method, **params):
        request = {"id": str(uuid.uuid4()), "type": "request", "timestamp": int(time.time() * 1000),
                   "method": method, "params": params}
        if self.token:
            request["token"] = self.token
        self.lines.write(json.dumps(request) + "\n")
        self.lines.flush()
        while True:
            frame = self.read()
            if frame["type"] == "event":
                self.events.append(frame)
            elif frame.get("requestId") == request["id"]:
                return frame["result"] if frame["success"] else {"allowed": False, "error": frame["error"]}


kernel, pending = Kernel(path), set()
registered = kernel.ask("app.register", manifest=APP)
if "error" in registered:
    sys.exit(f"ocipd refuses this app: {registered['error']['message']}")
kernel.token = registered["token"]
kernel.ask("app.ready")

for line in sys.stdin:
    session, text = line.rstrip("\n").split(" ", 1)
    answer = kernel.ask("hook.emit", hookName="message_sending", data={"sessionKey": session, "content": text})
    if answer.get("allowed"):
        send(session, answer["data"]["content"])  # what was decided about, not what was asked
    elif answer.get("held"):
        pending.add(answer["approvalId"])
        print(f"held {session}: {answer['approvalId']}", flush=True)
    else:
        refusal = answer.get("ocip") or answer["error"]
        print(f"refused {session}: {refusal['code']}", flush=True)

while pending:  # what people decide comes as events
    event = kernel.events.pop(0) if kernel.events else kernel.read()
    payload = event.get("payload", {})
    if event.get("event") == "approval:resolved" and payload["approvalId"] in pending:
        pending.remove(payload["approvalId"])
        if payload.get("data"):
            send(payload["data"]["sessionKey"], payload["data"]["content"])
        else:
            print(f"{payload['resolution']} {payload['approvalId']}", flush=True)
