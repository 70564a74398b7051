"""Broker processes from their coming to their going, with how often they were heard.

Rows of ``broker_live`` and hearings of a broker process are taken in the order of the log, where each hearing falls
into the session that was open at its very record, whatever the clock says.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import polars as pl
import pyarrow as pa

from namesrv_stream.streaming.history.history_table import IS_OLD
from namesrv_stream.tables.delta.predicates import timestamp
from namesrv_stream.tables.schema.history_columns import BROKER_SESSIONS, DAY_COLUMNS, HISTORY_SCHEMAS

#: What changes while it lasts, and with its end.
UPDATED_COLUMNS: Final = (
    *("timeout_ms", "heartbeats", "longest_gap_ms", "last_heard_at"),
    *("down_at", "down_cause", "down_detail", "down_offset"),
)
#: All but that of the day.
SESSION_COLUMNS: Final = tuple(n for n in HISTORY_SCHEMAS[BROKER_SESSIONS].names if n != DAY_COLUMNS[BROKER_SESSIONS])
_SCHEMA: Final = pa.schema(
    [HISTORY_SCHEMAS[BROKER_SESSIONS].field(name).with_nullable(True) for name in SESSION_COLUMNS]
)
_LIVE_COLUMNS: Final = (
    *("partition", "offset", "seq", "at_ms", "cluster", "broker_name", "broker_addr"),
    *("gone", "broker_id", "timeout_ms", "cause", "detail"),
)
_HEARD_COLUMNS: Final = ("partition", "offset", "item", "at_ms", "cluster", "broker_name", "broker_addr")


class _Process(NamedTuple):
    """A broker process in the log of its partition."""

    partition: int
    cluster: str
    broker_name: str
    broker_addr: str


class _Live(NamedTuple):
    """A row of ``broker_live``."""

    offset: int
    seq: int
    at_ms: int
    process: _Process
    gone: bool
    broker_id: int | None
    timeout_ms: int | None
    cause: str
    detail: str | None


class _Hearing(NamedTuple):
    """A process heard."""

    offset: int
    item: int
    at_ms: int
    process: _Process


@dataclass(slots=True)
class _Session:
    """A row under way: its columns, and whether the table has it and it differs from that."""

    row: dict[str, Any]
    is_old: bool
    is_changed: bool

    @property
    def lasts(self) -> bool:
        """Whether the table is to have it; of an old one, to be told about it."""
        return self.is_old or self.row["down_at"] is None or self.row["up_at"] < self.row["down_at"]

    def hear(self, at: datetime) -> None:
        row = self.row
        row["heartbeats"] += 1
        if row["last_heard_at"] is not None:
            gap_ms = round((at - row["last_heard_at"]).total_seconds() * 1000)
            row["longest_gap_ms"] = max(gap_ms, row["longest_gap_ms"] or 0)
        row["last_heard_at"] = at
        self.is_changed = True

    def end(self, live: _Live) -> None:
        self.row |= {"down_at": timestamp(live.at_ms), "down_cause": live.cause, "down_detail": live.detail}
        self.row["down_offset"] = live.offset
        self.is_changed = True

    def go_on(self, live: _Live) -> None:
        self.row["timeout_ms"] = live.timeout_ms
        self.is_changed = True


class Sessions:
    """Sessions through a stretch of the log, of which one part after another is told.

    Args:
        lasting: Rows of ``broker_sessions`` that have no end, ``SESSION_COLUMNS``.
    """

    def __init__(self, lasting: pl.DataFrame) -> None:
        self._opened = {_process(row)[1:]: _Session(row, is_old=True, is_changed=False) for row in lasting.to_dicts()}
        self._sessions = list(self._opened.values())

    def go_on(self, lives: pa.Table, hearings: pl.DataFrame) -> None:
        """Take the next part; of each partition it is later than the one before.

        Args:
            lives: Rows of ``route_changes`` of kind broker_live.
            hearings: As of ``heard.heard``, of the same part of the log.
        """
        steps: list[Iterator[_Live | _Hearing]] = [_lives(lives), _hearings(hearings)]
        # Rows of a record come before its hearings: who is heard by a registration is live by it.
        for step in heapq.merge(*steps, key=lambda step: (step.process.partition, step.offset)):
            # Of whichever partition: a process goes to another one where the topic is given more.
            process = step.process[1:]
            session = self._opened.get(process)
            match step, session:
                case _Hearing(), _Session():
                    session.hear(timestamp(step.at_ms))
                case _Live(gone=True), _Session():
                    self._opened.pop(process).end(step)
                case _Live(gone=False), _Session():
                    session.go_on(step)
                case _Live(gone=False), None:
                    self._sessions.append(self._opened.setdefault(process, _begun(step)))

    def rows(self) -> pa.Table:
        """Sessions that began, ended, or had a hearing, as they now are.

        Returns:
            ``SESSION_COLUMNS``, and ``is_old``: whether the table has the row. One of those may now have lasted no
            millisecond, none of the new ones has.
        """
        wanted = [session for session in self._sessions if session.is_changed and session.lasts]
        rows = pa.Table.from_pylist([session.row for session in wanted], _SCHEMA)
        return rows.append_column(IS_OLD, pa.array([session.is_old for session in wanted], pa.bool_()))


def _begun(live: _Live) -> _Session:
    row: dict[str, Any] = dict.fromkeys(SESSION_COLUMNS) | live.process._asdict()
    row |= {"offset": live.offset, "seq": live.seq, "broker_id": live.broker_id, "timeout_ms": live.timeout_ms}
    row |= {"up_at": timestamp(live.at_ms), "up_cause": live.cause, "heartbeats": 0}
    return _Session(row, is_old=False, is_changed=True)


def _lives(rows: pa.Table) -> Iterator[_Live | _Hearing]:
    ordered = rows.select(_LIVE_COLUMNS).sort_by([(name, "ascending") for name in ("partition", "offset", "seq")])
    for partition, offset, seq, at_ms, cluster, name, addr, *said in _tuples(ordered.to_pydict().values()):
        yield _Live(offset, seq, at_ms, _Process(partition, cluster, name, addr), *said)


def _hearings(rows: pl.DataFrame) -> Iterator[_Live | _Hearing]:
    for partition, offset, item, at_ms, *process in (
        rows.select(_HEARD_COLUMNS).sort("partition", "offset", "item").iter_rows()
    ):
        yield _Hearing(offset, item, at_ms, _Process(partition, *process))


def _tuples(columns: Iterable[list[Any]]) -> Iterator[tuple[Any, ...]]:
    return zip(*columns, strict=True)


def _process(row: dict[str, Any]) -> _Process:
    return _Process(*(row[name] for name in _Process._fields))
