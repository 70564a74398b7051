"""Every row of the routes with the time for which it held: ``route_history``, and what ``route_changes`` has beyond it.

The history process comes by each minute. What it has not seen yet is read from ``route_changes``, above the offset at
which the history ends, so an answer is as fresh as the job's last commit.
"""

from datetime import datetime
from typing import Final

import polars as pl

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.extent import Extent
from namesrv_stream.history.opening import MarkedTable, open_changes, open_history_table
from namesrv_stream.history.route_rows import route_rows
from namesrv_stream.history.tail import Tail
from namesrv_stream.instants import instant
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.predicates import Condition, above, above_or_null, at_most, equals, timestamp
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.schema.history_columns import ROUTE_HISTORY

_DEFAULT_TIMEOUT: Final = (
    equals("kind", ChangeKind.SETTING),
    equals("namespace", "effective"),
    equals("key", "default_timeout_ms"),
)
_BY_TIME: Final = ("at_ms", "partition", "offset", "seq")


class RouteHistory:
    """``route_history`` and what ``route_changes`` has beyond it, each at one version.

    Attributes:
        extent: Of what time it can tell.
    """

    def __init__(self, stored: MarkedTable, changes: StoredTable, retention_ms: int) -> None:
        """Take over opened tables.

        Args:
            stored: ``route_history``.
            changes: ``route_changes``, opened after it: it has all that the other lacks.
            retention_ms: How long intervals are kept after their end.
        """
        self._stored = stored.table
        self._mark = stored.mark
        self._changes = changes
        self._tail = Tail(changes, stored)
        self.extent = self._extent(retention_ms)

    @classmethod
    def open(cls, settings: Settings) -> "RouteHistory":
        """The newest versions; blocks.

        Raises:
            NotInHistory: There is no history.
            TableSchemaMismatch: A table is damaged, or not as this version of the code expects.
        """
        stored = open_history_table(settings, ROUTE_HISTORY)
        return cls(stored, open_changes(settings), settings.history.routes_retention_ms)

    def check_covers(self, at_ms: int) -> None:
        """Pass over an instant of which the history tells.

        Raises:
            NotInHistory: It lies before that.
        """
        begin_ms = self.extent.begin_ms
        if begin_ms is None:
            raise NotInHistory("the history has no rows yet")
        if at_ms < begin_ms:
            at, begin = instant(at_ms, with_ms=True), instant(begin_ms, with_ms=True)
            raise NotInHistory(f"{at} lies before the history, which begins at {begin}")

    def as_of(self, at_ms: int, *conditions: Condition) -> list[RouteChange]:
        """The rows that held at an instant, and those of them that replace others of the same key behind those.

        Args:
            at_ms: Epoch milliseconds.
            conditions: On columns of ``RouteChange``.
        """
        at = timestamp(at_ms)
        stored = self._stored.rows(
            at_most("valid_from", at), above_or_null("valid_to", at), *conditions, columns=RouteChange._fields
        )
        newer = self._tail.rows(at_most("at_ms", at_ms), *conditions)
        return [*route_rows(stored.sort("partition", "offset", "seq")), *route_rows(newer)]

    def between(self, after_ms: int, to_ms: int, *conditions: Condition) -> list[RouteChange]:
        """The rows that begin after an instant, up to another, by time and then in log order."""
        stored = self._stored.rows(
            above("valid_from", timestamp(after_ms)),
            at_most("valid_from", timestamp(to_ms)),
            *conditions,
            columns=RouteChange._fields,
        )
        newer = self._tail.rows(above("at_ms", after_ms), at_most("at_ms", to_ms), *conditions)
        return route_rows(pl.concat([stored, newer]).sort(_BY_TIME))

    def first_ms(self, *conditions: Condition) -> int | None:
        """When the first of these rows begins, epoch milliseconds; None where there is none."""
        tables = (self._stored.rows(*conditions, columns=["at_ms"]), self._tail.rows(*conditions))
        return min((first for rows in tables if (first := _lowest(rows["at_ms"])) is not None), default=None)

    def default_timeout_ms(self, at_ms: int) -> int | None:
        """The timeout of brokers that asked for none, as the fold had it at an instant; None where nothing says."""
        rows = self.as_of(at_ms, *_DEFAULT_TIMEOUT)
        return int(rows[-1].value) if rows and rows[-1].value is not None else None

    def default_timeouts(self, since_ms: int, until_ms: int) -> list[tuple[int, int]]:
        """That timeout over a time: from when on (epoch milliseconds), and what it then was; by time."""
        rows = [*self.as_of(since_ms, *_DEFAULT_TIMEOUT), *self.between(since_ms, until_ms, *_DEFAULT_TIMEOUT)]
        return sorted((row.at_ms, int(row.value)) for row in rows if row.value is not None)

    def _extent(self, retention_ms: int) -> Extent:
        reaches_ms = self._changes.committed_ms() or self._changes.extreme("max", "at_ms") or 0
        newer_ms = _lowest(self._tail.rows()["at_ms"])
        # Where route_changes has nothing beyond the history, that is complete.
        stored_to_ms = reaches_ms if newer_ms is None else newer_ms
        lost_until_ms = None
        if self._tail.lost:
            stored_to_ms, lost_until_ms = min(self._mark.at_ms.values(), default=0), stored_to_ms
        low, high = self._stored.extreme("min", "valid_from"), self._stored.extreme("max", "valid_from")
        begin_ms = newer_ms
        if low is not None and high is not None:
            # What ended longer ago is no longer there, so that before it only part of the truth is.
            begin_ms = max(_epoch_ms(low), _epoch_ms(high) - retention_ms)
        return Extent(begin_ms, stored_to_ms, reaches_ms, lost_until_ms)


def _lowest(values: pl.Series) -> int | None:
    lowest = values.min()
    return lowest if isinstance(lowest, int) else None


def _epoch_ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
