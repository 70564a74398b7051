"""Schedules large requests, so that the requests of other peers wait for at most one of them.

When hundreds of brokers register at once, hundreds of megabytes are ready to be read. An event loop that finds all
their sockets readable would read and answer everything before any other request. One rule prevents that: every
iteration of the event loop answers one large request, and reads up to 2 MiB of large requests. Further connections are
not read until it is their turn, in the order of arrival.
"""

import asyncio
import logging
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from sys import intern
from typing import Final, Protocol

from namesrv_stream.errors import BodyDecodeError
from namesrv_stream.logs import safe
from namesrv_stream.processes import signal_with_parent
from namesrv_stream.processor.name_server import DecodedBody
from namesrv_stream.processor.register_body import RegisterBrokerBody, RegistrationBody, decode_register_body
from namesrv_stream.route.model import shared_queue_data

logger = logging.getLogger(__name__)


class RegistrationDecoder:
    """Decodes large registrations in another process, so that the event loop can answer other requests meanwhile.

    The process starts when the first large body arrives. A body of 70,000 topics takes 140 ms to decode, and 6 ms to
    transfer. A thread would not help: the decoder holds the interpreter lock. Used by one event loop.
    """

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def decode(self, body: RegistrationBody) -> DecodedBody | None:
        """Decode a body in the other process; None if that process fails, so that the caller must decode it."""
        try:
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(1, context, initializer=_end_with_parent)
            pool = self._pool
            decoded = await asyncio.get_running_loop().run_in_executor(pool, _decode, body)
        except Exception as error:  # the process was killed, or cannot start
            logger.warning("registration decoder failed, decoding in the server: %s", safe(repr(error)))
            self.stop()
            return None
        return decoded if isinstance(decoded, BodyDecodeError) else _shared(decoded)

    def stop(self) -> None:
        """Stop the process after its current body."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _end_with_parent() -> None:
    """Ignore Ctrl-C, which the server handles, and exit when the server is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal_with_parent(signal.SIGKILL)


def _decode(body: RegistrationBody) -> DecodedBody:
    try:
        return decode_register_body(*body)
    except BodyDecodeError as error:
        return error


def _shared(body: RegisterBrokerBody) -> RegisterBrokerBody:
    """Return a body with its names and queues, which are copies after unpickling, replaced by objects of this process.

    The route table compares queues by identity, and the copies would take three times the memory.
    """
    # Topics that shared one object in the other process also share one after unpickling.
    shared = {key: shared_queue_data(*q) for key, q in {id(q): q for q in body.topics.values()}.items()}
    queues = [shared[key] for key in map(id, body.topics.values())]
    return replace(body, topics=dict(zip(map(intern, body.topics), queues, strict=True)))


#: Longer requests are large. The longest query has several hundred bytes; 2,000 deflated topics take 20 kB.
LARGE_BYTES: Final = 16 * 1024
#: Maximum number of bytes that are read in one iteration: some milliseconds of copying.
_TURN_BYTES: Final = 2 << 20
#: No large request is read while this many bytes wait for answers: the registrations of 280 brokers with 2,000 topics.
_QUEUE_BYTES: Final = 128 << 20
#: Connections whose reading resumes in one iteration: a transport delivers up to 256 kB of each. The number doubles
#: while little arrives, so that a slow sender does not delay others.
_MIN_RESUMED: Final = 8
_MAX_RESUMED: Final = 1_024


class Reader(Protocol):
    def hold_reading(self, *, is_held: bool) -> None:
        """Stop reading a connection, or resume it."""


#: Answers a request. The argument is the decoded body of a registration if another process decoded it.
AnswerRequest = Callable[[DecodedBody | None], None]


class LargeRequests:
    """The large requests of all connections. Used by one event loop."""

    def __init__(
        self, turn_bytes: int = _TURN_BYTES, queue_bytes: int = _QUEUE_BYTES, min_resumed: int = _MIN_RESUMED
    ) -> None:
        self._turn_bytes = turn_bytes
        self._queue_bytes = queue_bytes
        self._decoder = RegistrationDecoder()
        self._decoding: set[asyncio.Task[None]] = set()
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()
        self._queued = 0  # bytes, including requests that are being decoded
        self._reading: dict[Reader, None] = {}  # have sent a part of a large request, and are read
        self._held: dict[Reader, None] = {}  # have sent a part of a large request, and are not read
        self._read = 0  # bytes in this iteration
        self._min_resumed = self._resumed = min_resumed
        self._has_turn = False

    def stop(self) -> None:
        """Stop the decoding process; no request may be added afterwards."""
        self._decoder.stop()

    def add(self, size: int, answer: AnswerRequest, body: RegistrationBody | None) -> None:
        """Queue a request of ``size`` bytes to be answered in turn; another process first decodes ``body``, if any."""
        self._queued += size
        if body is not None:
            task = asyncio.get_running_loop().create_task(self._decode(size, answer, body))
            self._decoding.add(task)
            task.add_done_callback(self._decoding.discard)
        else:
            self._append(size, answer, None)

    async def _decode(self, size: int, answer: AnswerRequest, body: RegistrationBody) -> None:
        self._append(size, answer, await self._decoder.decode(body))

    def _append(self, size: int, answer: AnswerRequest, decoded: DecodedBody | None) -> None:
        self._queue.append((size, partial(answer, decoded)))
        self._call_soon()

    def read(self, reader: Reader, size: int, *, is_partial: bool) -> None:
        """Count ``size`` bytes of a large request, which is complete unless ``is_partial``; may pause readers."""
        self._read += size
        if is_partial:
            self._reading[reader] = None
        else:
            self._reading.pop(reader, None)
        if self._read >= self._turn_bytes or self._queued >= self._queue_bytes:
            for one in self._reading:
                one.hold_reading(is_held=True)
            self._held |= self._reading
            self._reading.clear()
        self._call_soon()

    def forget(self, reader: Reader) -> None:
        self._reading.pop(reader, None)
        self._held.pop(reader, None)

    def _call_soon(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._has_turn = False
        if self._queue or self._read or (self._held and self._queued < self._queue_bytes):
            self._call_soon()  # otherwise the next decoded request calls it
        try:
            if self._queue:
                size, answer = self._queue.popleft()
                self._queued -= size
                answer()
        finally:
            self._read_on()

    def _read_on(self) -> None:
        is_calm = self._read < self._turn_bytes // 2
        self._resumed = min(2 * self._resumed, _MAX_RESUMED) if is_calm else self._min_resumed
        self._read = 0
        if self._queued >= self._queue_bytes:
            return
        for one in list(islice(self._held, self._resumed)):
            del self._held[one]
            self._reading[one] = None
            one.hold_reading(is_held=False)
