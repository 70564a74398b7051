"""Writes the history tables of logs without Spark: the rows that the Spark process must write, in plain Python."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Any, Final, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.settings import Settings
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.history_files import HistoryMark, commit_metadata
from namesrv_stream.tables.layout import (
    BROKER_EVENTS,
    DAY_COLUMNS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    ROUTE_ARCHIVE,
    STATISTICS_COLUMNS,
    history_properties,
)
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import Log
from tests.support.tables import TOPIC_ID, settings_in

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEFT_OUT: Final = {ChangeKind.REGISTRATION, ChangeKind.REGISTRATION_WANTED, ChangeKind.IGNORED}
Row = dict[str, Any]


class HistoryOfLogs:
    """The tables of some logs, one per partition; each table is written up to the offsets that the test names.

    Attributes:
        settings: Settings whose data directory holds the tables.
    """

    def __init__(self, data_dir: Path, *logs: Log) -> None:
        self.settings = settings_in(data_dir)
        values = self.settings.model_dump()
        values["kafka"]["partitions"] = len(logs)
        self.settings = type(self.settings).model_validate(values)
        self.logs = logs
        prepare_tables(self.settings, TOPIC_ID)
        self.restart_job()

    def restart_job(self) -> None:
        """Open the tables for writing, as a new job does."""
        self._writer = ChangesWriter(tables_of(self.settings), 0)

    def copied(self, data_dir: Path) -> Self:
        """Return a copy of the tables in another data directory; faster than to write them again.

        Both have the same logs, so no test may append to them.
        """
        shutil.copytree(self.settings.data.dir, data_dir, dirs_exist_ok=True)
        copied = copy(self)
        data = self.settings.data.model_copy(update={"dir": data_dir})
        copied.settings = self.settings.model_copy(update={"data": data})
        copied.restart_job()
        return copied

    @property
    def changes(self) -> list[RouteChange]:
        """All changes so far."""
        return [change for log in self.logs for change in log.output.changes]

    def ends(self) -> dict[int, int]:
        """partition → next offset."""
        return {p: log.state.next_offset for p, log in enumerate(self.logs)}

    def commit(self, ends: Mapping[int, int] | None = None) -> None:
        """Extend ``route_changes`` to these offsets, or to the logs' ends, as the job does."""
        until = ends or self.ends()
        rows = pa.Table.from_batches([encode_changes([c for c in self.changes if c.offset < until[c.partition]])])
        self._writer.write(rows, {p: self.logs[p].place(end) for p, end in until.items()}, 1)

    def write(self, ends: Mapping[int, int] | None = None) -> None:
        """Rewrite the history tables up to these offsets or to the logs' ends."""
        until = ends or self.ends()
        changes = [c for c in self.changes if c.offset < until[c.partition]]
        records = [r for p, log in enumerate(self.logs) for r in log.records if r.offset < until[p]]
        self._overwrite(ROUTE_ARCHIVE, archived(changes), until)
        self._overwrite(HEARTBEAT_MINUTES, list(minutes(records)), until)

    def write_minutes(self, ends: Mapping[int, int]) -> None:
        """Rewrite ``heartbeat_minutes`` alone, up to these offsets: it may be behind the other tables."""
        records = [r for p, log in enumerate(self.logs) for r in log.records if r.offset < ends[p]]
        self._overwrite(HEARTBEAT_MINUTES, list(minutes(records)), ends)

    def write_all(self) -> None:
        """Write all tables up to the end of the logs."""
        self.commit()
        self.write()

    def _overwrite(self, name: str, rows: list[Row], ends: Mapping[int, int]) -> None:
        path, schema = self.settings.data.tables_dir / name, HISTORY_SCHEMAS[name]
        if not path.exists():
            properties = history_properties(TOPIC_ID, len(self.logs), STATISTICS_COLUMNS[name])
            DeltaTable.create(
                path,
                schema,
                partition_by=[DAY_COLUMNS[name]],
                configuration=properties,
                raise_if_key_not_exists=False,
            )
        write_deltalake(
            path,
            pa.Table.from_pylist(rows, schema),
            mode="overwrite",
            commit_properties=CommitProperties(custom_metadata=commit_metadata(self._mark(ends))),
        )

    def _mark(self, ends: Mapping[int, int]) -> HistoryMark:
        times = {p: max((r.at_ms for r in self.logs[p].records[:end]), default=0) for p, end in ends.items()}
        return HistoryMark(TOPIC_ID, "", dict(ends), times)


