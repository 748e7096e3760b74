"""Connections that are made again when they end."""
from __future__ import annotations

import json
import os
import random
import socket
import stat
import threading
import time
from typing import Any, Callable, Dict, Optional

from .errors import AppNotRegistered, ConnectionClosed, NotRunning, OcipdError, Refused, Timeout, refusal
from .stream import Stream

FIRST_PAUSE = 0.05
HEARTBEAT = 30.0  # an app counts as unhealthy after health.unhealthy_after, 90 seconds
MOST_ATTEMPTS = 3  # of a call whose connection ends: its answer may be the cause

# Bounds of the events and chunks that wait for the caller: the first one holds while no call waits for its
# answer, which stands behind them on the connection.
MOST_WAITING = 4096
MOST_WITH_CALL = 16 * MOST_WAITING

# Methods of which a repetition has no second effect.
REPEATABLE = frozenset((
    "app.heartbeat", "session.get", "session.list", "config.get", "exchange.get", "exchange.list", "approval.get", "approval.redeemable",
    "agent.read", "agent.contacts", "agent.exchange", "agent.approval", "agent.redeemable", "kernel.describe", "kernel.status", "approval.list",
    "grant.list"))


def default_socket() -> str:
    """The path of the daemon's socket for apps: OPENCLAWOS_KERNEL_SOCKET, or the usual place."""
    path = os.environ.get("OPENCLAWOS_KERNEL_SOCKET")
    if path:
        return path
    base = os.environ.get("XDG_RUNTIME_DIR")
    return (base + "/openclawos" if base else f"/tmp/openclawos-{os.getuid()}") + "/kernel.sock"


def check_place(path: str) -> None:
    """Raises OcipdError if others than this user, root and the socket's owner could have put the socket there."""
    path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    mine = (0, os.geteuid())
    server = os.lstat(path).st_uid
    if server in mine:
        return
    entry = path
    while entry != "/":
        above, below = os.stat(os.path.dirname(entry)), os.lstat(entry)
        sticky = above.st_mode & stat.S_ISVTX and entry != path and below.st_uid in mine
        if above.st_uid not in mine + (server,) or (above.st_mode & 0o022 and not sticky):
            raise OcipdError(f"cannot trust the daemon at {path}: user {server} listens there, and others than you and root can put a socket below {os.path.dirname(entry)}")
        entry = os.path.dirname(entry)


