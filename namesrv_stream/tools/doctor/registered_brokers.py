"""Checks of what brokers have registered, from the tables."""

import shlex
from collections.abc import Iterator
from typing import Final

import pyarrow.compute as pc

from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import parse_instant
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import DRAINED_BROKERS, DrainRecord, decode_drain
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.registration import some_of
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.why.findings import CATALOGUE, Why
from namesrv_stream.tables.change_rows import iter_changes
from namesrv_stream.tables.snapshot import TableRows
from namesrv_stream.text_table import counted
from namesrv_stream.tools.doctor.finding import Finding, note, warning

_DAY_MS: Final = 86_400_000


def contradictions(rows: TableRows | Finding) -> Iterator[Finding]:
    """Yield a warning about each broker whose topics contradict its DataVersion; nothing if there is none.

    Args:
        rows: The tables; a finding if they cannot be read.
    """
    if isinstance(rows, Finding):
        return
    for name, group in sorted(_table_of(rows, pc.field("kind") == ChangeKind.BROKER_LIVE.value).groups.items()):
        for key, live in sorted(group.live_brokers.items()):
            if live.contradictions:
                what = f"other queues, permissions or mappings, but no new DataVersion: {some_of(live.contradictions)}"
                text = f"{name} at {key.broker_addr} reports {what}; the routes have the old ones"
                yield warning("DataVersion", text, CATALOGUE[Why.CONTRADICTION].advice)


def drains(rows: TableRows | Finding, now_ms: int) -> Iterator[Finding]:
    """Yield a finding about each drained broker: a warning if the drain has lasted for more than a day, or if
    the write permission is back for some topics.

    Args:
        rows: The tables; a finding if they cannot be read.
        now_ms: The present time, epoch milliseconds.
    """
    if isinstance(rows, Finding):
        return
    entries = _table_of(rows, pc.field("namespace") == DRAINED_BROKERS).kv.get(DRAINED_BROKERS, {})
    routes = _table_of(rows, pc.field("broker_name").isin(list(entries))) if entries else RouteTable()
    for name, value in sorted(entries.items()):
        yield _drain(name, decode_drain(value), routes.group(name), now_ms)


def _drain(name: str, record: DrainRecord | None, group: BrokerGroup, now_ms: int) -> Finding:
    area, quoted = "drain", shlex.quote(name)
    delete = f"namesrv-stream kv delete {DRAINED_BROKERS} {quoted}"
    if record is None:
        return warning(
            area, f"the KV entry {DRAINED_BROKERS}/{name} is not the record of a drain", f"delete it: {delete}"
        )
    text, undo = f"{name} has been drained since {record.at} by {record.by}", f"namesrv-stream drain {quoted} --undo"
    if again := record.writable_again(group.topics):
        text += f", but the write permission is back for {again:,} of {counted(len(record.perms), 'topic')}"
        return warning(area, text, f"end the drain with {undo}, or continue it with --resume")
    if now_ms - _since_ms(record, now_ms) > _DAY_MS:
        text += ", for more than a day: clients send nothing to it"
        return warning(area, text, f"end the drain with {undo}; if the broker no longer exists: {delete}")
    return note(area, text, f"{undo} ends the drain")


def _since_ms(record: DrainRecord, now_ms: int) -> int:
    try:
        return parse_instant("at", record.at, now_ms)
    except ConfigError:  # written by hand
        return now_ms


def _table_of(rows: TableRows, condition: pc.Expression) -> RouteTable:
    """Return the route table that consists of the rows that meet a condition."""
    table = RouteTable()
    for part in (rows.state.live, rows.changes):
        apply(table, iter_changes(part.filter(condition)))
    return table
