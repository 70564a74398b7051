"""The tables: can this version read them, are they of this log, and how far are they behind it."""

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import uuid4

from namesrv_stream.doctor.finding import Finding, fault, fine, note, warning
from namesrv_stream.errors import ConfigError, NamesrvStreamError, StateFromNewerVersion, StoreUnreachable
from namesrv_stream.kafka.inspection import InspectedLog, stored_topic_id
from namesrv_stream.plurals import counted
from namesrv_stream.route.fold.state import decode_state
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.open_table import UNREADABLE
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.schema.history_columns import HISTORY_SCHEMAS
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.snapshot import TableRows, read_tables
from namesrv_stream.tables.storage import Storage, tables_of

_AREA: Final = "tables"
_LOG_AREA: Final = "tables and log"
_NEW_LOG: Final = 'bring that log back, or begin with new tables: docs/backup.md, "Kafka\'s log is lost"'
_REBUILD: Final = "stop the job, `namesrv-stream rebuild`, start it again"
_REPAIR: Final = f"start the job again, which repairs what the log allows; if it refuses: {_REBUILD}"
#: Some seconds of a busy fleet.
_BEHIND_RECORDS: Final = 20_000


def read_route_tables(settings: Settings) -> TableRows | Finding:
    """What the two tables hold that servers start from, or why nothing; blocks."""
    folder = tables_of(settings)
    try:
        rows = read_tables(folder)
    except StoreUnreachable as error:
        return fault(_AREA, error.name, error.remedy)
    except UNREADABLE as error:
        return fault(_AREA, " ".join(str(error).split())[:300], _REBUILD)
    if rows.version < 0:
        return note(_AREA, f"there is no {ROUTE_CHANGES} in {folder}: the job's first start makes it")
    if rows.damage is not None:
        return fault(_AREA, " ".join(str(rows.damage).split())[:300], _REPAIR)
    return rows


def object_store(settings: Settings) -> Iterator[Finding]:
    """Whether the store that the tables are in, if they are, keeps two jobs apart; blocks."""
    if settings.data.store is None:
        return
    place = tables_of(settings)
    try:
        is_kept_apart = _refuses_second_write(place, f"doctor-{uuid4()}")
    except (StoreUnreachable, ConfigError) as error:
        yield note(
            _AREA, f"{place} cannot be written to from here: {error}", "the job must be able to; servers need not"
        )
        return
    if is_kept_apart:
        yield fine(_AREA, f"{place} refuses to write what is there already: two jobs are kept apart")
    else:
        text = f"{place} writes what is there already in spite of If-None-Match: two jobs would overwrite each other"
        yield fault(_AREA, text, "upgrade the store, or use one with conditional writes")


def _refuses_second_write(place: Storage, name: str) -> bool:
    """Whether a file that is there already is not written again: the fence between jobs relies on it."""
    place.create(name, b"")
    try:
        place.create(name, b"")
    except FileExistsError:
        return True
    finally:
        place.remove(name)
    return False


def route_tables(settings: Settings, rows: TableRows | Finding, log: InspectedLog | None) -> Iterator[Finding]:
    """The tables, the fold's state in them, and whether they are of this log.

    Args:
        settings: Ours.
        rows: As read before the log was looked at, so that what is committed meanwhile seems not to be ahead of it.
        log: As inspected; None where Kafka does not answer.
    """
    if isinstance(rows, Finding):
        yield rows
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
    if log is not None and log.events is not None:
        yield from _against(log, log.events.topic_id, rows)
    elif log is None and settings.is_kafka_embedded:
        yield from _against_stored_log(settings, rows.topic_id)


def _against_stored_log(settings: Settings, topic_id: str) -> Iterator[Finding]:
    """The topic that the files of an embedded Kafka hold which does not answer."""
    found = stored_topic_id(settings)
    if found is None:
        text = f"the tables were made from a topic with the id {topic_id}, and {settings.data.kafka_dir} holds none"
        yield fault(_LOG_AREA, text, _NEW_LOG)
    elif found != topic_id:
        yield _other_log(topic_id, found)
    else:
        yield fine(_LOG_AREA, "one topic")


def _other_log(topic_id: str, found: str) -> Finding:
    text = f"the tables were made from a topic with the id {topic_id}, Kafka's has {found}: Kafka's data was replaced"
    return fault(_LOG_AREA, text, f"correct kafka.bootstrap_servers or data.dir; or {_NEW_LOG}")


def _against(log: InspectedLog, topic_id: str, rows: TableRows) -> Iterator[Finding]:
    area = _LOG_AREA
    if rows.topic_id != topic_id:
        yield _other_log(rows.topic_id, topic_id)
        return
    removed = {p: first for p, first in log.earliest.items() if rows.next_offsets.get(p, 0) < first}
    if removed:
        text = f"Kafka removed records before they were folded: {_places(rows.next_offsets, removed)}"
        yield fault(
            area, text, "stop the job, `namesrv-stream rebuild --accept-loss`; kafka.retention_ms was too short"
        )
        return
    ahead = {p: end for p, end in log.end.items() if rows.next_offsets.get(p, 0) > end}
    if ahead:
        text = f"Kafka has lost records that were folded: {_places(rows.next_offsets, ahead)}"
        yield fault(area, text, "bring its log back; or stop the job, `namesrv-stream rebuild --accept-loss`")
        return
    behind = sum(end - rows.next_offsets.get(p, 0) for p, end in log.end.items())
    if behind > _BEHIND_RECORDS:
        text = f"{counted(behind, 'record')} are not folded yet"
        yield warning(area, text, "does the job run, and keep up? see DATA/logs/job.log")
    else:
        yield fine(area, f"one topic, {counted(behind, 'record')} not folded yet")


def _places(reached: Mapping[int, int], limits: Mapping[int, int]) -> str:
    return ", ".join(f"partition {p} is folded to {reached.get(p, 0)}, Kafka's is {at}" for p, at in limits.items())


def history_tables(settings: Settings) -> Iterator[Finding]:
    """The tables of the history, where there are any."""
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
        if table is not None:
            found.append((name, table.files))
    if found:
        yield fine("history", ", ".join(f"{name} ({counted(files, 'file')})" for name, files in found))
    elif settings.history.enabled:
        yield note("history", "no tables yet: `up` or `namesrv-stream history-job` writes them")
    else:
        yield note("history", "history.enabled is false: route --as-of, history and report have nothing to read")
