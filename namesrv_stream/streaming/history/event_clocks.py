"""The log's clock through a range of events: the highest LogAppendTime so far, as ``at_ms`` of ``route_changes``.

Three narrow columns, read without Spark: what it says of a minute's events takes Spark a second of a processor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.tables.delta.file_ranges import FileRanges, within

MINUTE_MS: Final = 60_000
_COLUMNS: Final = ("partition", "offset", "at")

_Longs = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class EventClocks:
    """The clock at each event of a range.

    Attributes:
        since_ms: partition → the clock before the range, where it is known, epoch milliseconds.
        offsets: partition → offsets of its events, ascending.
        clocks: partition → the clock at each of those.
    """

    since_ms: Mapping[int, int]
    offsets: Mapping[int, _Longs]
    clocks: Mapping[int, _Longs]

    def after(self) -> dict[int, int]:
        """partition → the clock after the range."""
        return {**self.since_ms, **{p: int(clock[-1]) for p, clock in self.clocks.items()}}

    def ended_minutes(self) -> tuple[dict[int, int], dict[int, int]]:
        """Which part of the range is of minutes that have ended by its last event.

        Returns:
            partition → offset of the first event of the minute that runs, for partitions with an ended one; and
            partition → the clock before that event.
        """
        ends: dict[int, int] = {}
        before = dict(self.since_ms)
        for partition, clock in self.clocks.items():
            first = int(np.searchsorted(clock, clock[-1] // MINUTE_MS * MINUTE_MS))
            if first > 0:
                ends[partition] = int(self.offsets[partition][first])
                before[partition] = int(clock[first - 1])
        return ends, before


def read_clocks(
    events: FileRanges, begin: Mapping[int, int], end: Mapping[int, int], since_ms: Mapping[int, int]
) -> EventClocks:
    """Read the clocks of events in ``broker_events``; blocks.

    Args:
        events: Files of the table.
        begin: partition → first offset.
        end: The same partitions → the offset after the last.
        since_ms: partition → the clock before the range, where it is known.
    """
    found = events.dataset(begin, end).to_table(columns=list(_COLUMNS), filter=within(begin, end))
    return clocks_of(found, since_ms)


def clocks_of(events: pa.Table, since_ms: Mapping[int, int]) -> EventClocks:
    """The clocks of events, columns partition, offset and at, in any order."""
    offsets: dict[int, _Longs] = {}
    clocks: dict[int, _Longs] = {}
    for partition in pc.unique(events["partition"]).to_pylist():
        own = events.filter(pc.field("partition") == partition).sort_by("offset")
        at_ms: _Longs = own["at"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
        clock = np.maximum(np.maximum.accumulate(at_ms), since_ms.get(partition, 0))
        offsets[partition], clocks[partition] = own["offset"].to_numpy(), clock
    return EventClocks(since_ms, offsets, clocks)
