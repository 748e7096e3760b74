#!/usr/bin/env python3
"""A bot that lets ocipd decide before it sends. Python 3.9; the package ocipd is in sdk/python.

Reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A text
that a person must decide about is sent as soon as it is approved.
"""
import os, sys
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../sdk/python"))  # or: pip install ocipd
import ocipd

if "--networks" in sys.argv:
    from networks import send  # Telegram, Slack, IRC and e-mail
else:
    def send(text):
        """Replace this with your chat network's own call, such as those of networks.py."""
        print(f"sent {text['sessionKey']}: {text['content'].splitlines()[0]}", flush=True)


def resolved(outcome):
    if not outcome.released:
        print(f"{outcome.resolution} {outcome.approval_id}", flush=True)


try:
    app = ocipd.App(os.environ.get("BOT_APP", "@example/bot"), send=send, resolved=resolved)
except ocipd.OcipdError as error:
    sys.exit(str(error))
for line in sys.stdin:
    session, text = line.rstrip("\n").split(" ", 1)
    answer = app.deliver(session, text)
    if answer.held:
        print(f"held {session}: {answer.approval_id}", flush=True)  # a repetition is the same request
    elif not answer.allowed:
        print(f"refused {session}: {answer.code}: {answer.reason}", flush=True)
    elif answer.error:
        print(f"cannot tell whether it was sent: {answer.error}", file=sys.stderr)
app.wait()
app.close()
