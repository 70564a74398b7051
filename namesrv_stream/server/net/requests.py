"""Schedules the work of one connection: when it is read, and which of its waiting requests is answered next.

``session`` computes the answer to a request.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Final

from namesrv_stream.errors import RemotingError
from namesrv_stream.processor.name_server import DecodedBody
from namesrv_stream.server.net.connections import Connection
from namesrv_stream.server.net.large_requests import LARGE_BYTES
from namesrv_stream.server.net.session import LargeRequest, Services, Session


class Pause(Enum):
    """The reasons for which a connection is not read."""

    SLOW_READER = "the peer does not read its answers"
    LARGE_REQUEST = "a large request of the peer waits for its turn"
    LARGE_FRAME = "the large requests of others are read first"
    LANE = "the lane reads it"


#: Pauses during which the server delays the peer.
_WAITING: Final = frozenset((Pause.LARGE_REQUEST, Pause.LARGE_FRAME))
#: Pauses during which received requests are not answered.
_UNANSWERED: Final = frozenset((Pause.SLOW_READER, Pause.LARGE_REQUEST))


class Reading:
    """Controls the reading of one connection, which is read while there is no ``Pause``."""

    def __init__(self, connection: Connection, transport: asyncio.Transport, services: Services) -> None:
        self.held_bytes = 0
        self._connection = connection
        self._transport = transport
        self._services = services
        self._pauses: set[Pause] = set()
        self._waits_since_ms = 0

    @property
    def is_free(self) -> bool:
        """Whether there is no pause and no incomplete frame."""
        return not (self._pauses or self.held_bytes)

    @property
    def is_waiting(self) -> bool:
        """Whether the server delays the peer: it does not read the connection because of large requests."""
        return not self._pauses.isdisjoint(_WAITING)

    @property
    def has_large_request(self) -> bool:
        return Pause.LARGE_REQUEST in self._pauses

    @property
    def may_answer(self) -> bool:
        return self._pauses.isdisjoint(_UNANSWERED)

    def received(self, size: int, held_bytes: int, *, is_new: bool) -> None:
        """Count ``size`` received bytes.

        ``held_bytes`` belong to a request that is still incomplete; ``is_new`` says that it has just begun.
        """
        before, self.held_bytes = self.held_bytes, held_bytes
        if max(held_bytes, before, size) > LARGE_BYTES:
            self._services.large_requests.read(self, size, is_partial=held_bytes > LARGE_BYTES)
        if held_bytes or before:
            self._services.connections.holds(self._connection, held_bytes, is_new=is_new)

    def hold_reading(self, *, is_held: bool) -> None:
        """Stop reading, or resume it; called by ``LargeRequests``."""
        (self.pause if is_held else self.resume)(Pause.LARGE_FRAME)

    def pause(self, reason: Pause) -> None:
        if reason in _WAITING and not self.is_waiting:
            self._services.gateway.backlog.wait(self._connection)
            self._waits_since_ms = self._services.gateway.observed_ms
        self._pauses.add(reason)
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self, reason: Pause) -> None:
        """Remove a reason for not reading; resume reading if no other reason remains."""
        if reason not in self._pauses:
            return
        self._pauses.remove(reason)
        if reason in _WAITING and not self.is_waiting:
            gateway, connection = self._services.gateway, self._connection
            gateway.backlog.read_again(connection)
            # The frame timeout must not include the time during which this server did not read.
            self._services.connections.partial_frames.postpone(connection, gateway.observed_ms - self._waits_since_ms)
            connection.active_ms = gateway.observed_ms
        if not self._pauses and not self._transport.is_closing():
            self._transport.resume_reading()

    def large_request_answered(self) -> None:
        try:
            self._services.gateway.backlog.worked_on(self._connection)
        finally:
            self.resume(Pause.LARGE_REQUEST)

    def end(self) -> None:
        self._services.large_requests.forget(self)
        self._services.gateway.backlog.read_again(self._connection)


#: Answers are collected up to this size before they are written.
_GATHERED_BYTES: Final = 64 * 1024


class Requests:
    """The waiting requests of one connection; those after a large request wait until it is answered.

    Args:
        write: Writes answers, in order. Its second argument is the request if only one waited, else b"".
        answered: Called after the answer to a large request, to continue with the requests after it.
    """

    def __init__(
        self,
        session: Session,
        reading: Reading,
        services: Services,
        write: Callable[[bytes, bytes], None],
        answered: Callable[[], None],
    ) -> None:
        self.has_answered = False
        self._session = session
        self._reading = reading
        self._services = services
        self._write = write
        self._answered = answered
        self._frames: deque[bytes] = deque()
        self._has_ended = False

    @property
    def is_empty(self) -> bool:
        return not (self._frames or self._reading.has_large_request)

    def add(self, frames: Iterable[bytes]) -> None:
        """Add frames, which have no length prefix."""
        self._frames.extend(frames)

    def end(self) -> None:
        """Drop all requests, including a queued large one, because the connection closes."""
        self._frames.clear()
        self._has_ended = True

    def answer(self) -> bool:
        """Answer waiting requests up to the first large one, unless the peer does not read; return whether any waited.

        Raises:
            RemotingError: A frame breaks the protocol. The frames before it are answered, those after it are dropped.
        """
        answers: list[bytes] = []
        frame, asked, size = b"", len(self._frames), 0
        self.has_answered |= bool(asked)
        try:
            while self._frames and self._reading.may_answer:
                frame = self._frames.popleft()
                if len(frame) > LARGE_BYTES:
                    large = self._session.large_request(frame)
                    if large is not None:
                        self._reading.pause(Pause.LARGE_REQUEST)
                        self._services.large_requests.add(len(frame), partial(self._answer_large, large), large.body)
                elif (answer := self._session.answer(frame)) is not None:
                    answers.append(answer)
                    size += len(answer)
                    if size >= _GATHERED_BYTES and self._frames:
                        self._write(b"".join(answers), b"")
                        answers, size = [], 0
        except RemotingError:
            self._frames.clear()
            raise
        finally:
            if answers:
                is_lone = len(answers) == asked == 1
                self._write(answers[0] if is_lone else b"".join(answers), frame if is_lone else b"")
        return bool(asked)

    def _answer_large(self, large: LargeRequest, decoded: DecodedBody | None) -> None:
        try:
            answer = None if self._has_ended else self._session.answer_large(large, decoded)
            if answer is not None:
                self._write(answer, b"")
        finally:
            self._reading.large_request_answered()
        self.has_answered = True
        self._answered()
