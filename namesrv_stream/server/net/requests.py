"""The requests of one connection: answered in the order in which they came, the large ones in their turn."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from namesrv_stream.processor.name_server import DecodedBody
from namesrv_stream.server.net.large_requests import LARGE_BYTES, LargeRequests
from namesrv_stream.server.net.reading import Pause, Reading
from namesrv_stream.server.net.session import LargeRequest, Session

#: Answers are gathered up to so many bytes before they are written.
_GATHERED_BYTES: Final = 64 * 1024


class Requests:
    """What a peer asks behind a large request waits until that is answered.

    Attributes:
        has_answered: Whether any was answered, since this was reset.

    Args:
        session: Answers each request.
        reading: Of the connection.
        large_requests: Orders those of all connections.
        write: Takes answers in order, and the request where it was the only one that waited, else b"".
        answered: Called when a large request was answered, so that what waits behind it can be.
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
        """Whether none waits."""
        return not (self._frames or self._reading.has_large_request)

    def add(self, frames: Iterable[bytes]) -> None:
        """Frames without their length prefix."""
        self._frames.extend(frames)

    def drop(self) -> None:
        """Nothing of the rest is answered."""
        self._frames.clear()

    def end(self) -> None:
        """The connection closes: who has gone is not answered, and nothing that it said is done."""
        self._frames.clear()
        self._has_ended = True

    def answer(self) -> bool:
        """Answer what waits, as far as the peer reads its answers, up to the first large request.

        Returns:
            Whether there was any.

        Raises:
            RemotingError: A frame breaks the protocol; those before it are answered, and those behind it are not.
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
