"""Apps."""
from __future__ import annotations

import collections
import copy
import queue
import sys
import threading
import time
import traceback
import uuid
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple, TypedDict

from .errors import AppNotRegistered, CapabilityDenied, Conflict, ConnectionClosed, NotSent, OcipdError, Refused, Unauthorized, refusal
from .session import FIRST_PAUSE, Link, Session

if TYPE_CHECKING:
    from .protocol import DispatchResult, Inbound, Message, QueueResult

MOST_KNOWN = 1024  # ids of messages and approvals that an app remembers
GOODBYE = 5.0
RELEASED = ("approved", "taken_over")


class Text(TypedDict, total=False):
    """A text that the app delivers by itself, as it was decided about."""

    sessionKey: str
    content: str
    metadata: Dict[str, Any]
    dispatchId: str


class Decision:
    """The answer about a text or a tool call. If it is neither allowed nor held, it is refused.

    code and reason are the verdict's, or the error's if the daemon answered with one. data is the
    message or the call as it was decided about. error is the exception of an allowed text that was not
    sent, or whose outcome could not be reported.
    """

    def __init__(self, answer: Dict[str, Any]):
        verdict = answer.get("ocip") or {}
        self.allowed: bool = answer["allowed"]
        self.held: bool = answer.get("held", False)
        self.approval_id: str = answer.get("approvalId", "")
        self.code: str = "" if self.allowed else verdict.get("code", "")
        self.reason: str = "" if self.allowed else verdict.get("reason") or answer.get("reason", "")
        self.data: Dict[str, Any] = answer.get("data") or {}
        self.error: Optional[Exception] = None


class Outcome:
    """The decision of a person, or its absence, about something that was held.

    resolution is approved, denied, taken_over, resolved, expired, request_changes or revoked. text is the
    text that the app's send has got, None if it has got none, and error its exception.
    """

    def __init__(self, approval_id: str, resolution: str, note: str = ""):
        self.approval_id, self.resolution, self.note = approval_id, resolution, note
        self.text: Optional[Dict[str, Any]] = None
        self.error: Optional[Exception] = None

    @property
    def released(self) -> bool:
        """Whether a person has let the text go."""
        return self.resolution in RELEASED


class Work:
    """An event that waits for its function. It is acknowledged on link, None if it needs no acknowledgement."""

    def __init__(self, handle: Optional[Callable[[], Any]], link: Optional[Link], event: str):
        self.handle, self.link, self.event = handle or (lambda: None), link, event


class Known(collections.OrderedDict):
    """The newest ids, each with a value."""

    def put(self, key: str, value: Any) -> None:
        self[key] = value
        while len(self) > MOST_KNOWN:
            self.popitem(last=False)


