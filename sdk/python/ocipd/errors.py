"""Errors: a class for each code of the protocol."""
from __future__ import annotations

from typing import Any, Dict, Optional


class OcipdError(Exception):
    """The base of all errors of this package."""


class NotRunning(OcipdError):
    """No daemon listens on the socket of a first connection."""


class NotSent(Exception):
    """For handlers: the text certainly did not leave.

    After any other exception the daemon counts the outcome as unknown, and a person decides about a
    repetition.
    """


class Refused(OcipdError):
    """A refusal of the daemon.

    code is the protocol's, message a sentence for people. verdict is None unless the rules of messages
    refused: then it has code, reason and auditId. details are those of the protocol, or None.
    """

    code = "UNKNOWN_ERROR"

    def __init__(self, message: str, details: Any = None, prefix: str = ""):
        super().__init__(f"{prefix}{self.code}: {message}")
        self.message, self.details = message, details
        verdict = details.get("ocip") if isinstance(details, dict) else None
        self.verdict: Optional[Dict[str, Any]] = verdict if isinstance(verdict, dict) else None


class UnknownError(Refused):
    code = "UNKNOWN_ERROR"


class InvalidRequest(Refused):
    code = "INVALID_REQUEST"


class MethodNotFound(Refused):
    code = "METHOD_NOT_FOUND"


class InvalidParams(Refused):
    """details lists {path, message}, one for each wrong member."""

    code = "INVALID_PARAMS"


class InternalError(Refused):
    code = "INTERNAL_ERROR"


class Unauthorized(Refused):
    code = "UNAUTHORIZED"


class Forbidden(Refused):
    code = "FORBIDDEN"


class NotFound(Refused):
    code = "NOT_FOUND"


class Conflict(Refused):
    code = "CONFLICT"


class Timeout(Refused):
    """The daemon or the call exceeded its time. The effect of the call is unknown."""

    code = "TIMEOUT"


class AppNotRegistered(Refused):
    code = "APP_NOT_REGISTERED"


class CapabilityDenied(Refused):
    code = "CAPABILITY_DENIED"


class HookNotSubscribed(Refused):
    code = "HOOK_NOT_SUBSCRIBED"


class ConnectionClosed(Refused):
    """There is no connection, or it ended before the answer."""

    code = "CONNECTION_CLOSED"


_CLASSES = {c.code: c for c in (
    UnknownError, InvalidRequest, MethodNotFound, InvalidParams, InternalError, Unauthorized, Forbidden, NotFound, Conflict, Timeout,
    AppNotRegistered, CapabilityDenied, HookNotSubscribed, ConnectionClosed)}


def refusal(error: Any, prefix: str = "") -> Refused:
    """The exception of an error of the protocol."""
    if not isinstance(error, dict):
        error = {}
    return _CLASSES.get(error.get("code"), UnknownError)(str(error.get("message", "")), error.get("details"), prefix)
