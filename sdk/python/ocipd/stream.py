"""Answers in chunks."""
from __future__ import annotations

from collections import deque
from typing import Any, Deque, Optional

from .errors import ConnectionClosed, NotFound


class Stream:
    """An answer in chunks, such as those of config.watch, agent.watch and task.watch: iterate over it.

    The iteration ends after the last chunk and after close. It raises Refused if the daemon refused, and
    ConnectionClosed if the connection ended: a stream is not opened again by itself. Chunks that wait
    count with the events that wait for handlers: beyond the bound nothing is read from the connection.
    """

    def __init__(self, session: Any):
        self._session, self._queue = session, deque()  # type: Any, Deque[Any]
        self._error: Optional[Exception] = None
        self._ended = False
        self._link: Any = None
        self._number = ""

    def _put(self, chunk: Any) -> None:
        with self._session._room:
            while not self._ended and self._session._full():
                self._session._room.wait()
            if not self._ended:
                self._queue.append(chunk)
                self._session._waiting += 1
                self._session._room.notify_all()

    def _end(self, error: Optional[Exception]) -> None:
        with self._session._room:
            if not self._ended:
                self._ended, self._error = True, error
            self._session._room.notify_all()

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Any:
        room = self._session._room
        with room:
            while not self._queue and not self._ended:
                room.wait()
            if self._queue:
                self._session._waiting -= 1
                room.notify_all()
                return self._queue.popleft()
            if self._error:
                raise self._error
        raise StopIteration

    def close(self) -> None:
        """Ends the stream: chunks that were not taken are dropped, and the daemon sends no more."""
        with self._session._room:
            over = self._ended
            self._session._waiting -= len(self._queue)
            self._queue.clear()
            self._ended, self._error = True, None
            self._session._room.notify_all()
        if not over:
            try:
                self._session._counted(lambda: self._link.call("stream.cancel", {"requestId": self._number}, self._session._token, self._session.timeout))
            except (NotFound, ConnectionClosed):
                pass  # it ended meanwhile

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