def instant_of(at_ms: int) -> datetime:
    """Convert epoch milliseconds to a TIMESTAMP."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def archived(changes: Iterable[RouteChange]) -> list[Row]:
    """Return the rows of ``route_archive``."""
    return [row._asdict() | {"day": instant_of(row.at_ms).date()} for row in changes if row.kind not in _LEFT_OUT]


def minutes(records: Sequence[Record]) -> Iterator[Row]:
    """Return the rows of ``heartbeat_minutes``; the last minute counts as complete."""
    found: dict[tuple[LeaseKey, str, int], list[tuple[int, int | None]]] = {}
    last_ms: dict[tuple[LeaseKey, str], int] = {}
    partition_of: dict[LeaseKey, int] = {}
    for record, key, server_id in _signs_of_life(records):
        gap_ms = record.at_ms - last_ms[key, server_id] if (key, server_id) in last_ms else None
        last_ms[key, server_id] = record.at_ms
        partition_of[key] = record.partition
        found.setdefault((key, server_id, record.at_ms // 60_000), []).append((record.at_ms, gap_ms))
    for (key, server_id, minute), heard in found.items():
        gaps = sorted(gap for _, gap in heard if gap is not None)
        cuts = quantiles(gaps, n=100, method="inclusive") if len(gaps) > 1 else gaps * 99
        yield {
            "cluster": key.live_key.cluster,
            "broker_name": key.broker_name,
            "broker_addr": key.live_key.broker_addr,
            "server_id": server_id,
            "minute": instant_of(minute * 60_000),
            "heartbeats": len(heard),
            "gap_p50_ms": round(cuts[49]) if cuts else None,
            "gap_p99_ms": round(cuts[98]) if cuts else None,
            "gap_max_ms": gaps[-1] if gaps else None,
            "first_at": instant_of(heard[0][0]),
            "last_at": instant_of(heard[-1][0]),
            "partition": partition_of[key],
            "day": instant_of(minute * 60_000).date(),
        }


def _signs_of_life(records: Sequence[Record]) -> Iterator[tuple[Record, LeaseKey, str]]:
    for record in records:
        try:
            events = decode_record(record.value)
        except EventDecodeError:
            continue
        for event in events:
            if isinstance(event, BrokerHeartbeat):
                yield record, LeaseKey(event.broker_name, event.live_key), event.origin.server_id
            elif isinstance(event, BrokerRegistered):
                r = event.registration
                yield record, LeaseKey(r.broker_name, r.live_key), event.origin.server_id


def write_archive(settings: Settings, records: Iterable[Record], *, files: int = 3, topic_id: str = TOPIC_ID) -> None:
    """Append records to ``broker_events`` in random order, as joined files have them, in ``files`` commits."""
    path, schema = settings.data.tables_dir / BROKER_EVENTS, HISTORY_SCHEMAS[BROKER_EVENTS]
    if not path.exists():
        properties = history_properties(topic_id, settings.kafka.partitions, STATISTICS_COLUMNS[BROKER_EVENTS])
        days = [DAY_COLUMNS[BROKER_EVENTS]]
        DeltaTable.create(path, schema, partition_by=days, configuration=properties, raise_if_key_not_exists=False)
    rows = [_event_row(record) for record in records]
    Random(len(rows)).shuffle(rows)
    for number in range(files):
        _append_events(settings, rows[number::files], topic_id)


def _append_events(settings: Settings, rows: Sequence[dict[str, Any]], topic_id: str) -> None:
    write_deltalake(
        settings.data.tables_dir / BROKER_EVENTS,
        pa.Table.from_pylist(list(rows), HISTORY_SCHEMAS[BROKER_EVENTS]),
        mode="append",
        commit_properties=CommitProperties(custom_metadata=commit_metadata(HistoryMark(topic_id))),
    )


def _event_row(record: Record) -> dict[str, Any]:
    at = instant_of(record.at_ms)
    try:
        value, raw = record.value.decode(), None
    except UnicodeDecodeError:
        value, raw = None, record.value
    place = {"partition": record.partition, "offset": record.offset, "at": at, "event_day": at.date()}
    return {**place, "value": value, "raw": raw}
