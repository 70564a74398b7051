"""When which broker process was heard by whom, from rows of ``broker_events``; read without Spark."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.event_json import KIND_OF, decode_record
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered
from namesrv_stream.route.heartbeat_json import HEARTBEATS_KIND
from namesrv_stream.streaming.history.event_clocks import EventClocks
from namesrv_stream.tables.delta.file_ranges import FileRanges

_REGISTERED: Final = KIND_OF[BrokerRegistered]
_COLUMNS: Final = ("partition", "offset", "kind", "value")
_SCHEMA: Final = {
    "partition": pl.Int32,
    "offset": pl.Int64,
    "item": pl.Int64,
    "at_ms": pl.Int64,
    "cluster": pl.String,
    "broker_name": pl.String,
    "broker_addr": pl.String,
    "server_id": pl.String,
}
#: Values of which brokers are remembered: one that stays up is told of by the same text, minute after minute.
_REMEMBERED: Final = 4_096
#: Rows read at a time: a registration of many topics is a value of hundreds of kilobytes.
_ROWS: Final = 64


_NOTHING: Final = pl.DataFrame(schema=_SCHEMA)


class _Heard(NamedTuple):
    """A hearing that a record tells of."""

    item: int
    cluster: str
    broker_name: str
    broker_addr: str
    server_id: str


def heard(events: FileRanges, begin: Mapping[int, int], end: Mapping[int, int], clocks: EventClocks) -> pl.DataFrame:
    """Each hearing of a broker process: heartbeats that the fold would take, and registrations; blocks.

    Args:
        events: Files of ``broker_events``.
        begin: partition → first offset.
        end: The same partitions → the offset after the last.
        clocks: Of the same range, or of one that begins there and ends later.

    Returns:
        partition, offset, item (its place in the record), at_ms, cluster, broker_name, broker_addr, server_id; in no
        order.
    """
    return heard_in(events.batches(begin, end, _COLUMNS, _ROWS), clocks)


def heard_in(events: Iterable[pa.RecordBatch], clocks: EventClocks) -> pl.DataFrame:
    """The same of events, columns partition, offset, kind and value."""
    told: dict[int, list[tuple[int, tuple[_Heard, ...]]]] = {}
    for batch in events:
        for partition, offset, kind, value in zip(*batch.select(_COLUMNS).to_pydict().values(), strict=True):
            # The columns say who was heard by a registration, but only the value whether the fold takes it.
            if kind in (_REGISTERED, HEARTBEATS_KIND):
                hearings = _told_by(value) if kind == _REGISTERED else _told_by_heartbeats(value)
                told.setdefault(partition, []).append((offset, hearings))
    parts = [_frame(partition, of_records, clocks) for partition, of_records in told.items()]
    return pl.concat([_NOTHING, *parts])


def _frame(partition: int, told: list[tuple[int, tuple[_Heard, ...]]], clocks: EventClocks) -> pl.DataFrame:
    offsets = np.fromiter((offset for offset, _ in told), np.int64, len(told))
    at_ms = clocks.clocks[partition][np.searchsorted(clocks.offsets[partition], offsets)]
    times = np.fromiter((len(hearings) for _, hearings in told), np.int64, len(told))
    found = [hearing for _, hearings in told for hearing in hearings]
    if not found:
        return _NOTHING
    columns = {
        "partition": np.full(len(found), partition, np.int32),
        "offset": np.repeat(offsets, times),
        "at_ms": np.repeat(at_ms, times),
        **dict(zip(_Heard._fields, zip(*found, strict=True), strict=True)),
    }
    return pl.DataFrame(columns, schema_overrides=_SCHEMA).select(list(_SCHEMA))


@lru_cache(maxsize=_REMEMBERED)
def _told_by_heartbeats(value: str) -> tuple[_Heard, ...]:
    return _told_by(value)


def _told_by(value: str) -> tuple[_Heard, ...]:
    try:
        return tuple(_hearings(decode_record(value.encode())))
    except EventDecodeError:  # a dead letter
        return ()


def _hearings(events: Iterable[object]) -> Iterable[_Heard]:
    for item, event in enumerate(events):
        match event:
            case BrokerHeartbeat(origin=origin, broker_name=name, live_key=key):
                yield _Heard(item, key.cluster, name, key.broker_addr, origin.server_id)
            case BrokerRegistered(origin=origin, registration=r):
                yield _Heard(item, r.cluster, r.broker_name, r.broker_addr, origin.server_id)
