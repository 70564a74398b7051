"""Records to Kafka, in order, off the event loop.

One thread calls ``KafkaProducer.send`` (which may block) and kafka-python's own thread tells the outcome; both reach
the event loop by ``call_soon_threadsafe`` only. The first record that fails ends a *session*: nothing queued behind it
is sent, the producer is thrown away, and the owner hears of it once. It then begins a new session, in which it first
says again what was lost.
"""

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kafka import KafkaProducer
from kafka.errors import KafkaError

from namesrv_stream.route.events import BrokerEvent
from namesrv_stream.route.view import Pending

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S: Final = 1.0


class OutRecord(NamedTuple):
    """One record on its way.

    Attributes:
        events: What it says of brokers; empty for ticks and the like.
        pendings: The view's tickets that are settled once it is in the log.
    """

    partition: int
    key: bytes | None
    value: bytes
    events: Sequence[BrokerEvent] = ()
    pendings: Sequence[Pending] = ()


class Acked(NamedTuple):
    """A record that is in the log at ``offset``."""

    record: OutRecord
    offset: int


class KafkaPublisher:
    """Sends records of one topic; at most one session at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: dict[str, Any],
        topic: str,
        on_acked: Callable[[list[Acked]], None],
        on_failed: Callable[[str, list[OutRecord]], None],
    ) -> None:
        """Both callbacks run on ``loop``: acknowledged records in order; why a session ended, and what it lost."""
        self._loop = loop
        self._config = config
        self._topic = topic
        self._on_acked = on_acked
        self._on_failed = on_failed
        self._session: _Session | None = None

    def begin(self) -> None:
        """Begin a session; may be called when none is open."""
        self._session = _Session(self._loop, self._config, self._topic, self._on_acked, self._end)

    def publish(self, record: OutRecord) -> None:
        """Queue a record; never blocks. Without a session the record is lost, which the caller knows."""
        if self._session is not None:
            self._session.put(record)

    @property
    def is_open(self) -> bool:
        return self._session is not None

    @property
    def queued_records(self) -> int:
        """Records not acknowledged yet."""
        return self._session.unacked_count if self._session else 0

    @property
    def queued_bytes(self) -> int:
        return self._session.unacked_bytes if self._session else 0

    def abort(self, reason: str) -> None:
        """End the session as if a record had failed."""
        if self._session is not None:
            self._end(self._session, reason)

    async def close(self, timeout_s: float) -> bool:
        """Wait until all is acknowledged, at most ``timeout_s``; True if it is."""
        session = self._session
        if session is None:
            return False
        drained = await session.drain(timeout_s)
        self._session = None
        session.abandon()
        return drained

    def _end(self, session: "_Session", reason: str) -> None:
        if session is not self._session:
            return
        self._session = None
        lost = session.abandon()
        self._on_failed(reason, lost)


class _Session:
    """One producer's life. All methods but ``_run`` and the callbacks' first half run on the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: dict[str, Any],
        topic: str,
        on_acked: Callable[[list[Acked]], None],
        on_end: Callable[["_Session", str], None],
    ) -> None:
        self._loop = loop
        self._config = config
        self._topic = topic
        self._on_acked = on_acked
        self._on_end = on_end
        self._queue: queue.SimpleQueue[OutRecord | None] = queue.SimpleQueue()
        self._unacked: dict[int, OutRecord] = {}
        self._arrived: deque[tuple[OutRecord, int]] = deque()
        self._wake_lock = threading.Lock()
        self._is_waking = False
        self._failed = threading.Event()
        self._drained: asyncio.Future[None] | None = None
        self.unacked_bytes = 0
        threading.Thread(target=self._run, name="kafka-publisher", daemon=True).start()

    @property
    def unacked_count(self) -> int:
        return len(self._unacked)

    def put(self, record: OutRecord) -> None:
        self._unacked[id(record)] = record
        self.unacked_bytes += len(record.value)
        self._queue.put(record)

    async def drain(self, timeout_s: float) -> bool:
        if not self._unacked:
            return True
        self._drained = self._loop.create_future()
        try:
            await asyncio.wait_for(self._drained, timeout_s)
        except TimeoutError:
            return False
        return True

    def abandon(self) -> list[OutRecord]:
        """Stop sending; returns what was not acknowledged, in order."""
        self._failed.set()
        self._queue.put(None)
        lost = list(self._unacked.values())
        self._unacked.clear()
        return lost

    def _run(self) -> None:
        try:
            producer = KafkaProducer(**self._config)
        except (KafkaError, OSError) as error:
            self._fail(f"{type(error).__name__}: {error}")
            return
        try:
            while (record := self._queue.get()) is not None and not self._failed.is_set():
                future = producer.send(self._topic, value=record.value, key=record.key, partition=record.partition)
                future.add_callback(self._sent, record)
                future.add_errback(self._not_sent)
        except (KafkaError, OSError) as error:
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            producer.close(timeout=_CLOSE_TIMEOUT_S)

    def _sent(self, record: OutRecord, metadata: Any) -> None:
        """On kafka-python's thread."""
        self._arrived.append((record, metadata.offset))
        with self._wake_lock:
            if self._is_waking:
                return
            self._is_waking = True
        self._call(self._take_arrived)

    def _take_arrived(self) -> None:
        with self._wake_lock:
            self._is_waking = False
        acked: list[Acked] = []
        while self._arrived:
            record, offset = self._arrived.popleft()
            if self._unacked.pop(id(record), None) is not None:
                self.unacked_bytes -= len(record.value)
                acked.append(Acked(record, offset))
        if acked:
            self._on_acked(acked)
        if not self._unacked and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _not_sent(self, error: BaseException) -> None:
        """On kafka-python's thread."""
        self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        if not self._failed.is_set():
            self._failed.set()
            self._queue.put(None)
            self._call(self._ended, reason)

    def _ended(self, reason: str) -> None:
        self._take_arrived()
        self._on_end(self, reason)

    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: nobody wants to know any more
            logger.debug("publisher outcome after the end of the loop")
