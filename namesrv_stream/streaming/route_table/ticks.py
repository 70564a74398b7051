"""The job's own ticks. Only brokers of direct publishers age by them.

Each record causes a micro-batch. Therefore a partition gets a tick only if it has recently had a broker of a direct
publisher, or if no record of it was folded recently (ADR 0042). This does not change the outcome of the fold. The
time between two ticks adds at most ``max_gap_ms`` to a broker's age, and only as far as it is after the broker's last
heartbeat.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from kafka import KafkaProducer
from kafka.errors import KafkaError

from namesrv_stream.clock import SystemClock, until_multiple_ms
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import JOB, Origin, Tick
from namesrv_stream.settings import Settings

logger = logging.getLogger(__name__)

#: A partition without folded records for this number of intervals gets a tick in any case.
_QUIET_INTERVALS: Final = 2


class Ticker:
    """A daemon thread that sends a tick every ``liveness.tick_interval_ms`` to each partition that needs one.

    Args:
        producer: The producer, which dead letters use as well.
        server_epoch: Epoch of this start of the job.
        on_error: Called with an unexpected error, which ends the thread.
    """

    def __init__(
        self, settings: Settings, producer: KafkaProducer, server_epoch: int, on_error: Callable[[Exception], None]
    ) -> None:
        self._on_error = on_error
        self._topic = settings.kafka.broker_events_topic
        liveness = settings.liveness
        self._interval_ms = liveness.tick_interval_ms
        # Ticks continue for the longest timeout after the last direct broker ended, because what-if may need this time.
        self._needs = TickNeeds(settings.kafka.partitions, self._interval_ms, liveness.max_timeout_ms)
        self._producer = producer
        self._value = encode_event(Tick(Origin(JOB, server_epoch)))
        self._is_failing = False

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="job-ticks", daemon=True).start()

    def folded(self, has_direct: Mapping[int, bool]) -> None:
        """Record a committed batch.

        Args:
            has_direct: Partition → ``FoldState.has_direct`` after the batch, for the partitions with records.
        """
        for partition, has_direct_brokers in has_direct.items():
            self._needs.folded(partition, has_direct_brokers, time.monotonic())

    def _run(self) -> None:
        try:
            self._send_ticks()
        except Exception as error:
            self._on_error(error)

    def _send_ticks(self) -> None:
        clock = SystemClock()
        while True:
            time.sleep(until_multiple_ms(clock, self._interval_ms) / 1000)
            try:
                for partition in self._needs.at(time.monotonic()):
                    self._producer.send(self._topic, value=self._value, partition=partition)
            except KafkaError as error:
                # Without ticks, no broker ages, which is correct while Kafka is unreachable.
                if not self._is_failing:
                    logger.warning("sending ticks failed reason=%s", error)
                self._is_failing = True
            else:
                self._is_failing = False


class TickNeeds:
    """Decides which partitions need the job's ticks, according to the folded records. At first, all need them.

    Args:
        interval_ms: Interval of ticks, milliseconds.
        linger_ms: How long a partition gets ticks after it last had a broker of a direct publisher, milliseconds.
    """

    def __init__(self, partitions: int, interval_ms: int, linger_ms: int) -> None:
        self._partitions = range(partitions)
        self._quiet_s = _QUIET_INTERVALS * interval_ms / 1000
        self._linger_s = linger_ms / 1000
        self._folded_s: dict[int, float] = {}
        self._direct_s: dict[int, float] = {}

    def folded(self, partition: int, has_direct: bool, now_s: float) -> None:
        """Record that records of a partition were folded.

        Args:
            partition: Partition of the events topic.
            has_direct: ``FoldState.has_direct`` after these records.
            now_s: Monotonic time, seconds.
        """
        self._folded_s[partition] = now_s
        if has_direct:
            self._direct_s[partition] = now_s

    def at(self, now_s: float) -> list[int]:
        """Return the partitions that need a tick."""
        return [p for p in self._partitions if self._is_quiet(p, now_s) or self._has_direct(p, now_s)]

    def _is_quiet(self, partition: int, now_s: float) -> bool:
        folded_s = self._folded_s.get(partition)
        return folded_s is None or now_s - folded_s >= self._quiet_s

    def _has_direct(self, partition: int, now_s: float) -> bool:
        direct_s = self._direct_s.get(partition)
        return direct_s is not None and now_s - direct_s <= self._linger_s
