"""Replays a whole topic up to one instant after another, also if the topic was given more partitions."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.events import partition_of
from namesrv_stream.route.fold.derived_state import repartitioned
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.group import is_nothing
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tools.replay.log_fold import FoldStart, LogFold, start_of_log


class PartitionReplays:
    """A replay of each partition; all of them stop at the same instant.

    Args:
        records: The records of each partition.
        repartitioned_at: For each original partition, the offset at which the topic was given more partitions.

    Attributes:
        changes: All changes so far; within one step they are ordered by partition.
    """

    def __init__(self, records: Sequence[Sequence[Record]], repartitioned_at: Sequence[int]) -> None:
        self.changes: list[RouteChange] = []
        self._replays = [
            _PartitionReplay(start_of_log(p, len(repartitioned_at)), records[p][:end])
            for p, end in enumerate(repartitioned_at)
        ]
        begins = [*repartitioned_at, *[0] * (len(records) - len(repartitioned_at))]
        self._more: list[Sequence[Record]] = [own[begin:] for own, begin in zip(records, begins, strict=True)]

    def table_at(self, at_ms: int) -> RouteTable:
        """Return the table after the last record whose clock is not later; instants must not go back."""
        for replay in self._replays:
            self.changes += replay.to(at_ms)
        table = _merged(replay.log_fold.table() for replay in self._replays)
        if self._more and all(replay.ends_before(at_ms) for replay in self._replays):
            self._repartition(table)
            return self.table_at(at_ms)
        return table

    def _repartition(self, table: RouteTable) -> None:
        more, self._more = self._more, []
        states = repartitioned([replay.log_fold.state for replay in self._replays], len(more))
        starts = [FoldStart("test", s.next_offset, s, _part_of(table, s.partition, len(more))) for s in states]
        self._replays = [_PartitionReplay(start, records) for start, records in zip(starts, more, strict=True)]


class _PartitionReplay:
    def __init__(self, start: FoldStart, records: Iterable[Record]) -> None:
        self.log_fold = LogFold(start)
        self._left = deque(records)

    def to(self, at_ms: int) -> list[RouteChange]:
        records = []
        while self._left and self._left[0].at_ms <= at_ms and self.log_fold.state.at_ms <= at_ms:
            records.append(self._left.popleft())
        return self.log_fold.fold(records)

    def ends_before(self, at_ms: int) -> bool:
        return not self._left and self.log_fold.state.at_ms < at_ms


def _merged(tables: Iterable[RouteTable]) -> RouteTable:
    """Merge the tables of all partitions."""
    whole = RouteTable()
    for partition, table in enumerate(tables):
        whole.replace_groups(table.groups.values())
        whole.kv |= table.kv
        whole.replace_settings(partition, table.settings_of(partition))
        whole.servers |= table.servers
        whole.held |= table.held
    return whole


def _part_of(whole: RouteTable, partition: int, partitions: int) -> RouteTable:
    """Return the part of a table that belongs to one partition."""

    def is_here(name: str) -> bool:
        return partition_of(name, partitions) == partition

    table = RouteTable()
    table.replace_groups(group for name, group in whole.groups.items() if is_here(name))
    table.kv = {namespace: entries for namespace, entries in whole.kv.items() if is_here(namespace)}
    table.replace_settings(partition, whole.settings_of(partition))
    table.servers = {key: server for key, server in whole.servers.items() if key[0] == partition}
    table.held = {key: hold for key, hold in whole.held.items() if is_here(key.broker_name)}
    return table


def comparable_content(table: RouteTable, partitions: int) -> Any:
    """Return the comparable content of a table: the history has no rows of remembered registrations.

    Args:
        table: The table.
        partitions: The original number; later partitions have no rows of the settings and servers they took over.
    """
    groups = {name: replace(group, registrations={}) for name, group in table.groups.items()}
    known = {name: group for name, group in groups.items() if not is_nothing(group)}
    settings = [dict(table.settings_of(p)) for p in range(partitions)]
    servers = {key: server for key, server in table.servers.items() if key[0] < partitions}
    kv = {namespace: dict(entries) for namespace, entries in table.kv.items()}
    return known, kv, settings, servers, dict(table.held)
