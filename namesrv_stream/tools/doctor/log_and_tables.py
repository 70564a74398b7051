"""Checks of the Delta tables, and whether they and the event log in Kafka belong together."""

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import uuid4

from namesrv_stream.errors import ConfigError, NamesrvStreamError, StoreUnreachable
from namesrv_stream.instants import instant
from namesrv_stream.kafka.inspection import InspectedLog, stored_topic_id
from namesrv_stream.route.fold.state import decode_state
from namesrv_stream.run_books import RunBook
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import late_history, running_parts
from namesrv_stream.table_errors import RESTORE_OR_NEW_TABLES, StateFromNewerVersion, TableDamaged
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.delta.open_table import UNREADABLE
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.delta.table_version import open_version
from namesrv_stream.tables.history_files import read_mark
from namesrv_stream.tables.layout import (
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    ROUTE_CHANGES,
    ROUTE_STATE,
    TOPIC_ID_PROPERTY,
)
from namesrv_stream.tables.snapshot import TableRows, read_tables
from namesrv_stream.tables.storage import Storage, tables_of
from namesrv_stream.text_table import counted
from namesrv_stream.tools.doctor.finding import Finding, Grade, fault, fine, note, warning

_AREA: Final = "tables"
_LOG_AREA: Final = "tables and log"
_REBUILD: Final = "stop the job, run `namesrv-stream rebuild`, start the job again"
_REPAIR: Final = f"restart the job, which repairs what the log allows; if it refuses: {_REBUILD}"
#: As many as a large fleet writes in some seconds.
_BEHIND_RECORDS: Final = 20_000


def read_route_tables(settings: Settings) -> TableRows | Finding:
    """Return the rows of the two tables that servers start from, or a finding of why there are none; blocks."""
    folder = tables_of(settings)
    try:
        rows = read_tables(folder)
        for name, schema in ((ROUTE_STATE, STATE_SCHEMA), (ROUTE_CHANGES, CHANGES_SCHEMA)):
            table = open_version(folder / name, schema)
            if table is not None:
                table.check_files()
    except StoreUnreachable as error:
        return fault(_AREA, error.name, error.remedy)
    except TableDamaged as error:
        return _damaged(error)
    except UNREADABLE as error:
        return fault(_AREA, " ".join(str(error).split())[:300], _REBUILD)
    if rows.version < 0:
        return note(_AREA, f"there is no {ROUTE_CHANGES} in {folder}: the first start of the job creates it")
    if rows.damage is not None:
        return _damaged(rows.damage)
    return rows


def _damaged(error: TableDamaged) -> Finding:
    return fault(_AREA, " ".join(f"table {error.table}: {error.damage}".split())[:300], _REPAIR)


def object_store(settings: Settings) -> Iterator[Finding]:
    """Check that the object store of the tables, if any, keeps two jobs from overwriting each other; blocks."""
    if settings.data.store is None:
        return
    place = tables_of(settings)
    try:
        is_kept_apart = _refuses_second_write(place, f"doctor-{uuid4()}")
    except (StoreUnreachable, ConfigError) as error:
        yield note(
            _AREA, f"{place} cannot be written to from here: {error}", "the job must be able to write; servers need not"
        )
        return
    if is_kept_apart:
        yield fine(_AREA, f"{place} refuses to overwrite an object, so two jobs are kept apart")
    else:
        text = f"{place} overwrites an object despite If-None-Match: two jobs would overwrite each other's commits"
        yield fault(_AREA, text, "upgrade the store, or use one with conditional writes")


def _refuses_second_write(place: Storage, name: str) -> bool:
    """Whether the store refuses to overwrite a file; the fencing between jobs relies on it."""
    place.create(name, b"")
    try:
        place.create(name, b"")
    except FileExistsError:
        return True
    finally:
        place.remove(name)
    return False


def route_tables(settings: Settings, rows: TableRows | Finding, log: InspectedLog | None) -> Iterator[Finding]:
    """Check the tables, the fold's state in them, and whether they belong to this log.

    Args:
        rows: The tables, read before the log was inspected, so that a commit in between does not seem to be ahead of
            the log; a finding if they cannot be read.
        log: The log as it was inspected; None if Kafka does not answer.
    """
    if isinstance(rows, Finding):
        is_missed = rows.grade is Grade.NOTE and log is not None and log.has_commits
        yield _missed_tables(settings) if is_missed else rows
        return
    for partition, state in rows.state.fold_states.items():
        try:
            decode_state(state.content)
        except (StateFromNewerVersion, ValueError, KeyError, TypeError) as error:
            text = f"{ROUTE_STATE}: the fold's state of partition {partition} cannot be read: {error}"
            yield fault(_AREA, text, _REBUILD)
            return
    where = f"{ROUTE_CHANGES} at version {rows.version}, {rows.state.live.num_rows} live rows"
    yield fine(_AREA, f"{where} in {ROUTE_STATE}, in {tables_of(settings)}")
    topic = settings.kafka.broker_events_topic
    if log is not None and log.events is not None:
        yield from _against(log, log.events.topic_id, rows)
    elif log is not None and rows.topic_id and "Describe" not in log.missing_rights.get(topic, ()):
        text = f"the tables belong to a topic with the id {rows.topic_id}, but Kafka has no topic {topic}"
        yield fault(_LOG_AREA, text, f"start no part, because it would create another topic; {RESTORE_OR_NEW_TABLES}")
    elif log is None and settings.is_kafka_embedded:
        yield from _against_stored_log(settings, rows.topic_id)


