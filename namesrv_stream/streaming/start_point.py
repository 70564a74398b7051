"""Where the fold goes on: its checkpoint, else ``route_state``, else the beginning of the log.

Whichever it is, the changes are the same: the fold is exact at each of the three, and rows that the table already has
are dropped by the offset that each commit carries.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from namesrv_stream.errors import LogTruncated
from namesrv_stream.route.group_json import encode_group
from namesrv_stream.settings import Settings
from namesrv_stream.snapshot import TableRows, read_tables
from namesrv_stream.snapshot.loader import route_table
from namesrv_stream.streaming.topic import TopicExtent

_LOG = logging.getLogger(__name__)

#: (partition, broker name or None for the hot state, content)
InitialState = list[tuple[int, str | None, bytes]]


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where to begin.

    Attributes:
        origin: "checkpoint", "route_state" or "log", for people.
        offsets: partition → first offset to fold. Of a checkpoint: as it has it.
        initial_state: The fold's state there, where no checkpoint has it.
    """

    origin: str
    offsets: Mapping[int, int]
    initial_state: InitialState


def find_start_point(settings: Settings, extent: TopicExtent, had_tables: bool) -> StartPoint:
    """Decide, and remove a checkpoint that nothing can be continued from; blocks.

    Args:
        settings: Ours.
        extent: What Kafka holds.
        had_tables: Whether the tables existed before this start.

    Raises:
        LogTruncated: Kafka does not hold the next record.
    """
    folder = settings.data.checkpoint_dir
    offsets = checkpoint_offsets(folder, settings.kafka.broker_events_topic)
    if offsets is not None and had_tables:
        start = StartPoint("checkpoint", offsets, [])
    else:
        if folder.exists():
            _LOG.warning("the checkpoint %s %s: removed", folder, "has no tables" if offsets else "has no whole batch")
            shutil.rmtree(folder)
        start = _from_tables(settings, extent)
    for partition, offset in sorted(start.offsets.items()):
        if not extent.earliest[partition] <= offset <= extent.end[partition]:
            raise LogTruncated(partition, offset, extent.earliest[partition])
    return start


def _from_tables(settings: Settings, extent: TopicExtent) -> StartPoint:
    rows = read_tables(settings.data.tables_dir)
    offsets: dict[int, int] = {}
    for partition in range(settings.kafka.partitions):
        if partition in rows.fold_states:
            offsets[partition] = rows.fold_states[partition].next_offset
        elif rows.next_offsets.get(partition):
            offsets[partition] = 0  # only a fold of the whole log yields these rows again
        else:
            offsets[partition] = extent.earliest[partition]
    return StartPoint("route_state" if rows.fold_states else "log", offsets, _initial_state(rows))


def _initial_state(rows: TableRows) -> InitialState:
    covered = TableRows(live=rows.live)
    partition_of_name = dict(zip(rows.live["broker_name"].to_pylist(), rows.live["partition"].to_pylist(), strict=True))
    initial: InitialState = [(p, None, state.content) for p, state in rows.fold_states.items()]
    for name, group in route_table(covered).groups.items():
        initial.append((partition_of_name[name], name, encode_group(group)))
    return initial


def checkpoint_offsets(folder: Path, topic: str) -> dict[int, int] | None:
    """partition → next offset after the last batch that the checkpoint has complete; None where it has none."""
    done = [int(path.name) for path in (folder / "commits").glob("*") if path.name.isdecimal()]
    if not done:
        return None
    # Spark's offset log: a version line, a metadata line, then one line of JSON a source.
    line = (folder / "offsets" / str(max(done))).read_text().splitlines()[2]
    return {int(partition): int(offset) for partition, offset in json.loads(line)[topic].items()}
