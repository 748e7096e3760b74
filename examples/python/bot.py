#!/usr/bin/env python3
"""A bot that lets ocipd decide before it sends. Python 3.9, no packages; ocip.py is beside it.

Reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A text
that a person must decide about is sent once it is approved.
"""
import sys
from ocip import Ocipd

if "--networks" in sys.argv:
    from networks import send  # Telegram, Slack, IRC and e-mail
else:
    def send(session, content):
        """Replace this with your chat network's own call, such as those of networks.py."""
        print(f"sent {session}: {content.splitlines()[0]}", flush=True)


def resolved(approval):
    pending.discard(approval["approvalId"])
    if approval["resolution"] not in ("approved", "taken_over"):
        print(f"{approval['resolution']} {approval['approvalId']}", flush=True)
    elif taken := ocipd.redeem(approval["approvalId"]):
        with ocipd.confirms(claim=taken["claim"]):
            send(taken["data"]["sessionKey"], taken["data"]["content"])


ocipd, pending = Ocipd("@example/bot"), set()
for approval in ocipd.redeemable():  # approved while no bot ran
    resolved(approval)
for line in sys.stdin:
    session, text = line.rstrip("\n").split(" ", 1)
    answer = ocipd.decide(session, text)
    if answer["allowed"]:
        with ocipd.confirms(dispatchId=answer["data"]["dispatchId"]):
            send(session, answer["data"]["content"])  # what was decided about, not what was asked
    elif answer.get("held"):
        pending.add(answer["approvalId"])  # a repetition is the same request
        print(f"held {session}: {answer['approvalId']}", flush=True)
    else:
        print(f"refused {session}: {answer['ocip']['code']}", flush=True)
    while ocipd.events:
        resolved(ocipd.decided())
while pending:
    resolved(ocipd.decided())
