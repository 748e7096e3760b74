#!/usr/bin/env python3
"""A bot that lets ocipd decide before it sends. Python 3.9; the package ocipd is in sdk/python.

Reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A text
that a person must decide about is sent as soon as it is approved.
"""
import os, signal, sys
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../sdk/python"))  # or install it
try:
    import ocipd
except ImportError:
    sys.exit("cannot find the package ocipd: it is in sdk/python beside examples; pip can install it from there")
signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the bot at once; the daemon remembers what is held

if "--networks" in sys.argv:
    from networks import send  # Telegram, Slack, IRC and e-mail
else:
    def send(text):
        """Replace this with your chat network's own call, such as those of networks.py."""
        print(f"sent {text['sessionKey']}: {text['content'].splitlines()[0]}", flush=True)


try:
    app = ocipd.App(os.environ.get("BOT_APP", "@example/bot"), send=send,
                    resolved=lambda o: o.released or print(f"{o.resolution} {o.approval_id}", flush=True))
except ocipd.OcipdError as error:
    sys.exit(str(error))
for line in sys.stdin:
    session, _, text = line.rstrip("\n").partition(" ")
    answer = app.deliver(session, text)
    if answer.held:
        print(f"held {session}: {answer.approval_id}", flush=True)  # a repetition is the same request
    elif not answer.allowed:
        print(f"refused {session}: {answer.code}: {answer.reason}", flush=True)
    elif answer.error:
        print(f"sending failed: {answer.error}", file=sys.stderr)
app.wait()
app.close()
