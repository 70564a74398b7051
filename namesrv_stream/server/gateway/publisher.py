"""Sends records to Kafka in order, outside the event loop.

One thread calls ``KafkaProducer.send`` (which may block), and kafka-python's own thread reports outcomes. Both reach
the event loop only by ``call_soon_threadsafe``. The first record that fails ends a *session*: no record queued after
it is sent, the producer is discarded, and the owner is notified once. When the session's last thread has ended, none of
its records can reach the log any more. Then the owner begins a new session, in which it first publishes again what
was lost.
"""

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from kafka import KafkaProducer

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.server.gateway.records import Acked, OutRecord

logger = logging.getLogger(__name__)

#: Time for kafka-python's thread to end; it may be waiting for the answer to a request.
_CLOSE_TIMEOUT_S: Final = 30.0


class _Producer(KafkaProducer):  # type: ignore[misc]  # untyped
    """A producer that can end immediately. kafka-python's ``close`` waits, and fails if Kafka is unavailable."""

    _is_discarded = False

    def discard(self) -> None:
        """Send nothing more, even if records are queued. Any thread may call it, kafka-python's own too."""
        self._is_discarded = True
        self._sender.force_close()

    def flush(self, timeout: float | None = None) -> None:
        if not self._is_discarded:
            super().flush(timeout)


class PublisherOwner(Protocol):
    """The interface of the object that is notified about sessions and about the outcome of records."""

    partition: int

    def opened(self) -> None: ...

    def acked(self, records: list[Acked]) -> None: ...

    def failed(self, reason: str, lost: list[OutRecord]) -> None:
        """Handle the failure of a session; the log may lack the records in ``lost``."""


#: Checks on the session's thread that the server may write to a partition, and returns the offset of its next record.
#: It raises if the server must not write.
CheckLog = Callable[[int], int]


class KafkaPublisher:
    """Sends the records of one partition, in one session at a time; the owner's methods are called on ``loop``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: dict[str, Any],
        topic: str,
        check_log: CheckLog,
        owner: PublisherOwner,
    ) -> None:
        self.loop = loop
        self.config = config
        self.topic = topic
        self.check_log = check_log
        self.owner = owner
        self.newest_offset = -1
        self._session: _Session | None = None
        self._ending: set[_Session] = set()

    def begin(self) -> None:
        """Begin a session; requires ``can_begin``. The caller must not publish before the session is opened."""
        self._session = _Session(self)

    def publish(self, record: OutRecord) -> None:
        """Queue a record without blocking. Without a session the record is dropped; the owner knows that it ended."""
        if self._session is not None:
            self._session.put(record)

    @property
    def can_begin(self) -> bool:
        """Whether no session is open, and no record of an earlier session can still reach the log."""
        return self._session is None and not self._ending

    @property
    def queued_records(self) -> int:
        """Number of records that Kafka has not acknowledged."""
        return len(self._session.unacked) if self._session else 0

    @property
    def queued_bytes(self) -> int:
        return self._session.unacked_bytes if self._session else 0

    @property
    def oldest_ms(self) -> int | None:
        """Monotonic time at which the oldest unacknowledged record was published; None if there is none."""
        return self._session.oldest_ms if self._session else None

    async def close(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s`` until all records are acknowledged. Return whether they are."""
        session = self._session
        if session is None:
            return False
        drained = await session.drain(timeout_s)
        if session is self._session:
            self._session = None
            session.abandon()
        return drained

    # ---- called by the sessions, on the event loop ----

    def opened(self, session: "_Session") -> None:
        if session is self._session:
            self.owner.opened()

    def ended(self, session: "_Session", reason: str) -> None:
        if session is not self._session:
            return
        self._session = None
        self._ending.add(session)
        self.owner.failed(reason, session.abandon())

    def gone(self, session: "_Session") -> None:
        self._ending.discard(session)


