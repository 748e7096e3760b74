"""The Python SDK of ocipd: an app asks the daemon before its agent's messages leave.

Three kinds of programs connect to a running daemon, each by a class of its own:

- App: owns channels, speaks for an agent, intercepts messages, or delivers by itself.
- Agent: an agent without an app, by the token of a grant (`ocipd task grant --agent ID`).
- Operator: programs of the operator, such as one that manages pre-approvals.

Each reconnects by itself, with growing pauses, and continues with its token: channels, subscriptions
and waiting messages stay. A call waits for the connection, at most for `timeout` seconds. A call whose
answer is lost is repeated if a repetition has no second effect; any other one raises ConnectionClosed,
and its effect is unknown.

The method stream of each opens a Stream, an answer in chunks.

Memory is bounded: a line of the daemon has at most `max_line` bytes. If 4,096 events and chunks wait for
the program, or 65,536 while a call waits for its answer, nothing is read until it takes one.

All classes are safe for use by several threads. Handlers run in threads of the SDK: those of one kind
one after another, and those of different kinds side by side.
"""
from .agent import Agent, Operator, grant_text
from .app import App, Decision, Outcome, Text
from .errors import (
    AppNotRegistered, CapabilityDenied, Conflict, ConnectionClosed, Forbidden, HookNotSubscribed, InternalError, InvalidParams, InvalidRequest,
    MethodNotFound, NotFound, NotRunning, NotSent, OcipdError, Refused, Timeout, Unauthorized, UnknownError,
)
from .session import default_socket
from .stream import Stream

__all__ = [
    "Agent", "App", "AppNotRegistered", "CapabilityDenied", "Conflict", "ConnectionClosed", "Decision", "Forbidden", "HookNotSubscribed",
    "InternalError", "InvalidParams", "InvalidRequest", "MethodNotFound", "NotFound", "NotRunning", "NotSent", "OcipdError", "Operator", "Outcome",
    "Refused", "Stream", "Text", "Timeout", "Unauthorized", "UnknownError", "default_socket", "grant_text",
]
