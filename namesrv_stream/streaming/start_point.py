"""Where the fold goes on: its checkpoint, else ``route_state``, else the beginning of the log.

Whichever it is, the changes are the same: the fold is exact at each of the three, and rows that the table already has
are dropped by the offset that each commit carries. Only where none is left (the log is cut, too) is the state rebuilt
from the tables, with every broker at age zero.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from namesrv_stream.errors import LogTruncated
from namesrv_stream.route.fold_state import decode_state, encode_state
from namesrv_stream.route.group_json import encode_group
from namesrv_stream.route.rebuilt_state import rebuilt_state
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings
from namesrv_stream.snapshot import TableRows, read_tables
from namesrv_stream.snapshot.loader import route_table
from namesrv_stream.snapshot.table_files import open_delta, transaction_versions
from namesrv_stream.snapshot.table_reader import UNREADABLE, read_fold_states
from namesrv_stream.streaming.topic import TopicExtent
from namesrv_stream.tables import ROUTE_CHANGES, app_id, table_path

_LOG = logging.getLogger(__name__)

#: (partition, broker name or None for the hot state, content)
InitialState = list[tuple[int, str | None, bytes]]


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where to begin.

    Attributes:
        origin: "checkpoint", "route_state", "log" or that it was rebuilt, for people.
        offsets: partition → first offset to fold. Of a checkpoint: as it has it.
        initial_state: The fold's state there, where no checkpoint has it.
    """

    origin: str
    offsets: Mapping[int, int]
    initial_state: InitialState


def find_start_point(settings: Settings, extent: TopicExtent) -> StartPoint:
    """Decide, and remove a checkpoint that nothing can be continued from; blocks.

    Args:
        settings: Ours.
        extent: What Kafka holds.

    Raises:
        LogTruncated: Kafka does not hold the next record.
        StateFromNewerVersion: A newer program has folded here.
    """
    folder = settings.data.checkpoint_dir
    offsets = checkpoint_offsets(folder, settings.kafka.broker_events_topic)
    _require_readable(settings, has_checkpoint=offsets is not None)
    if offsets is not None and has_progress(settings, extent.topic_id):
        start = StartPoint("checkpoint", offsets, [])
    else:
        if folder.exists():
            reason = "has no whole batch" if offsets is None else "is of other tables than these, which are empty"
            _LOG.warning("the checkpoint %s %s: removed", folder, reason)
            _remove(folder)
        start = _from_tables(settings, extent)
    for partition, offset in sorted(start.offsets.items()):
        if not extent.earliest[partition] <= offset <= extent.end[partition]:
            raise LogTruncated(partition, offset, extent.earliest[partition], extent.end[partition])
    return start


def _require_readable(settings: Settings, *, has_checkpoint: bool) -> None:
    # The checkpoint's own state is looked at by Spark's workers only; it is a minute newer at most.
    try:
        states = read_fold_states(settings.data.tables_location)
    except UNREADABLE as error:
        if not has_checkpoint:
            raise
        _LOG.warning("route_state cannot be read, the job goes on from its checkpoint and makes it anew: %s", error)
        return
    for state in states.values():
        decode_state(state.content)


def has_progress(settings: Settings, topic_id: str) -> bool:
    """Whether anything was ever committed to ``route_changes``.

    That the table exists says nothing: a start may have been killed just after it made the table anew.
    """
    path = table_path(settings.data.tables_location, ROUTE_CHANGES)
    app_ids = {p: app_id(topic_id, p) for p in range(settings.kafka.partitions)}
    return any(transaction_versions(path, open_delta(path), app_ids).values())


def _remove(folder: Path) -> None:
    """Away at once: of a half removed checkpoint, Spark would go on with what is left."""
    away = folder.with_name(f"{folder.name}.removed")
    shutil.rmtree(away, ignore_errors=True)
    folder.rename(away)
    shutil.rmtree(away)


def _from_tables(settings: Settings, extent: TopicExtent) -> StartPoint:
    rows = read_tables(settings.data.tables_location)
    offsets: dict[int, int] = {}
    initial: InitialState = []
    origins: set[str] = set()
    for partition in range(settings.kafka.partitions):
        state = rows.fold_states.get(partition)
        committed = rows.next_offsets.get(partition, 0)
        if state is not None and state.next_offset >= extent.earliest[partition]:
            offsets[partition] = state.next_offset
            initial += _initial_state(partition, state.content, route_table(TableRows(live=_of(partition, rows.live))))
            origins.add("route_state")
        elif not committed:
            offsets[partition] = extent.earliest[partition]
        elif not extent.earliest[partition]:
            offsets[partition] = 0  # a fold of the whole log yields all again, exactly
        else:
            offsets[partition] = committed
            initial += _rebuilt(partition, settings.kafka.partitions, committed, rows)
            origins.add("tables, every broker at age zero")
    return StartPoint(" and ".join(sorted(origins)) or "log", offsets, initial)


def _rebuilt(partition: int, partitions: int, next_offset: int, rows: TableRows) -> InitialState:
    """From the tables' rows alone, where neither a fold state can be continued nor the log be folded again."""
    _LOG.warning("partition %d: no fold state is left for offset %d: rebuilt from the tables", partition, next_offset)
    live, changes = _of(partition, rows.live), _of(partition, rows.changes)
    table = route_table(TableRows(live=live, changes=changes))
    at_ms = max(pc.max(part["at_ms"]).as_py() or 0 for part in (live, changes))
    state = rebuilt_state(partition, partitions, next_offset, at_ms, table)
    return _initial_state(partition, encode_state(state), table)


def _of(partition: int, rows: pa.Table) -> pa.Table:
    return rows.filter(pc.field("partition") == partition)


def _initial_state(partition: int, content: bytes, table: RouteTable) -> InitialState:
    groups = [(partition, name, encode_group(group)) for name, group in table.groups.items()]
    return [(partition, None, content), *groups]


def checkpoint_offsets(folder: Path, topic: str) -> dict[int, int] | None:
    """partition → next offset after the last batch that the checkpoint has complete; None where it has none."""
    done = [int(path.name) for path in (folder / "commits").glob("*") if path.name.isdecimal()]
    if not done:
        return None
    # Spark's offset log: a version line, a metadata line, then one line of JSON a source.
    try:
        line = (folder / "offsets" / str(max(done))).read_text().splitlines()[2]
        return {int(partition): int(offset) for partition, offset in json.loads(line)[topic].items()}
    except (OSError, LookupError, ValueError) as error:
        # Spark writes it without fsync: a power cut may leave it empty.
        _LOG.warning("batch %d of the checkpoint %s cannot be read: %r", max(done), folder, error)
        return None
