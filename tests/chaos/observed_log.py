"""Computes observed time from the raw log independently of the fold; the verdict uses it as its clock.

With each record of a server, its clock advances by the time since the previous one, at most by a gap. A broker's age at
a server is the time on that clock since the server last logged a heartbeat of the broker.
"""

import bisect
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from namesrv_stream.route.fold.step import Record
from tests.chaos.truth import BrokerKey

DIRECT: Final = "direct"
_JOB: Final = "job"


class ServerTime:
    """One server's clock in one partition, after each of its records."""

    def __init__(self, max_gap_ms: int) -> None:
        self._max_gap_ms = max_gap_ms
        self._offsets: list[int] = []
        self._at_ms: list[int] = []
        self._clock_ms: list[int] = []

    def move(self, offset: int, at_ms: int, *, was_away: bool = False) -> int:
        """Add its next record; returns its clock after it.

        Args:
            offset: Offset of the record.
            at_ms: Its LogAppendTime.
            was_away: Whether the record says that the server received nothing since the previous one.
        """
        gap_ms = max(0, min(at_ms - self._at_ms[-1], self._max_gap_ms)) if self._at_ms and not was_away else 0
        clock_ms = (self._clock_ms[-1] if self._clock_ms else 0) + gap_ms
        self._offsets.append(offset)
        self._at_ms.append(at_ms)
        self._clock_ms.append(clock_ms)
        return clock_ms

    def at_offset(self, offset: int) -> int:
        """Return its clock after the record at ``offset``."""
        index = bisect.bisect_right(self._offsets, offset)
        return self._clock_ms[index - 1] if index else 0

    def at_time(self, at_ms: int) -> int:
        """Return its clock at an instant of the log's time; it is interpolated between two records."""
        index = bisect.bisect_right(self._at_ms, at_ms)
        if not index:
            return 0
        under_way_ms = self._clock_ms[index - 1] + min(at_ms - self._at_ms[index - 1], self._max_gap_ms)
        return min(under_way_ms, self._clock_ms[index]) if index < len(self._clock_ms) else under_way_ms


class ObservedLog:
    """The clocks of all servers, and when they logged events of each broker.

    Args:
        records: Records of the whole topic, in order of offset within each partition.
        max_gap_ms: ``liveness.max_gap_ms`` of the run.
    """

    def __init__(self, records: Iterable[Record], max_gap_ms: int) -> None:
        self._times: dict[tuple[int, str], ServerTime] = defaultdict(lambda: ServerTime(max_gap_ms))
        # (broker, server) → (offset, the server's clock) of each record with an event of the broker.
        self._heard: dict[tuple[BrokerKey, str], list[tuple[int, int]]] = defaultdict(list)
        self._partition: dict[BrokerKey, int] = {}
        # partition → highest LogAppendTime up to each offset.
        self._at_ms: dict[int, list[int]] = defaultdict(list)
        for record in records:
            stamps = self._at_ms[record.partition]
            stamps.append(max(record.at_ms, stamps[-1] if stamps else 0))
            self._take(record)

    def partition(self, key: BrokerKey) -> int | None:
        """Return the partition with events of the broker; None if there are none."""
        return self._partition.get(key)

    def time_of(self, partition: int, server: str) -> ServerTime:
        return self._times[partition, server]

    def servers_of(self, key: BrokerKey) -> list[str]:
        """Return all servers that logged events of a broker."""
        return sorted(server for broker, server in self._heard if broker == key)

    def heard_ms(self, key: BrokerKey, server: str, before_offset: int) -> int | None:
        """Return the server's clock at its last event of the broker before an offset; None if there is none."""
        return _before(self._heard.get((key, server), []), before_offset)

    def offset_at(self, partition: int, at_ms: int) -> int:
        """Return the first offset of the partition with a later timestamp than an instant."""
        return bisect.bisect_right(self._at_ms[partition], at_ms)

    def _take(self, record: Record) -> None:
        fields = _fields(record.value)
        if fields is None:
            return
        server, kind = fields.get("server_id", DIRECT), fields["kind"]
        # At events of direct publishers, the clock is between two ticks of the job.
        clock_ms = self._times[record.partition, DIRECT].at_time(record.at_ms)
        if server == _JOB:
            self._times[record.partition, DIRECT].move(record.offset, record.at_ms)
        elif server != DIRECT:
            was_away = kind in ("server_started", "server_resumed")
            clock_ms = self._times[record.partition, server].move(record.offset, record.at_ms, was_away=was_away)
        for key in _brokers(fields):
            self._partition[key] = record.partition
            self._heard[key, server].append((record.offset, clock_ms))


def _before(times: list[tuple[int, int]], offset: int) -> int | None:
    index = bisect.bisect_left(times, (offset, 0))
    return times[index - 1][1] if index else None


def _fields(value: bytes) -> dict[str, Any] | None:
    """Return the fields of a record of the product; None for others."""
    try:
        fields = json.loads(value)
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.get("schema_version") != 1 or not isinstance(fields.get("kind"), str):
        return None
    return fields


def _brokers(fields: dict[str, Any]) -> Iterator[BrokerKey]:
    """Return the brokers of which a record is a sign of life."""
    items = fields.get("items", []) if fields["kind"] == "broker_heartbeats" else [fields]
    if fields["kind"] not in ("broker_heartbeats", "broker_registered"):
        return
    for item in items:
        if isinstance(item, dict) and {"broker_name", "cluster", "broker_addr"} <= item.keys():
            yield BrokerKey(item["broker_name"], item["cluster"], item["broker_addr"])
