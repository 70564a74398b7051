"""When which broker process was up: ``broker_sessions``, and what ``route_changes`` says beyond it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from namesrv_stream.history.opening import MarkedTable, open_changes, open_history_table
from namesrv_stream.history.route_rows import route_rows
from namesrv_stream.history.tail import Tail
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import LiveKey
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.predicates import (
    above_or_null,
    at_most,
    equals,
    timestamp,
)
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.schema.history_columns import BROKER_SESSIONS

_KEY: Final = ["cluster", "broker_name", "broker_addr"]
_COLUMNS: Final = (
    *(*_KEY, "broker_id", "up_at", "down_at", "up_cause", "down_cause"),
    *("down_detail", "timeout_ms", "heartbeats", "longest_gap_ms", "last_heard_at", "partition", "offset"),
)


@dataclass(frozen=True, slots=True)
class Session:
    """One time for which a broker process was up; instants are log time, epoch milliseconds.

    Attributes:
        down_ms: When it was no longer; None while it is up.
        timeout_ms: That it asked for last; None for the default.
        heartbeats: How often it was heard, as far as it was counted.
        longest_gap_ms: The longest silence between two of them; None where it was heard less than twice.
        last_heard_ms: When it was heard last, as far as it was counted.
        partition: Kafka partition of the record that began it.
        offset: That record's offset.
    """

    key: LeaseKey
    broker_id: int | None
    up_ms: int
    down_ms: int | None
    up_cause: str
    down_cause: str | None
    down_detail: str | None
    timeout_ms: int | None
    heartbeats: int
    longest_gap_ms: int | None
    last_heard_ms: int | None
    partition: int
    offset: int

    @property
    def cluster(self) -> str:
        return self.key.live_key.cluster

    @property
    def broker_name(self) -> str:
        return self.key.broker_name

    @property
    def broker_addr(self) -> str:
        return self.key.live_key.broker_addr

    def length_ms(self, until_ms: int) -> int:
        """How long it lasted, up to an instant."""
        return (until_ms if self.down_ms is None else min(self.down_ms, until_ms)) - self.up_ms


class Sessions:
    """``broker_sessions`` and what ``route_changes`` has beyond it.

    Attributes:
        counted_to_ms: partition → to when, log time, it is known how often and when last brokers that went were heard.
    """

    def __init__(self, stored: MarkedTable, changes: StoredTable) -> None:
        """Take over opened tables.

        Args:
            stored: ``broker_sessions``.
            changes: ``route_changes``, opened after it.
        """
        self._stored = stored.table
        self.counted_to_ms: Mapping[int, int] = stored.mark.at_ms
        self._tail = Tail(changes, stored)

    def all_counted_to_ms(self, until_ms: int) -> int | None:
        """To when, of some time, the heartbeats of all brokers are counted; None where none is."""
        return min((min(at_ms, until_ms) for at_ms in self.counted_to_ms.values()), default=None)

    @classmethod
    def open(cls, settings: Settings) -> "Sessions":
        """The newest versions; blocks.

        Raises:
            NotInHistory: There is no history.
            TableSchemaMismatch: A table is damaged, or not as this version of the code expects.
        """
        stored = open_history_table(settings, BROKER_SESSIONS)
        return cls(stored, open_changes(settings))

    def between(
        self,
        since_ms: int,
        until_ms: int,
        *,
        cluster: str | None = None,
        broker_name: str | None = None,
        with_earlier: bool = False,
    ) -> list[Session]:
        """The sessions that overlap a time, by key and begin; blocks.

        Args:
            since_ms: Epoch milliseconds.
            until_ms: Epoch milliseconds; what begins later, or ends later, is not known yet.
            cluster: Only of this cluster.
            broker_name: Only of this broker name.
            with_earlier: Also of each process its first and its last session that had ended by ``since_ms``.
        """
        only = [
            equals(column, value)
            for column, value in (("cluster", cluster), ("broker_name", broker_name))
            if value is not None
        ]
        since = timestamp(since_ms)
        rows = self._stored.rows(
            at_most("up_at", timestamp(until_ms)), above_or_null("down_at", since), *only, columns=_COLUMNS
        )
        if with_earlier:
            earlier, down_at = self._stored.rows(at_most("down_at", since), *only, columns=_COLUMNS), pl.col("down_at")
            is_first, is_last = down_at == down_at.min().over(_KEY), down_at == down_at.max().over(_KEY)
            rows = pl.concat([rows, earlier.filter(is_first | is_last)])
        lives = self._tail.rows(equals("kind", ChangeKind.BROKER_LIVE), *only)
        in_ms = rows.with_columns(pl.col("up_at", "down_at", "last_heard_at").dt.epoch("ms"))
        found = continued([_session(row) for row in in_ms.iter_rows(named=True)], route_rows(lives))
        known = (_as_known(session, until_ms) for session in found if session.up_ms <= until_ms)
        wanted = [s for s in known if with_earlier or s.down_ms is None or s.down_ms > since_ms]
        return sorted(wanted, key=lambda s: (s.cluster, s.broker_name, s.broker_addr, s.up_ms))


def continued(sessions: Iterable[Session], rows: Iterable[RouteChange]) -> list[Session]:
    """Sessions as they went on.

    Args:
        sessions: As far as they are known; of each broker one at most is up.
        rows: Of kind ``broker_live``, beyond that, in log order.
    """
    ended: list[Session] = []
    up: dict[LeaseKey, Session] = {}
    for session in sessions:
        if session.down_ms is None:
            up[session.key] = session
        else:
            ended.append(session)
    for row in rows:
        key = LeaseKey(row.broker_name or "", LiveKey(row.cluster or "", row.broker_addr or ""))
        if not row.gone:
            before = up.get(key)
            up[key] = replace(before, timeout_ms=row.timeout_ms) if before else _begun(key, row)
        elif key in up:
            session = up.pop(key)
            if session.up_ms < row.at_ms:  # as in the table: what lasted no time is none
                ended.append(replace(session, down_ms=row.at_ms, down_cause=row.cause, down_detail=row.detail))
    return [*ended, *up.values()]


def _begun(key: LeaseKey, row: RouteChange) -> Session:
    return Session(
        key=key,
        broker_id=row.broker_id,
        up_ms=row.at_ms,
        down_ms=None,
        up_cause=row.cause,
        down_cause=None,
        down_detail=None,
        timeout_ms=row.timeout_ms,
        heartbeats=1,
        longest_gap_ms=None,
        last_heard_ms=row.at_ms,
        partition=row.partition,
        offset=row.offset,
    )


def _as_known(session: Session, until_ms: int) -> Session:
    """The session without what came after an instant."""
    if session.down_ms is None or session.down_ms <= until_ms:
        return session
    return replace(session, down_ms=None, down_cause=None, down_detail=None)


def _session(row: Mapping[str, Any]) -> Session:
    return Session(
        key=LeaseKey(row["broker_name"], LiveKey(row["cluster"], row["broker_addr"])),
        broker_id=row["broker_id"],
        up_ms=row["up_at"],
        down_ms=row["down_at"],
        up_cause=row["up_cause"],
        down_cause=row["down_cause"],
        down_detail=row["down_detail"],
        timeout_ms=row["timeout_ms"],
        heartbeats=row["heartbeats"],
        longest_gap_ms=row["longest_gap_ms"],
        last_heard_ms=row["last_heard_at"],
        partition=row["partition"],
        offset=row["offset"],
    )
