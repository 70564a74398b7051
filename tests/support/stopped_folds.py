"""Replays of a whole topic, stopped at one instant after another; also of a topic that got more partitions."""

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


class StoppedFolds:
    """The fold of each partition, up to the same instant.

    Args:
        records: Of each partition.
        grown_at: Of each partition that there was before the topic got more, the offset at which it did.

    Attributes:
        changes: The rows so far, of one partition after another in each step.
    """

    def __init__(self, records: Sequence[Sequence[Record]], grown_at: Sequence[int]) -> None:
        self.changes: list[RouteChange] = []
        self._folds = [_Fold(start_of_log(p, len(grown_at)), records[p][:end]) for p, end in enumerate(grown_at)]
        begins = [*grown_at, *[0] * (len(records) - len(grown_at))]
        self._more: list[Sequence[Record]] = [own[begin:] for own, begin in zip(records, begins, strict=True)]

    def stopped_at(self, at_ms: int) -> RouteTable:
        """All that they say after the last record whose clock is not later; instants must not go back."""
        for fold in self._folds:
            self.changes += fold.to(at_ms)
        table = _joined(fold.log_fold.table() for fold in self._folds)
        if self._more and all(fold.has_ended_before(at_ms) for fold in self._folds):
            self._grow(table)
            return self.stopped_at(at_ms)
        return table

    def _grow(self, table: RouteTable) -> None:
        more, self._more = self._more, []
        states = repartitioned([fold.log_fold.state for fold in self._folds], len(more))
        starts = [FoldStart("test", s.next_offset, s, _part(table, s.partition, len(more))) for s in states]
        self._folds = [_Fold(start, records) for start, records in zip(starts, more, strict=True)]


class _Fold:
    def __init__(self, start: FoldStart, records: Iterable[Record]) -> None:
        self.log_fold = LogFold(start)
        self._left = deque(records)

    def to(self, at_ms: int) -> list[RouteChange]:
        records = []
        while self._left and self._left[0].at_ms <= at_ms and self.log_fold.state.at_ms <= at_ms:
            records.append(self._left.popleft())
        return self.log_fold.fold(records)

    def has_ended_before(self, at_ms: int) -> bool:
        return not self._left and self.log_fold.state.at_ms < at_ms


def _joined(tables: Iterable[RouteTable]) -> RouteTable:
    """One table of those of all partitions."""
    whole = RouteTable()
    for partition, table in enumerate(tables):
        whole.replace_groups(table.groups.values())
        whole.kv |= table.kv
        whole.replace_settings(partition, table.settings_of(partition))
        whole.servers |= table.servers
        whole.held |= table.held
    return whole


def _part(whole: RouteTable, partition: int, partitions: int) -> RouteTable:
    """What a table says in one of so many partitions."""

    def is_here(name: str) -> bool:
        return partition_of(name, partitions) == partition

    table = RouteTable()
    table.replace_groups(group for name, group in whole.groups.items() if is_here(name))
    table.kv = {namespace: entries for namespace, entries in whole.kv.items() if is_here(namespace)}
    table.replace_settings(partition, whole.settings_of(partition))
    table.servers = {key: server for key, server in whole.servers.items() if key[0] == partition}
    table.held = {key: hold for key, hold in whole.held.items() if is_here(key.broker_name)}
    return table


def content_of(table: RouteTable, partitions: int) -> Any:
    """What can be compared of a table; registrations that are only remembered are not in the history.

    Args:
        table: All that rows say.
        partitions: How many the topic had first; what later ones took over of settings and servers has no rows.
    """
    groups = {name: replace(group, registrations={}) for name, group in table.groups.items()}
    known = {name: group for name, group in groups.items() if not is_nothing(group)}
    settings = [dict(table.settings_of(p)) for p in range(partitions)]
    servers = {key: server for key, server in table.servers.items() if key[0] < partitions}
    kv = {namespace: dict(entries) for namespace, entries in table.kv.items()}
    return known, kv, settings, servers, dict(table.held)
