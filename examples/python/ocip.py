"""A small client of ocipd: what bot.py asks. Python 3.9, no packages."""
import contextlib, json, os, socket, sys, time, uuid


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]


class Ocipd:
    def __init__(self, app):
        path = os.environ.get("OPENCLAWOS_KERNEL_SOCKET") or os.environ["XDG_RUNTIME_DIR"] + "/openclawos/kernel.sock"
        link = socket.socket(socket.AF_UNIX)
        link.connect(path)
        self.lines, self.token, self.events = link.makefile("rw", encoding="utf-8", newline="\n"), None, []
        self.token = self.ask("app.register", manifest={
            "id": app, "name": "Example bot", "version": "1.0.0", "type": "app", "main": "bot.py",
            "protocol": {"version": "1.0"}, "capabilities": {"redeem": True}})["token"]
        self.ask("app.ready")

    def read(self):
        line = self.lines.readline()
        if not line:
            sys.exit("ocipd has closed the connection: nothing is sent without it")
        return json.loads(line)

    def ask(self, method, **params):
        request = {"id": str(uuid.uuid4()), "type": "request", "timestamp": int(time.time() * 1000), "method": method, "params": params}
        if self.token:
            request["token"] = self.token
        self.lines.write(json.dumps(request) + "\n")
        self.lines.flush()
        while True:
            frame = self.read()
            if frame["type"] == "event":
                self.events.append(frame)
            elif frame.get("requestId") == request["id"]:
                if not frame["success"]:
                    raise Refused(frame["error"])
                return frame["result"]

    def decide(self, session, text):
        """May this text leave? An error is a refusal too."""
        try:
            return self.ask("hook.emit", hookName="message_sending", data={"sessionKey": session, "content": text})
        except Refused as refusal:
            return {"allowed": False, "ocip": {"code": refusal.code}}

    def decided(self):
        """Waits for what a person has decided."""
        while True:
            event = self.events.pop(0) if self.events else self.read()
            if event.get("event") == "approval:resolved":
                return event["payload"]

    def redeemable(self):
        """What was approved, and nobody has taken yet."""
        return [dict(a, resolution="approved") for a in self.ask("approval.redeemable")["approvals"]]

    def redeem(self, approval):
        """Takes what was approved: {claim, data}. It is given once; None is for who comes after."""
        try:
            return self.ask("approval.redeem", approvalId=approval)
        except Refused as refusal:
            if refusal.code != "CONFLICT":
                print(f"cannot take {approval}: {refusal}", file=sys.stderr)
            return None

    @contextlib.contextmanager
    def confirms(self, **message):
        """Tells ocipd what became of a message. One that may have left is not sent again unless a person says so."""
        outcome = "sent"
        try:
            yield
        except Exception as error:
            print(f"cannot tell whether it was sent: {error}", file=sys.stderr)
            outcome = "unknown"
        self.ask("approval.confirm", outcome=outcome, **message)