class _Session:
    """The lifetime of one producer. Methods run on the event loop, except ``_run`` and ``_check_log`` (on the session's
    thread), and those that name another thread."""

    def __init__(self, publisher: KafkaPublisher) -> None:
        self._publisher = publisher
        self._loop = publisher.loop
        self._queue: queue.SimpleQueue[OutRecord | None] = queue.SimpleQueue()
        self.unacked: dict[int, OutRecord] = {}
        self._arrived: deque[tuple[OutRecord, int]] = deque()
        self._wake_lock = threading.Lock()
        self._is_waking = False
        self._failed = threading.Event()
        self._producer: _Producer | None = None
        self._drained: asyncio.Future[bool] | None = None
        self.unacked_bytes = 0
        threading.Thread(target=self._run, name="kafka-publisher", daemon=True).start()

    @property
    def oldest_ms(self) -> int | None:
        return next(iter(self.unacked.values())).at_ms if self.unacked else None

    def put(self, record: OutRecord) -> None:
        self.unacked[id(record)] = record
        self.unacked_bytes += len(record.value)
        self._queue.put(record)

    async def drain(self, timeout_s: float) -> bool:
        if not self.unacked:
            return True
        self._drained = self._loop.create_future()
        try:
            return await asyncio.wait_for(self._drained, timeout_s)
        except TimeoutError:
            return False

    def abandon(self) -> list[OutRecord]:
        """Stop sending. Return the unacknowledged records in order."""
        self._failed.set()
        if self.unacked and self._producer is not None:
            self._producer.discard()
        self._queue.put(None)
        lost = list(self.unacked.values())
        self.unacked.clear()
        self.unacked_bytes = 0
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(False)
        return lost

    def _run(self) -> None:
        publisher = self._publisher
        try:
            self._check_log()
            producer = self._producer = _Producer(**publisher.config)
        except Exception as error:  # not only KafkaError: a dead thread would leave the session open forever
            self._not_sent(error)
            self._call(publisher.gone, self)
            return
        self._call(publisher.opened, self)
        try:
            while (record := self._queue.get()) is not None and not self._failed.is_set():
                future = producer.send(publisher.topic, value=record.value, key=record.key, partition=record.partition)
                future.add_callback(self._sent, record)
                future.add_errback(self._not_sent)
        except Exception as error:
            self._not_sent(error)
        try:
            producer.close(timeout=_CLOSE_TIMEOUT_S)
        except Exception:
            logger.exception("Kafka producer shutdown failed")
        self._call(publisher.gone, self)

    def _check_log(self) -> None:
        """Check that Kafka has the log of the tables, and log an error if it has lost records that this server wrote.

        Raises:
            NamesrvStreamError: The partition belongs to a different log, or Kafka does not answer.
        """
        publisher, partition = self._publisher, self._publisher.owner.partition
        end = publisher.check_log(partition)
        if end <= publisher.newest_offset:
            text = "Kafka has lost acknowledged records, and any operators' changes in them partition=%d from=%d to=%d"
            logger.error(text, partition, end, publisher.newest_offset)
            publisher.newest_offset = end - 1

    def _sent(self, record: OutRecord, metadata: Any) -> None:
        """Handle an acknowledgement, on kafka-python's thread."""
        publisher = self._publisher
        least = max(publisher.newest_offset + 1, record.covered)
        if metadata.offset < least:
            self._fail(f"Kafka has lost records: a record got offset {metadata.offset}, not {least} or a higher one")
            return
        publisher.newest_offset = metadata.offset
        self._arrived.append((record, metadata.offset))
        with self._wake_lock:
            if self._is_waking:
                return
            self._is_waking = True
        self._call(self.take_arrived)

    def take_arrived(self) -> None:
        with self._wake_lock:
            self._is_waking = False
        acked: list[Acked] = []
        while self._arrived:
            record, offset = self._arrived.popleft()
            if self.unacked.pop(id(record), None) is not None:
                self.unacked_bytes -= len(record.value)
                acked.append(Acked(record, offset))
        if acked:
            self._publisher.owner.acked(acked)
        if not self.unacked and self._drained is not None and not self._drained.done():
            self._drained.set_result(True)

    def _not_sent(self, error: BaseException) -> None:
        """Handle a failure of the session or of a record, on the session's or kafka-python's thread."""
        self._fail(str(error) if isinstance(error, NamesrvStreamError) else f"{type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        """End the session, on any thread: records after the lost one, above all ticks, must not reach the log."""
        if not self._failed.is_set():
            self._failed.set()
            if self._producer is not None:
                self._producer.discard()
            self._queue.put(None)
            self._call(self._ended, reason)

    def _ended(self, reason: str) -> None:
        self.take_arrived()
        self._publisher.ended(self, reason)

    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed, so the outcome no longer matters
            logger.debug("publisher outcome dropped, event loop ended")
