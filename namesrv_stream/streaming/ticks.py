"""The job's own ticks: brokers of direct publishers age by them, and only those.

Each record makes a micro-batch, so a partition is spared them while nobody there needs them: no broker of a direct
publisher has been there lately, and the servers' records keep the fold going (ADR 0042). What the fold makes of a tick
does not depend on it: a gap between two of them counts for ``max_gap_ms`` at most, and never for a broker's age before
it was heard.
"""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Final

from kafka import KafkaProducer
from kafka.errors import KafkaError

from namesrv_stream.clock import SystemClock, until_multiple_ms
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import JOB, Origin, Tick
from namesrv_stream.settings import Settings

_LOG = logging.getLogger(__name__)

#: A partition of which nothing was folded for so many intervals is ticked in any case.
_QUIET_INTERVALS: Final = 2


class Ticker:
    """A daemon thread that sends a tick each ``liveness.tick_interval_ms`` to each partition that needs one.

    Args:
        settings: Ours.
        producer: Shared with the dead letters.
        server_epoch: Of this start of the job.
    """

    def __init__(self, settings: Settings, producer: KafkaProducer, server_epoch: int) -> None:
        self._topic = settings.kafka.broker_events_topic
        liveness = settings.liveness
        self._interval_ms = liveness.tick_interval_ms
        # For the longest timeout, time goes on for the last direct broker that is gone: what-if asks of that, too.
        self._needs = TickNeeds(settings.kafka.partitions, self._interval_ms, liveness.max_timeout_ms)
        self._producer = producer
        self._value = encode_event(Tick(Origin(JOB, server_epoch)))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="job-ticks", daemon=True)
        self._is_failing = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stop.set()
        self._thread.join()

    def folded(self, has_direct: Mapping[int, bool]) -> None:
        """A batch is committed.

        Args:
            has_direct: partition of which it holds records → as ``FoldState.has_direct`` behind them.
        """
        for partition, has_direct_brokers in has_direct.items():
            self._needs.folded(partition, has_direct_brokers, time.monotonic())

    def _run(self) -> None:
        clock = SystemClock()
        while not self._stop.wait(until_multiple_ms(clock, self._interval_ms) / 1000):
            try:
                for partition in self._needs.at(time.monotonic()):
                    self._producer.send(self._topic, value=self._value, partition=partition)
            except KafkaError as error:
                # Without ticks nobody ages, which is right while nothing can be known.
                if not self._is_failing:
                    _LOG.warning("ticks cannot be sent: %s", error)
                self._is_failing = True
            else:
                self._is_failing = False


class TickNeeds:
    """Which partitions need the job's ticks, by what was folded of them; nothing is known at first, so all do.

    Args:
        partitions: Of the events topic.
        interval_ms: Between two ticks.
        linger_ms: A partition is ticked for so long after the last broker of a direct publisher.
    """

    def __init__(self, partitions: int, interval_ms: int, linger_ms: int) -> None:
        self._partitions = range(partitions)
        self._quiet_s = _QUIET_INTERVALS * interval_ms / 1000
        self._linger_s = linger_ms / 1000
        self._folded_s: dict[int, float] = {}
        self._direct_s: dict[int, float] = {}

    def folded(self, partition: int, has_direct: bool, now_s: float) -> None:
        """Records of the partition are folded.

        Args:
            partition: Of the events topic.
            has_direct: As ``FoldState.has_direct`` behind them.
            now_s: Monotonic seconds.
        """
        self._folded_s[partition] = now_s
        if has_direct:
            self._direct_s[partition] = now_s

    def at(self, now_s: float) -> list[int]:
        """The partitions to which a tick is due."""
        return [p for p in self._partitions if self._is_quiet(p, now_s) or self._has_direct(p, now_s)]

    def _is_quiet(self, partition: int, now_s: float) -> bool:
        folded_s = self._folded_s.get(partition)
        return folded_s is None or now_s - folded_s >= self._quiet_s

    def _has_direct(self, partition: int, now_s: float) -> bool:
        direct_s = self._direct_s.get(partition)
        return direct_s is not None and now_s - direct_s <= self._linger_s
