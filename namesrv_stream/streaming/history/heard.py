"""When which broker process was heard by whom, from rows of ``broker_events``; read without Spark."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.event_json import HEARTBEATS_KIND, KIND_OF, decode_record
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered
from namesrv_stream.streaming.history.event_clocks import EventClocks
from namesrv_stream.streaming.history.file_ranges import FileRanges, within
from namesrv_stream.tables import BROKER_EVENTS, HISTORY_SCHEMAS

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


class _Heard(NamedTuple):
    """A hearing that a record tells of."""

    item: int
    cluster: str
    broker_name: str
    broker_addr: str
    server_id: str


def heard(folder: Path, begin: Mapping[int, int], end: Mapping[int, int], clocks: EventClocks) -> pl.DataFrame:
    """Each hearing of a broker process: heartbeats that the fold would take, and registrations; blocks.

    Args:
        folder: Of ``broker_events``.
        begin: partition → first offset.
        end: The same partitions → the offset after the last.
        clocks: Of the same range, or of one that begins there and ends later.

    Returns:
        partition, offset, item (its place in the record), at_ms, cluster, broker_name, broker_addr, server_id; in no
        order.
    """
    schema = pa.schema([HISTORY_SCHEMAS[BROKER_EVENTS].field(name) for name in _COLUMNS])
    dataset = FileRanges(DeltaTable(folder), folder, schema).dataset(begin, end)
    of_kind = pc.field("kind").isin([_REGISTERED, HEARTBEATS_KIND])
    return heard_in(dataset.to_table(filter=of_kind & within(begin, end)), clocks)


def heard_in(events: pa.Table, clocks: EventClocks) -> pl.DataFrame:
    """The same of events, columns partition, offset, kind and value."""
    parts = [pl.DataFrame(schema=_SCHEMA)]
    for partition in pc.unique(events["partition"]).to_pylist():
        own = events.filter(pc.field("partition") == partition)
        offsets = own["offset"].to_numpy()
        at_ms = clocks.clocks[partition][np.searchsorted(clocks.offsets[partition], offsets)]
        pairs = zip(own["kind"].to_pylist(), own["value"].to_pylist(), strict=True)
        told = [_told_by_heartbeats(value) if kind == HEARTBEATS_KIND else _told_by(value) for kind, value in pairs]
        times = np.fromiter(map(len, told), np.int64, len(told))
        hearings = [hearing for hearings in told for hearing in hearings]
        columns = {
            "partition": np.full(len(hearings), partition, np.int32),
            "offset": np.repeat(offsets, times),
            "at_ms": np.repeat(at_ms, times),
            **dict(zip(_Heard._fields, zip(*hearings, strict=True), strict=True) if hearings else ()),
        }
        if hearings:
            parts.append(pl.DataFrame(columns, schema_overrides=_SCHEMA).select(list(_SCHEMA)))
    return pl.concat(parts)


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
