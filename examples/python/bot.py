#!/usr/bin/env python3
"""A bot that lets ocipd decide before it sends. Python 3.9, no packages; ocip.py is beside it.

Reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A text
that a person must decide about is sent as soon as it is approved.
"""
import os, sys, threading
from ocip import Ocipd

if "--networks" in sys.argv:
    from networks import send  # Telegram, Slack, IRC and e-mail
else:
    def send(session, content):
        """Replace this with your chat network's own call, such as those of networks.py."""
        print(f"sent {session}: {content.splitlines()[0]}", flush=True)


def said(line):
    session, text = line.rstrip("\n").split(" ", 1)
    answer = ocipd.decide(session, text)
    if answer["allowed"]:
        with ocipd.confirms(dispatchId=answer["data"]["dispatchId"]):
            send(session, answer["data"]["content"])  # what was decided about, not what was asked
    elif answer.get("held"):
        pending.add(answer["approvalId"])  # a repetition is the same request
        print(f"held {session}: {answer['approvalId']}", flush=True)
    else:
        print(f"refused {session}: {answer['ocip']['code']}: {answer['ocip']['reason']}", flush=True)


def resolved(approval):
    pending.discard(approval["approvalId"])
    if approval["resolution"] not in ("approved", "taken_over"):
        print(f"{approval['resolution']} {approval['approvalId']}", flush=True)
    elif taken := ocipd.redeem(approval["approvalId"]):
        with ocipd.confirms(claim=taken["claim"]):
            send(taken["data"]["sessionKey"], taken["data"]["content"])


def read():
    for line in sys.stdin:
        ocipd.news.put((said, line))
    ocipd.news.put((None, None))


ocipd, pending, at_end = Ocipd(os.environ.get("BOT_APP", "@example/bot")), set(), False
for approval in ocipd.redeemable():  # approved while no bot ran
    resolved(approval)
ocipd.when_resolved = resolved
threading.Thread(target=read, daemon=True).start()
while pending or not at_end:
    act, what = ocipd.news.get()  # the next line, or what a person has decided: whichever comes first
    if act:
        act(what)
    else:
        at_end = True