class Link:
    """One connection."""

    def __init__(self, path: str, max_line: int, take: Callable[[Link, Any], None]):
        self.path, self.max_line, self.take = path, max_line, take
        self.ended, self.why = threading.Event(), ""
        self._lock, self._writing, self._last, self._open = threading.Lock(), threading.Lock(), 0, {}  # type: ignore[var-annotated]
        self._streams: Dict[str, Stream] = {}
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
            check_place(path)
        except PermissionError:
            self._socket.close()
            raise OcipdError(f"cannot reach the daemon at {path}: the socket belongs to another user") from None
        except OSError as error:
            self._socket.close()
            raise NotRunning(f"ocipd does not answer on {path} ({error.strerror or error}); start it: ocipd serve") from None
        except OcipdError:
            self._socket.close()
            raise
        self.thread = threading.Thread(target=self._read, daemon=True, name="ocipd-read")
        self.thread.start()

    def call(self, method: str, params: Optional[Dict[str, Any]], token: Optional[str], timeout: float) -> Any:
        done, answer = threading.Event(), []  # type: ignore[var-annotated]
        with self._lock:
            self._last += 1
            number = str(self._last)
            self._open[number] = (done, answer)
        try:
            self._ask(number, method, params, token)
        except (TypeError, ValueError):
            self._forget(number)
            raise
        if self.ended.is_set():
            self._forget(number)
        elif not done.wait(timeout):
            self._forget(number)
            raise Timeout(f"{method} has no answer after {timeout:.0f} seconds")
        if not answer:
            raise self.lost()
        frame = answer[0]
        if frame.get("success"):
            return frame.get("result")
        raise refusal(frame.get("error"))

    def _ask(self, number: str, method: str, params: Optional[Dict[str, Any]], token: Optional[str]) -> None:
        request = {"id": number, "type": "request", "timestamp": int(time.time() * 1000), "method": method, "params": params or {}}
        if token:
            request["token"] = token
        line = json.dumps(request).encode() + b"\n"
        try:
            with self._writing:
                self._socket.sendall(line)
        except OSError:
            self.close()

    def tell(self, method: str, params: Dict[str, Any], token: Optional[str]) -> None:
        """Makes a call without waiting for its answer, which is lost."""
        with self._lock:
            self._last += 1
            number = str(self._last)
        self._ask(number, method, params, token)

    def stream(self, stream: Stream, method: str, params: Optional[Dict[str, Any]], token: Optional[str]) -> None:
        """Asks for an answer in chunks."""
        with self._lock:
            self._last += 1
            stream._link, stream._number = self, str(self._last)
            self._streams[stream._number] = stream
        try:
            self._ask(stream._number, method, params, token)
        except (TypeError, ValueError):
            self._forget(stream._number)
            raise
        if self.ended.is_set():
            stream._end(self.lost())

    def lost(self) -> ConnectionClosed:
        return ConnectionClosed(f"the connection to the daemon at {self.path} was lost" + (": " + self.why if self.why else ""))

    def _forget(self, number: str) -> None:
        with self._lock:
            self._open.pop(number, None)
            self._streams.pop(number, None)

    def _read(self) -> None:
        rest = bytearray()
        try:
            while True:
                got = self._socket.recv(65536)
                if not got:
                    break
                rest += got
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    if len(line) > self.max_line:
                        rest = line
                        break
                    if line.strip():
                        self._hand_out(json.loads(line))
                if len(rest) > self.max_line:
                    self.why = f"it sent a line longer than {self.max_line} bytes"
                    break
        except OSError:
            pass
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.why = f"it sent what is not a message of the protocol: {error}"
        finally:
            self.close()
            with self._lock:
                self.ended.set()
                left, self._open = self._open, {}
                streams, self._streams = self._streams, {}
            for done, _ in left.values():
                done.set()
            for stream in streams.values():
                stream._end(self.lost())

    def _hand_out(self, frame: Any) -> None:
        if frame["type"] == "event":
            self.take(self, frame)
            return
        number = frame.get("requestId")
        if number == "" and frame.get("error"):
            self.why = str(frame["error"].get("message"))  # the whole connection is refused
        with self._lock:
            stream = self._streams.get(number)
        if stream:
            self._chunk(stream, number, frame)
        elif frame["type"] == "response":
            with self._lock:
                done, answer = self._open.pop(number, (None, None))
            if done:
                answer.append(frame)
                done.set()

    def _chunk(self, stream: Stream, number: str, frame: Any) -> None:
        if frame["type"] == "response":
            if frame.get("stream") and frame.get("success"):
                return  # that it has begun; the chunks follow
            error = None if frame.get("success") else refusal(frame.get("error"))
            if not error:
                stream._put(frame.get("result"))  # a method that answers once
        else:
            error = None
            # The last chunk is usually empty, but need not be.
            if not frame["done"] or frame.get("chunk") is not None:
                stream._put(frame.get("chunk"))
            if not frame["done"]:
                return
        self._forget(number)
        stream._end(error)

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()