class App(Session):
    """A registered app. A right is asked for if its handler is given.

    id is a package name such as "@acme/telegram"; name and version are for people.

    channels maps each channel that the app owns to a function that sends a message (Message) to its
    target. An exception is on record as a failed delivery. The app remembers 1,024 ids of messages: a
    repetition after a reconnection is not sent twice.

    A message whose function has not ended when the app ends comes again in its next run, with the same
    dispatchId.

    receive gets the messages for the app's agent (Inbound); complete ends the run of one. An exception of a
    handler that nobody else is told is printed to the standard error.

    intercept decides about messages of other agents, within hooks.answer (5 seconds). A change of
    message["content"] or message["metadata"] changes the message. An exception blocks it; its text is on
    record, and the sender does not see it.

    send delivers a text that deliver asked about, at once or after a person has approved it. What was
    approved while no app ran is sent before the constructor returns.

    resolved is told each decision of a person about something that was held (Outcome), after send.

    Raises NotRunning, Conflict if an app of the id is connected, and CapabilityDenied. The other arguments
    are those of Session.
    """

    def __init__(self, id: str, *, name: str = "", version: str = "1.0.0", channels: Optional[Dict[str, Callable[[Message], Any]]] = None,
                 receive: Optional[Callable[[Inbound], Any]] = None, intercept: Optional[Callable[[Message], Any]] = None,
                 send: Optional[Callable[[Text], Any]] = None, resolved: Optional[Callable[[Outcome], Any]] = None, **options: Any):
        super().__init__(**options)
        self.id, self._channels = id, channels or {}
        self._receive, self._intercept, self._send, self._resolved = receive, intercept, send, resolved
        self._manifest = {
            "id": id, "name": name or id, "version": version, "type": "app", "main": "app", "protocol": {"version": "1.0"},
            "capabilities": {"redeem": bool(send), "acknowledges": True, "channels": {"provides": sorted(self._channels)},
                             "hooks": {"intercepts": ["message_sending"] if intercept else []}}}
        self._lanes = {lane: queue.Queue() for lane in ("messages", "intercepted", "resolved")}  # type: Dict[str, queue.Queue]
        # busy has the work of the threads that are in a function of the app. room guards it.
        self._busy: Dict[int, Work] = {}
        self._sent, self._known = Known(), threading.Condition()
        self._held, self._decided = set(), Known()  # type: ignore[var-annotated]
        self._open()
        try:
            if send:
                for one in self.call("approval.redeemable")["approvals"]:
                    self._settle(Outcome(one["approvalId"], "approved"))
        except BaseException:
            self.close()
            raise
        for lane in self._lanes.values():
            threading.Thread(target=self._work, args=(lane,), daemon=True, name="ocipd-handle").start()

    def _greet(self, link: Link) -> None:
        if self._token:
            try:
                link.call("app.heartbeat", None, self._token, self.timeout)
                return
            except (AppNotRegistered, Unauthorized):
                pass
        pause = FIRST_PAUSE
        while True:
            try:
                self._token = link.call("app.register", {"manifest": self._manifest}, self._token, self.timeout)["token"]
                break
            except Refused as error:
                # An app of the id that has just ended is connected for a moment still.
                if not isinstance(error, Conflict) or pause > 1:
                    raise refusal({"code": error.code, "message": error.message, "details": error.details}, f"ocipd refuses app {self.id}: ") from None
            self._over.wait(pause)
            pause *= 2
        grants = [{"type": "channel", "config": {"channelId": channel}} for channel in sorted(self._channels)]
        if self._intercept:
            if link.call("hook.subscribe", {"events": ["message_sending"]}, self._token, self.timeout)["denied"]:
                raise CapabilityDenied(f"app {self.id} may not subscribe to message_sending")
            grants.append({"type": "hook", "config": {"event": "message_sending", "intercept": True}})
        for grant in grants:
            answer = link.call("capability.register", grant, self._token, self.timeout)
            if not answer["granted"]:
                raise CapabilityDenied(answer.get("reason", ""))
        link.call("app.ready", None, self._token, self.timeout)

    def _take(self, link: Link, frame: Any) -> None:
        event = frame["event"]
        lane, handle = self._handler(event, frame["payload"])
        with self._room:
            while self._full():
                self._room.wait()
            self._waiting += 1
        # What is intercepted is no message of the app, and answered.
        self._lanes[lane].put(Work(handle, None if lane == "intercepted" else link, frame.get("id", "")))

    def _handler(self, event: str, payload: Any) -> Tuple[str, Any]:
        if event == "approval:resolved":
            return "resolved", lambda: self._settle(Outcome(payload["approvalId"], payload["resolution"], payload.get("note", "")))
        if event not in ("hook:message_sending", "hook:message_received"):
            return "resolved", None
        number, message = payload["eventId"], payload["data"]
        if event == "hook:message_received":
            if self._receive:
                return "messages", lambda: self._hear(message)
        # A message that is decided about has the id of the decision's record.
        elif self._intercept and not payload["context"].get("auditId"):
            return "intercepted", lambda: self._ask(number, message)
        elif message.get("channelId") in self._channels:
            return "messages", lambda: self._deliver(number, message, self._channels[message["channelId"]])
        return "messages", None

    def _work(self, lane: queue.Queue) -> None:
        while not self._over.is_set():
            try:
                work = lane.get(timeout=1)
            except queue.Empty:
                continue
            with self._room:
                self._waiting -= 1
                self._room.notify_all()
                if self._over.is_set():
                    return  # its message comes to the app's next run
                self._busy[threading.get_ident()] = work
            try:
                # The daemon sends what an ended connection has left on the next one.
                if not (work.link and work.link.ended.is_set()):
                    work.handle()
            except ConnectionClosed:
                pass  # nobody waits for the answer any more
            except Exception:
                traceback.print_exc(file=sys.stderr)
            finally:
                self._done(work)
                with self._room:
                    del self._busy[threading.get_ident()]
                    self._room.notify_all()

    def _done(self, work: Work) -> None:
        """Acknowledges the message of an event, once."""
        link, work.link = work.link, None
        if link and not link.ended.is_set():
            link.tell("app.acknowledge", {"id": work.event}, self._token)

    def _deliver(self, event: str, message: Any, deliver: Any) -> None:
        dispatch = message.get("dispatchId", "")
        receipt = self._sent.get(dispatch)
        if not receipt:
            try:
                deliver(message)
                receipt = {"delivered": True}
            except Exception as error:
                receipt = {"delivered": False, "error": str(error)}
            if dispatch:
                self._sent.put(dispatch, receipt)
        self._call("hook.result", {"eventId": event, "result": receipt}, False)

    def _hear(self, message: Any) -> None:
        dispatch = message.get("dispatchId", "")
        if dispatch not in self._sent:
            self._sent.put(dispatch, {"delivered": True})
            self._receive(message)  # type: ignore[misc]

    def _ask(self, event: str, message: Any) -> None:
        before, result = copy.deepcopy(message), {}  # type: Any, Dict[str, Any]
        try:
            self._intercept(message)  # type: ignore[misc]
            result = {member: message[member] for member in ("content", "metadata") if message.get(member) != before.get(member)}
        except Exception as error:
            result = {"block": True, "reason": str(error)}
        self._call("hook.result", {"eventId": event, "result": result}, False)

    def dispatch(self, session_key: str, content: str, metadata: Optional[Dict[str, Any]] = None) -> DispatchResult:
        """Sends a message of the app's agent; the daemon delivers it. Raises Refused, with a verdict.

        A result with held set must not be sent again: outcome has the decision.
        """
        return self.call("message.dispatch", {"sessionKey": session_key, "content": content, **({"metadata": metadata} if metadata else {})})

    def queue(self, session_key: str, text: str, metadata: Optional[Dict[str, Any]] = None) -> QueueResult:
        """Brings in a message for an agent, from the session's channel."""
        return self.call("agent.queue", {"sessionKey": session_key, "text": text, **({"metadata": metadata} if metadata else {})})

    def complete(self, run_id: str, error: str = "") -> None:
        """Ends a run of the agent, which succeeded unless there is an error."""
        self.call("agent.complete", {"runId": run_id, "success": not error, **({"error": error} if error else {})})

    def deliver(self, session_key: str, content: str) -> Decision:
        """Asks whether a text may leave, and gives an allowed one to send.

        A held one is given to send once a person has approved it, also if the app runs anew meanwhile. An
        error in place of an answer is a refusal too, and not raised.
        """
        decision = self._emit("message_sending", {"sessionKey": session_key, "content": content}, None)
        if decision.held:
            with self._known:
                if decision.approval_id not in self._decided:
                    self._held.add(decision.approval_id)
        elif decision.allowed:
            decision.error = self._give(decision.data, {"dispatchId": decision.data.get("dispatchId")})
        return decision

    def tool(self, name: str, params: Dict[str, Any], server: str = "", agent: str = "") -> Decision:
        """Asks whether a tool of the app's agent may run. agent is its id, "" if the app has one agent.

        The decision of a person about a held call (outcome) is for one call with the same params: the
        caller asks again after it.
        """
        return self._emit("tool_executing", {"toolName": name, "params": params, **({"mcpServer": server} if server else {})}, agent)

    def _emit(self, hook: str, data: Dict[str, Any], agent: Optional[str]) -> Decision:
        try:
            return Decision(self.call("hook.emit", {"hookName": hook, "data": data, **({"context": {"agentId": agent}} if agent else {})}))
        except Refused as error:
            return Decision({"allowed": False, "ocip": {"code": error.code, "reason": error.message}})

    def _give(self, text: Dict[str, Any], names: Dict[str, Any]) -> Optional[Exception]:
        """Gives a text to send, and reports what became of it."""
        failed, outcome = None, "sent"  # type: Optional[Exception], str
        try:
            if not self._send:
                raise NotSent("the app has no send")
            self._send(text)  # type: ignore[arg-type]
        except NotSent as error:
            failed, outcome = error, "not_sent"
        except Exception as error:
            failed, outcome = error, "unknown"
        try:
            self._call("approval.confirm", {**names, "outcome": outcome}, True)  # a repetition changes nothing
        except OcipdError as error:
            failed = failed or error
        return failed

    def _settle(self, outcome: Outcome) -> None:
        """Carries out a decision of a person."""
        if outcome.released and self._send:
            try:
                taken = self._call("approval.redeem", {"approvalId": outcome.approval_id, "requestKey": str(uuid.uuid4())}, True)
                outcome.text = taken["data"]
                outcome.error = self._give(taken["data"], {"claim": taken["claim"]})
            except Conflict:
                pass  # it was taken before, by this app or by another one of its id
            except OcipdError as error:
                outcome.error = error
        try:
            if self._resolved:
                self._resolved(outcome)
        finally:
            with self._known:
                self._decided.put(outcome.approval_id, outcome)
                self._held.discard(outcome.approval_id)
                self._known.notify_all()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Returns once a person has decided about every text that deliver found held, and the approved ones are sent.

        False means that timeout seconds have passed before.
        """
        return self._until(lambda: not self._held, timeout)

    def outcome(self, approval_id: str, timeout: Optional[float] = None) -> Optional[Outcome]:
        """Returns the decision of a person about something of the app that is held, None after timeout seconds."""
        now = self.call("approval.get", {"approvalId": approval_id})["state"]
        if now != "pending":
            return Outcome(approval_id, now)
        self._until(lambda: approval_id in self._decided, timeout)
        return self._decided.get(approval_id)

    def _until(self, done: Callable[[], bool], timeout: Optional[float]) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        with self._known:
            while not done():
                if self._over.is_set():
                    raise ConnectionClosed("the client is closed")
                if end is not None and time.monotonic() >= end:
                    return False
                self._known.wait(None if end is None else end - time.monotonic())
        return True

    def close(self) -> None:
        """Says goodbye to the daemon and ends the connection, so that an app of the id can register at once.

        No further function of the app begins: the messages come to its next run. Functions under way are waited
        for, at most 5 seconds; after that their messages come again. A function that calls close itself is done
        with its message.
        """
        link, mine = self._link, threading.get_ident()
        self._over.set()
        with self._room:
            self._room.notify_all()
            self._room.wait_for(lambda: not self._busy.keys() - {mine}, GOODBYE)
            work = self._busy.get(mine)
        if work:
            self._done(work)
        if link and not link.ended.is_set():
            try:
                link.call("app.shutdown", None, self._token, GOODBYE)
            except Refused:
                pass  # it ends in any case
        super().close()
        with self._known:
            self._known.notify_all()
