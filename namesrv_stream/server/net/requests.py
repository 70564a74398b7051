"""Answers the requests of one connection in the order of arrival; large ones wait for their turn."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from namesrv_stream.processor.name_server import DecodedBody
from namesrv_stream.server.net.large_requests import LARGE_BYTES, LargeRequests
from namesrv_stream.server.net.reading import Pause, Reading
from namesrv_stream.server.net.session import LargeRequest, Session

#: Answers are collected up to this size before they are written.
_GATHERED_BYTES: Final = 64 * 1024


class Requests:
    """The waiting requests of one connection; those after a large request wait until it is answered.

    Attributes:
        has_answered: Whether any request was answered since this was reset.

    Args:
        session: Answers a single request.
        reading: Reading of the connection.
        large_requests: Schedules the large requests of all connections.
        write: Function for answers, in order. Its second argument is the request if only one waited, else b"".
        answered: Function called after the answer to a large request, to continue with the requests after it.
    """

    def __init__(
        self,
        session: Session,
        reading: Reading,
        large_requests: LargeRequests,
        write: Callable[[bytes, bytes], None],
        answered: Callable[[], None],
    ) -> None:
        self.has_answered = False
        self._session = session
        self._reading = reading
        self._large_requests = large_requests
        self._write = write
        self._answered = answered
        self._frames: deque[bytes] = deque()
        self._has_ended = False

    @property
    def is_empty(self) -> bool:
        """Whether no request waits."""
        return not (self._frames or self._reading.has_large_request)

    def add(self, frames: Iterable[bytes]) -> None:
        """Add frames, which have no length prefix."""
        self._frames.extend(frames)

    def drop(self) -> None:
        """Drop all waiting requests."""
        self._frames.clear()

    def end(self) -> None:
        """Drop all requests, including a queued large one, because the connection closes."""
        self._frames.clear()
        self._has_ended = True

    def answer(self) -> bool:
        """Answer waiting requests up to the first large one, as long as the peer reads its answers.

        Returns:
            Whether any request waited.

        Raises:
            RemotingError: A frame breaks the protocol. Those before it are answered; those after it are not.
        """
        answers: list[bytes] = []
        frame, asked, size = b"", len(self._frames), 0
        self.has_answered |= bool(asked)
        try:
            while self._frames and self._reading.may_answer:
                frame = self._frames.popleft()
                if len(frame) > LARGE_BYTES:
                    self._queue(self._session.large_request(frame), len(frame))
                elif (answer := self._session.answer(frame)) is not None:
                    answers.append(answer)
                    size += len(answer)
                    if size >= _GATHERED_BYTES and self._frames:
                        self._write(b"".join(answers), b"")
                        answers, size = [], 0
        finally:
            if answers:
                is_lone = len(answers) == asked == 1
                self._write(answers[0] if is_lone else b"".join(answers), frame if is_lone else b"")
        return bool(asked)

    def _queue(self, large: LargeRequest | None, size: int) -> None:
        if large is not None:
            self._reading.pause(Pause.LARGE_REQUEST)
            self._large_requests.add(size, partial(self._answer_large, large), large.body)

    def _answer_large(self, large: LargeRequest, decoded: DecodedBody | None) -> None:
        try:
            answer = None if self._has_ended else self._session.answer_large(large, decoded)
            if answer is not None:
                self._write(answer, b"")
        finally:
            self._reading.large_request_answered()
        self.has_answered = True
        self._answered()