class Session:
    """What App, Agent and Operator have in common.

    socket is the path of the daemon's socket. timeout bounds each call in seconds, with the wait for a
    connection. retry is the longest pause in seconds between two attempts to connect again: the first
    one has 0.05 seconds, and each later one is twice as long, less a random part. max_line bounds a line
    of the daemon in bytes; a longer one ends the connection. connection, if given, is called with None
    when the connection is there again, and otherwise with the cause of its end or of a failed attempt.

    A first connection raises NotRunning without a daemon, and OcipdError if the socket is another user's.
    """

    def __init__(self, socket: Optional[str] = None, timeout: float = 30.0, retry: float = 5.0, max_line: int = 16 << 20,
                 connection: Optional[Callable[[Optional[Exception]], None]] = None):
        self.socket, self.timeout, self.retry, self.max_line = socket or default_socket(), timeout, retry, max_line
        self._told, self._token = connection, None  # type: Optional[Callable[[Optional[Exception]], None]], Optional[str]
        self._changed, self._link, self._over = threading.Condition(), None, threading.Event()  # type: ignore[var-annotated]
        # room is told of calls that begin or end, and of events that are handled.
        self._room, self._calls, self._waiting = threading.Condition(), 0, 0

    def _open(self) -> None:
        link = self._connect()
        threading.Thread(target=self._run, args=(link,), daemon=True, name="ocipd-run").start()

    def _greet(self, link: Link) -> None:
        """Makes a new connection the caller's."""

    def _take(self, link: Link, frame: Any) -> None:
        """Gets each event, in order."""

    def _connect(self) -> Link:
        link = Link(self.socket, self.max_line, self._take)
        try:
            self._greet(link)
        except BaseException:
            link.close()
            raise
        with self._changed:
            self._link = link
            self._changed.notify_all()
        return link

    def _run(self, link: Link) -> None:
        while True:
            while not link.ended.wait(HEARTBEAT):
                if self._token:
                    try:
                        link.call("app.heartbeat", None, self._token, self.timeout)
                    except Refused:
                        link.close()
            link.thread.join()  # every event of it is with its handler's queue
            cause: Optional[Exception] = ConnectionClosed(link.why or f"the connection to the daemon at {self.socket} was lost")
            pause = FIRST_PAUSE
            while cause:
                if self._over.is_set():
                    with self._changed:
                        self._changed.notify_all()
                    return
                self._tell(cause)
                self._over.wait(pause * random.uniform(0.5, 1))  # apps must not connect all at once
                pause = min(2 * pause, self.retry)
                if not self._over.is_set():
                    try:
                        link, cause = self._connect(), None
                    except OcipdError as error:
                        cause = error
            self._tell(None)

    def _tell(self, cause: Optional[Exception]) -> None:
        if self._told:
            self._told(cause)

    def call(self, method: str, params: Optional[Dict[str, Any]] = None) -> Any:
        """Calls a method of the protocol by its name, and returns its result. Raises Refused.

        A method that answers in chunks is for stream.
        """
        return self._call(method, params, method in REPEATABLE)

    def stream(self, method: str, params: Optional[Dict[str, Any]] = None) -> Stream:
        """Asks for an answer in chunks, and returns it to be iterated over or closed.

        A refusal is raised by the iteration. A method that answers once gives that answer as the only chunk.
        """
        stream = Stream(self)
        self._connection(time.monotonic() + self.timeout).stream(stream, method, params, self._token)
        return stream

    def _full(self) -> bool:
        """Whether nothing more may wait for the caller."""
        return not self._over.is_set() and self._waiting >= (MOST_WITH_CALL if self._calls else MOST_WAITING)

    def _call(self, method: str, params: Optional[Dict[str, Any]], repeat: bool) -> Any:
        return self._counted(lambda: self._attempts(method, params, repeat))

    def _counted(self, ask: Callable[[], Any]) -> Any:
        with self._room:
            self._calls += 1
            self._room.notify_all()
        try:
            return ask()
        finally:
            with self._room:
                self._calls -= 1

    def _attempts(self, method: str, params: Optional[Dict[str, Any]], repeat: bool) -> Any:
        end = time.monotonic() + self.timeout
        for attempt in range(MOST_ATTEMPTS):
            link = self._connection(end)
            try:
                return link.call(method, params, self._token, max(end - time.monotonic(), 0))
            except ConnectionClosed:
                if not repeat or attempt == MOST_ATTEMPTS - 1:
                    raise
                link.ended.wait(max(end - time.monotonic(), 0))  # a daemon that ends answers so too

    def _connection(self, end: float) -> Link:
        with self._changed:
            while True:
                if self._link and not self._link.ended.is_set():
                    return self._link
                left = end - time.monotonic()
                if self._over.is_set() or left <= 0:
                    raise ConnectionClosed(f"there is no connection to the daemon at {self.socket}")
                self._changed.wait(left)

    def close(self) -> None:
        """Ends the connection. Calls under way fail."""
        self._over.set()
        with self._room:
            self._room.notify_all()
        with self._changed:
            link = self._link
            self._changed.notify_all()
        if link:
            link.close()
            link.ended.wait(self.timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
