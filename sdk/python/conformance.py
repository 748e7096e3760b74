#!/usr/bin/env python3
"""Carries out the steps of sdk/conformance.json with the Python SDK. sdk/README.md describes the lines."""
import itertools
import json
import os
import queue
import sys
import threading

sys.path.insert(0, os.environ.get("OCIPD_PYTHON", os.path.dirname(os.path.abspath(__file__))))
import ocipd

saying, events, answers, at, streams = threading.Lock(), itertools.count(1), {}, {}, {}


def say(**line):
    with saying:
        print(json.dumps(line), flush=True)


def ask(name, what, data):
    event, answer = next(events), queue.Queue()
    answers[event] = answer
    say(**{"as": name, "event": event, "what": what, "data": data})
    given = answer.get()
    if given.get("notSent"):
        raise ocipd.NotSent(given["notSent"])
    if given.get("content"):
        data["content"] = given["content"]
    if given.get("error"):
        raise ValueError(given["error"])


def told(name, outcome):
    say(**{"as": name, "what": "resolved", "data": {"approvalId": outcome.approval_id, "resolution": outcome.resolution}})


def decided(d):
    return {"allowed": d.allowed, "held": d.held, "approvalId": d.approval_id, "code": d.code, "reason": d.reason}


def chunks(name, stream):
    code = ""
    try:
        for chunk in stream:
            say(**{"as": name, "what": "chunk", "data": chunk})
    except ocipd.Refused as error:
        code = error.code
    say(**{"as": name, "what": "end", "data": {"code": code}})


def connect(name, do, g):
    options = {"timeout": 20, "retry": 0.1, "connection": lambda cause: say(**{"as": name, "what": "lost" if cause else "back"})}
    if "line" in g:
        options["max_line"] = g["line"]
    if do == "attach":
        return ocipd.Agent(g["token"], **options)
    if do == "operate":
        return ocipd.Operator(**options)
    handlers = {kind: (lambda m, what=what: ask(name, what, m)) for kind, what in (("receive", "received"), ("intercept", "intercept"), ("send", "send")) if g.get(kind)}
    return ocipd.App(g["id"], channels={c: lambda m: ask(name, "message", m) for c in g.get("channels", ())}, resolved=lambda o: told(name, o), **handlers, **options)


DO = {
    "close": lambda c, g: c.close(),
    "dispatch": lambda c, g: c.dispatch(g["session"], g["content"]),
    "queue": lambda c, g: c.queue(g["session"], g["text"]),
    "complete": lambda c, g: c.complete(g["run"]),
    "deliver": lambda c, g: decided(c.deliver(g["session"], g["content"])),
    "tool": lambda c, g: decided(c.tool(g["call"]["toolName"], g["call"]["params"])),
    "await": lambda c, g: {"approvalId": g["approval"], "resolution": c.outcome(g["approval"]).resolution},
    "wait": lambda c, g: c.wait(),
    "call": lambda c, g: c.call(g["method"], g.get("params")),
    "send": lambda c, g: c.send(g["to"], g["text"]),
    "read": lambda c, g: c.read(wait=10),
    "grants": lambda c, g: {"grants": c.grants(g.get("agent", ""))},
    "toSign": lambda c, g: {"text": ocipd.grant_text(g["grant"])},
    "addGrant": lambda c, g: c.add_grant(g["grant"], g["signature"]),
    "revokeGrant": lambda c, g: {"changed": c.revoke_grant(g["id"])},
}


def step(line):
    name, do, given = line["as"], line["do"], line["with"]
    try:
        if do in ("register", "attach", "operate"):
            at[name] = connect(name, do, given)
            say(n=line["n"])
        elif do == "stream":
            streams[name] = at[name].stream(given["method"], given.get("params"))
            threading.Thread(target=chunks, args=(name, streams[name]), daemon=True).start()
            say(n=line["n"])
        elif do == "cancel":
            streams[name].close()
            say(n=line["n"])
        else:
            say(n=line["n"], result=DO[do](at[name], given))
    except Exception as error:
        verdict = getattr(error, "verdict", None) or {}
        say(n=line["n"], error={"code": getattr(error, "code", ""), "message": str(error), "verdict": verdict.get("code", "")})


for text in sys.stdin:
    line = json.loads(text)
    if "answer" in line:
        answers.pop(line["answer"]).put(line["with"])
    else:
        threading.Thread(target=step, args=(line,), daemon=True).start()
