"""A small client of ocipd: what bot.py asks. Python 3.9, no packages."""
import contextlib, json, os, queue, socket, sys, threading, time, uuid


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.code, self.message = error["code"], error["message"]


class Ocipd:
    def __init__(self, app):
        base = os.environ.get("XDG_RUNTIME_DIR")
        base = base + "/openclawos" if base else f"/tmp/openclawos-{os.getuid()}"
        path = os.environ.get("OPENCLAWOS_KERNEL_SOCKET") or base + "/kernel.sock"
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(path)
        except OSError as error:
            sys.exit(f"ocipd does not answer on {path} ({error.strerror}); start it: ocipd serve")
        # news are functions and what to call them with, from whoever has some; answers belong to ask.
        self.lines, self.token = link.makefile("r", encoding="utf-8", newline="\n"), None
        self.out = link.makefile("w", encoding="utf-8", newline="\n")
        self.news, self.answers, self.when_resolved = queue.Queue(), queue.Queue(), None
        threading.Thread(target=self.read, daemon=True).start()
        try:
            self.token = self.ask("app.register", manifest={
                "id": app, "name": "Example bot", "version": "1.0.0", "type": "app", "main": "bot.py",
                "protocol": {"version": "1.0"}, "capabilities": {"redeem": True}})["token"]
            self.ask("app.ready")
        except Refused as refusal:
            sys.exit(f"ocipd refuses app {app}: {refusal}")

    def read(self):
        for line in self.lines:
            frame = json.loads(line)
            if frame["type"] == "response":
                self.answers.put(frame)
            elif frame.get("event") == "approval:resolved":
                self.news.put((lambda approval: self.when_resolved(approval), frame["payload"]))
        self.answers.put(None)
        self.news.put((self.lost, None))

    def lost(self, _=None):
        sys.exit("ocipd has closed the connection: nothing is sent without it")

    def ask(self, method, **params):
        request = {"id": str(uuid.uuid4()), "type": "request", "timestamp": int(time.time() * 1000), "method": method, "params": params}
        if self.token:
            request["token"] = self.token
        self.out.write(json.dumps(request) + "\n")
        self.out.flush()
        frame = self.answers.get()
        if frame is None:
            self.lost()
        if not frame["success"]:
            raise Refused(frame["error"])
        return frame["result"]

    def decide(self, session, text):
        """May this text leave? An error is a refusal too."""
        try:
            return self.ask("hook.emit", hookName="message_sending", data={"sessionKey": session, "content": text})
        except Refused as refusal:
            return {"allowed": False, "ocip": {"code": refusal.code, "reason": refusal.message}}

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
