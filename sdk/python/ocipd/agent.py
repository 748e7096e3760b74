"""Agents without an app, and operators."""
from __future__ import annotations

import datetime
import os
import uuid
from typing import TYPE_CHECKING, Any, Dict, List

from .session import Link, Session, default_socket

if TYPE_CHECKING:
    from .protocol import AgentMessages, AgentSent, Grant


class Agent(Session):
    """The connection of an agent without an app, by the token of a grant. Raises NotRunning and Unauthorized.

    The other arguments are those of Session.
    """

    def __init__(self, token: str, **options: Any):
        super().__init__(**options)
        self._grant = token
        self._open()

    def _greet(self, link: Link) -> None:
        link.call("task.attach", {"token": self._grant}, None, self.timeout)

    def send(self, to: str, text: str) -> AgentSent:
        """Sends a text to a session or to an agent of this daemon.

        A lost answer is asked for again: the text is sent once.
        """
        return self._call("agent.send", {"to": to, "text": text, "request_key": str(uuid.uuid4())}, True)

    def read(self, cursor: str = "", wait: int = 0) -> AgentMessages:
        """Reads the inbox, and waits at most so many seconds (20) for a first message.

        cursor is that of the page before: its messages leave the inbox.
        """
        return self.call("agent.read", {"wait_s": wait, **({"cursor": cursor} if cursor else {})})


class Operator(Session):
    """A connection of the operator. The daemon refuses it to apps and to processes that they have started.

    The arguments are those of Session.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        if not options.get("socket"):
            self.socket = os.path.join(os.path.dirname(default_socket()), "operator.sock")
        self._open()

    def grants(self, agent: str = "") -> List[Grant]:
        """Lists the pre-approvals in force, all pages of them. agent is the sender's id or instance id, "" for all."""
        asked, found = {"agent": agent} if agent else {}, []
        while True:
            page = self.call("grant.list", asked)
            found += page["grants"]
            if not page.get("next"):
                return found
            asked = {**asked, "after": page["next"]}

    def add_grant(self, grant: Dict[str, Any], signature: str) -> Grant:
        """Makes a pre-approval with a person's armored signature over grant_text."""
        return self.call("grant.add", {**grant, "signature": signature})["grant"]

    def revoke_grant(self, grant_id: str) -> bool:
        """Ends a pre-approval. Returns whether it was in force."""
        return self.call("grant.revoke", {"grantId": grant_id})["changed"]


def grant_text(grant: Dict[str, Any]) -> str:
    """The text that a person signs to make a pre-approval, in the namespace approval@ocipd (ssh-keygen -Y sign).

    grant has grantId, agent, receiver, words, classification, until (Unix milliseconds) and maxUses. Names
    are printable ASCII without quotes and backslashes; others raise ValueError.
    """
    for name in (grant["grantId"], grant["agent"], grant["receiver"]):
        if not all(" " <= c <= "~" and c not in '"\\' for c in name):
            raise ValueError(f"cannot write {name!r} into a text to sign: it is no printable ASCII without quotes")
    until = datetime.datetime.fromtimestamp(grant["until"] // 1000, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return (f'ocipd grant v1\n"{grant["grantId"]}"\nfrom "{grant["agent"]}"\nto "{grant["receiver"]}"\nuses {grant["maxUses"]}\n'
            f'words {",".join(grant["words"])}\nclassification {grant["classification"]}\nround 0\nuntil {until}.{grant["until"] % 1000:03d}Z\n')
