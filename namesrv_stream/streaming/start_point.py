"""Where the fold starts: always with ``route_state``, and with the log from there on.

``route_state`` holds the exact state of the fold, so the changes are the same wherever it starts; rows that
``route_changes`` has already are dropped. Spark's checkpoint is recreated at each start and decides nothing. So the
tables and Kafka are all that a job needs, on whichever machine it starts (ADR 0050).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from namesrv_stream.errors import LogTruncated, StateMissing
from namesrv_stream.kafka.extent import TopicExtent
from namesrv_stream.route.fold.state import decode_state
from namesrv_stream.route.group_json import encode_group
from namesrv_stream.tables.snapshot import route_table
from namesrv_stream.tables.stored_changes import KeptState, KeptStates

#: (partition, broker name or None for the hot state, content)
InitialState = list[tuple[int, str | None, bytes]]


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where to begin.

    Attributes:
        offsets: partition → first offset to fold.
        initial_state: The fold's state there; nothing for a partition that begins with the log.
    """

    offsets: Mapping[int, int]
    initial_state: InitialState = field(default_factory=list)


def find_start_point(
    states: KeptStates, committed: Mapping[int, int], removed_below: Mapping[int, int], extent: TopicExtent
) -> StartPoint:
    """Take the newest state that ``route_changes`` covers; blocks.

    A newer one is of no use: what it adds to the table would be missing in ``route_changes`` for good. That happens
    where ``route_changes`` was restored or repaired.

    Args:
        states: The versions of ``route_state``.
        committed: partition → first offset that ``route_changes`` does not cover.
        removed_below: partition → first offset from which on ``route_changes`` still has all rows.
        extent: What Kafka holds.

    Raises:
        LogTruncated: Kafka does not hold the next record.
        StateMissing: There is no state, and log and rows do not reach back to the beginning any more.
        StateFromNewerVersion: A newer program has folded here.
    """
    offsets: dict[int, int] = {}
    initial: InitialState = []
    for partition, covered in sorted(committed.items()):
        earliest, end = extent.earliest[partition], extent.end[partition]
        kept = states.newest(partition, at_most=covered)
        if kept is not None:
            offsets[partition] = kept.fold_state.next_offset
            initial += _initial_state(partition, kept)
        elif not earliest and not removed_below.get(partition):
            offsets[partition] = 0  # a fold of the whole log yields everything again, exactly
        elif not covered and states.newest(partition) is None:
            offsets[partition] = earliest  # nothing was ever folded
        else:
            raise StateMissing(partition, covered, earliest)
        if not earliest <= offsets[partition] <= end:
            raise LogTruncated(partition, offsets[partition], earliest, end)
    return StartPoint(offsets, initial)


def _initial_state(partition: int, kept: KeptState) -> InitialState:
    content = kept.fold_state.content
    decode_state(content)  # refuses that of a newer program before Spark's workers meet it
    groups = route_table(kept.live).groups
    return [(partition, None, content), *((partition, name, encode_group(group)) for name, group in groups.items())]