def _missed_tables(settings: Settings) -> Finding:
    text = f"there is no {ROUTE_CHANGES} in {tables_of(settings)}, but the log shows that a job has committed"
    return fault(_AREA, text, "set data.tables to the place of the job's tables; if they are lost, start the job")


def _against_stored_log(settings: Settings, topic_id: str) -> Iterator[Finding]:
    """Compare the tables with the topic in the files of an embedded Kafka that does not answer."""
    found = stored_topic_id(settings)
    if found is None:
        text = f"the tables belong to a topic with the id {topic_id}, but {settings.data.kafka_dir} contains no topic"
        yield fault(_LOG_AREA, text, RESTORE_OR_NEW_TABLES)
    elif found != topic_id:
        yield _other_log(topic_id, found)
    else:
        yield fine(_LOG_AREA, "one topic")


def _other_log(topic_id: str, found: str) -> Finding:
    text = (
        f"the tables belong to a topic with the id {topic_id}, but Kafka's topic has {found}: Kafka's data was replaced"
    )
    return fault(_LOG_AREA, text, f"correct kafka.bootstrap_servers or data.dir; or {RESTORE_OR_NEW_TABLES}")


def _against(log: InspectedLog, topic_id: str, rows: TableRows) -> Iterator[Finding]:
    area = _LOG_AREA
    if rows.topic_id != topic_id:
        yield _other_log(rows.topic_id, topic_id)
        return
    removed = {p: first for p, first in log.earliest.items() if rows.next_offsets.get(p, 0) < first}
    if removed:
        text = f"Kafka removed records before they were folded: {_places(rows.next_offsets, removed)}"
        yield fault(
            area, text, "stop the job, run `namesrv-stream rebuild --accept-loss`; kafka.retention_ms was too short"
        )
        return
    ahead = {p: end for p, end in log.end.items() if rows.next_offsets.get(p, 0) > end}
    if ahead:
        text = f"Kafka has lost records that were folded: {_places(rows.next_offsets, ahead)}"
        yield fault(area, text, "restore its log; or stop the job and run `namesrv-stream rebuild --accept-loss`")
        return
    states = {p: state.next_offset for p, state in rows.state.fold_states.items()}
    needed = {p: first for p, first in log.earliest.items() if states.get(p, first) < first}
    if needed:
        text = f"Kafka removed records that the job needs at its start: {_places(states, needed)} in {ROUTE_STATE}"
        remedy = "nothing is lost; a running job writes a state every minute; otherwise run `namesrv-stream rebuild`"
        yield warning(area, text, remedy)
        return
    behind = sum(end - rows.next_offsets.get(p, 0) for p, end in log.end.items())
    if behind > _BEHIND_RECORDS:
        text = f"{counted(behind, 'record')} are not folded yet"
        yield warning(area, text, "check whether the job runs and keeps up: DATA/logs/job.log")
    else:
        yield fine(area, f"one topic, {counted(behind, 'record')} not folded yet")


def _places(reached: Mapping[int, int], limits: Mapping[int, int]) -> str:
    return ", ".join(f"partition {p} is folded to {reached.get(p, 0)}, Kafka's is {at}" for p, at in limits.items())


def history_tables(settings: Settings, rows: TableRows | Finding, now_ms: int) -> Iterator[Finding]:
    """Check the tables of the history.

    Args:
        rows: The route tables, which must belong to the same topic; a finding if they cannot be read.
        now_ms: This machine's clock, epoch milliseconds.
    """
    found = []
    for name, schema in HISTORY_SCHEMAS.items():
        try:
            table = StoredTable.open(tables_of(settings), name, schema)
        except NamesrvStreamError as error:
            remedy = (
                "upgrade this program if a newer one wrote it; otherwise move that folder away: it is created again"
            )
            yield fault("history", str(error), remedy)
            return
        if table is None:
            continue
        found.append((name, table.files))
        topic_id = table.properties.get(TOPIC_ID_PROPERTY, "")
        if isinstance(rows, TableRows) and rows.topic_id and topic_id != rows.topic_id:
            text = f"{name} belongs to a topic with the id {topic_id}, {ROUTE_CHANGES} to {rows.topic_id}"
            remedy = "stop the history process, move the history tables to another folder, start it again"
            yield fault("history", f"{text}: the history process refuses them", remedy)
            return
    if found:
        yield fine("history", ", ".join(f"{name} ({counted(files, 'file')})" for name, files in found))
    elif settings.history.enabled:
        yield note("history", "no tables yet: `up` or `namesrv-stream history-job` writes them")
    else:
        yield note("history", "history.enabled is false: route --as-of, history and report have no data")
    yield from _history_process(settings, now_ms)


def _history_process(settings: Settings, now_ms: int) -> Iterator[Finding]:
    """Warn if the history tables lag behind, provided that a part of the installation runs here."""
    if not settings.has_history or not running_parts(settings.data.run_dir):
        return
    try:
        mark = read_mark(tables_of(settings) / HEARTBEAT_MINUTES)
    except NamesrvStreamError as error:
        yield fault("history", str(error), "see the log of the history process")
        return
    to_ms = mark.newest_ms if mark is not None else 0
    if reason := late_history(settings, to_ms, now_ms):
        age = f"the data ends at {instant(to_ms)}" if to_ms else "there is no data"
        remedy = f"start it if it is missing; its log has the reason of a failure; see {RunBook.HISTORY_BEHIND}"
        yield warning("history", f"{reason}; {age}", remedy)
