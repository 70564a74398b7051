"""Findings of the doctor about real tables, and about tables and log together."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from namesrv_stream.kafka.inspection import InspectedLog, InspectedTopic
from namesrv_stream.processes import write_run_file
from namesrv_stream.route.events import KvPut, WritePermChanged
from namesrv_stream.route.model import DRAINED_BROKERS, DrainRecord
from namesrv_stream.settings import Settings
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.route_writers import StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow
from namesrv_stream.tools.doctor import log_and_tables
from namesrv_stream.tools.doctor.finding import Finding, Grade
from namesrv_stream.tools.doctor.log_and_tables import history_tables, read_route_tables, route_tables
from namesrv_stream.tools.doctor.registered_brokers import contradictions, drains
from tests.support.builders import BASE, BEGIN_MS, READ_ONLY, S1, Log, a_registration
from tests.support.history_tables import HistoryOfLogs
from tests.support.tables import TOPIC_ID, TablesOfLog, settings_in


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> TablesOfLog:
    tables = TablesOfLog(tmp_path_factory.mktemp("written"))
    tables.log.register(a_registration())
    tables.commit()
    tables.compact()
    return tables


@pytest.fixture
def tables(written: TablesOfLog, tmp_path: Path) -> TablesOfLog:
    return written.copied(tmp_path)


def _log(tables: TablesOfLog, topic_id: str = TOPIC_ID, **changes: Any) -> InspectedLog:
    events = InspectedTopic("events", topic_id, 1, (), (), 1, {})
    reached = tables.log.state.next_offset
    fields: dict[str, Any] = {
        "earliest": {0: 0},
        "end": {0: reached},
        "newest_ms": {},
        "dead_letters_held": 0,
    } | changes
    return InspectedLog("k:9092", 1, events, None, **fields)


def _examined(settings: Settings, log: InspectedLog | None) -> list[Finding]:
    return list(route_tables(settings, read_route_tables(settings), log))


def _fault(tables: TablesOfLog, log: InspectedLog | None) -> Finding:
    (found,) = [f for f in _examined(tables.settings, log) if f.grade is Grade.FAULT]
    return found


def test_missing_tables_are_a_fault_if_the_log_shows_that_a_job_has_committed(
    tables: TablesOfLog, tmp_path: Path
) -> None:
    settings = settings_in(tmp_path / "elsewhere")
    (new,) = _examined(settings, _log(tables))
    (missed,) = _examined(settings, _log(tables, has_commits=True))
    assert (new.grade, missed.grade) == (Grade.NOTE, Grade.FAULT)
    assert "data.tables" in missed.remedy


def test_tables_that_follow_their_log_are_fine(tables: TablesOfLog) -> None:
    assert {f.grade for f in _examined(tables.settings, _log(tables))} == {Grade.FINE}


@pytest.mark.parametrize("table", [ROUTE_STATE, ROUTE_CHANGES])
def test_a_missing_data_file_is_a_fault(tables: TablesOfLog, table: str) -> None:
    tables.log.say(KvPut(S1, "n", "k", "v"))
    tables.commit()
    file = max((tables.dir / table).glob("*.parquet"))
    file.unlink()
    found = _fault(tables, None)
    assert file.name in found.text
    assert "restart the job" in found.remedy


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_broker_that_contradicts_its_data_version_is_a_warning(tables: TablesOfLog, is_compacted: bool) -> None:
    other = {"TopicTest": READ_ONLY, **BASE}
    tables.log.register(a_registration(topics=other, registration_hash="other"))
    tables.commit()
    if is_compacted:
        tables.compact()

    (found,) = contradictions(read_route_tables(tables.settings))

    assert found.grade is Grade.WARNING
    assert found.text.startswith("broker-a at 10.0.0.1:10911 reports other queues")
    assert "no new DataVersion: TopicTest;" in found.text
    assert "mqadmin updateTopic" in found.remedy


_RECORD = DrainRecord("2026-11-25T10:00:00.000Z", "ada@host", {"TopicTest": 6})
_RECORDED_MS = 1_795_600_800_000


@pytest.mark.parametrize("is_compacted", [True, False])
@pytest.mark.parametrize(
    ("value", "is_wiped", "hours", "grade", "text"),
    [
        (_RECORD.encode(), True, 1, Grade.NOTE, "broker-a has been drained since 2026-11-25T10:00:00.000Z by ada@host"),
        (_RECORD.encode(), True, 25, Grade.WARNING, "for more than a day"),
        (_RECORD.encode(), False, 1, Grade.WARNING, "but the write permission is back for 1 of 1 topic"),
        ("{}", True, 1, Grade.WARNING, f"the KV entry {DRAINED_BROKERS}/broker-a is not the record of a drain"),
    ],
)
def test_a_broker_that_is_being_drained_is_a_finding(
    tables: TablesOfLog, is_compacted: bool, value: str, is_wiped: bool, hours: int, grade: Grade, text: str
) -> None:
    tables.log.say(KvPut(S1, DRAINED_BROKERS, "broker-a", value))
    if is_wiped:
        tables.log.say(WritePermChanged(S1, "broker-a", False))
    tables.commit()
    if is_compacted:
        tables.compact()

    (found,) = drains(read_route_tables(tables.settings), _RECORDED_MS + hours * 3_600_000)

    assert found.grade is grade
    assert text in found.text
    assert ("drain broker-a --undo" if value != "{}" else f"kv delete {DRAINED_BROKERS} broker-a") in found.remedy


def test_without_a_drain_there_is_no_finding(tables: TablesOfLog) -> None:
    assert list(drains(read_route_tables(tables.settings), _RECORDED_MS)) == []


def test_missing_tables_are_a_note(tmp_path: Path) -> None:
    assert [f.grade for f in _examined(settings_in(tmp_path), None)] == [Grade.NOTE]


def test_tables_of_another_topic_are_a_fault(tables: TablesOfLog) -> None:
    assert "Kafka's data was replaced" in _fault(tables, _log(tables, topic_id="another")).text


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (None, "contains no topic"),
        ("QEtj_FHoS0GkzExsMDqigA", "Kafka's topic has 404b63fc-51e8-4b41-a4cc-4c6c303aa280: Kafka's data was replaced"),
        ("not an id", "contains no topic"),
    ],
)
def test_files_of_a_stopped_kafka_with_another_log_are_a_fault(
    tables: TablesOfLog, stored: str | None, text: str
) -> None:
    if stored is not None:
        _store_topic_id(tables.settings, stored)
    assert text in _fault(tables, None).text


def test_files_of_a_stopped_kafka_with_this_log_are_fine(tables: TablesOfLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_and_tables, "stored_topic_id", lambda _settings: TOPIC_ID)
    assert {f.grade for f in _examined(tables.settings, None)} == {Grade.FINE}


def _store_topic_id(settings: Settings, encoded: str) -> None:
    """Store a topic id in the file and the format that Kafka uses."""
    folder = settings.data.kafka_dir / "log" / f"{settings.kafka.broker_events_topic}-0"
    folder.mkdir(parents=True)
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {encoded}", encoding="ascii")


def test_records_removed_before_they_were_folded_are_a_fault(tables: TablesOfLog) -> None:
    log = _log(tables, earliest={0: 500}, end={0: 600})
    assert f"partition 0 is folded to {tables.log.state.next_offset}, Kafka's is 500" in _fault(tables, log).text


def test_folded_records_that_kafka_has_removed_are_a_warning_if_no_state_covers_them(tables: TablesOfLog) -> None:
    covered = tables.log.state.next_offset
    tables.log.register(a_registration(broker_name="broker-z"))
    tables.commit()
    log = _log(tables, earliest={0: covered + 1})
    found = _examined(tables.settings, log)[-1]
    assert found.grade is Grade.WARNING
    assert f"partition 0 is folded to {covered}, Kafka's is {covered + 1} in route_state" in found.text
    tables.compact()
    assert {f.grade for f in _examined(tables.settings, log)} == {Grade.FINE}


def test_records_that_kafka_lost_are_a_fault(tables: TablesOfLog) -> None:
    assert "Kafka has lost records" in _fault(tables, _log(tables, end={0: 0})).text


def test_a_missing_topic_is_a_fault_if_there_are_tables_of_it(tables: TablesOfLog) -> None:
    found = _fault(tables, replace(_log(tables), events=None))
    assert TOPIC_ID in found.text
    assert "start no part" in found.remedy
    without_right = replace(
        _log(tables), events=None, missing_rights={tables.settings.kafka.broker_events_topic: ("Describe",)}
    )
    assert Grade.FAULT not in {f.grade for f in _examined(tables.settings, without_right)}


def test_many_records_not_folded_are_a_warning(tables: TablesOfLog) -> None:
    found = _examined(tables.settings, _log(tables, end={0: 1_000_000}))
    assert found[-1].grade is Grade.WARNING


def test_a_column_that_this_version_does_not_know_is_a_fault(tables: TablesOfLog) -> None:
    DeltaTable(tables.dir / ROUTE_CHANGES).alter.add_columns([Field("from_the_future", PrimitiveType("string"))])
    found = _fault(tables, None)
    assert "from_the_future" in found.text
    assert "rebuild" in found.remedy


def test_a_removed_file_of_rows_is_a_fault(tables: TablesOfLog) -> None:
    for folder in tables.dir.iterdir():
        for file in folder.glob("*.parquet"):
            file.unlink()
    assert "is missing" in _fault(tables, None).text


def test_a_state_of_a_newer_fold_is_a_fault(tables: TablesOfLog) -> None:
    StateWriter(tables.storage).cover({0: FoldStateRow(2, 1_000, b'{"state_version": 99}')})
    assert "version 99" in _fault(tables, None).text


def test_a_damaged_history_table_is_a_fault(tables: TablesOfLog) -> None:
    folder = tables.dir / "route_archive"
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / f"{0:020}.json").write_text("{")
    assert [f.grade for f in _examined_history(tables.settings)] == [Grade.FAULT]
    shutil.rmtree(folder)
    assert [f.grade for f in _examined_history(tables.settings)] == [Grade.NOTE]


def _examined_history(settings: Settings, now_ms: int = 0) -> list[Finding]:
    return list(history_tables(settings, read_route_tables(settings), now_ms))


@pytest.fixture
def history(tmp_path: Path) -> HistoryOfLogs:
    log = Log()
    log.register(a_registration())
    history = HistoryOfLogs(tmp_path, log)
    history.write_all()
    return history


def test_history_tables_of_another_topic_are_a_fault(history: HistoryOfLogs) -> None:
    assert [f.grade for f in _examined_history(history.settings)] == [Grade.FINE]
    table = DeltaTable(history.settings.data.tables_dir / "route_archive")
    table.alter.set_table_properties({"namesrv_stream.topic_id": "another"}, raise_if_not_exists=False)
    (found,) = _examined_history(history.settings)
    assert found.grade is Grade.FAULT
    assert f"route_archive belongs to a topic with the id another, route_changes to {TOPIC_ID}" in found.text


def test_a_history_that_no_process_writes_is_a_warning_while_a_job_runs(
    history: HistoryOfLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = history.settings
    write_run_file(settings.data.run_dir / "job.json", {})
    os.utime(settings.data.run_dir / "job.json", (BEGIN_MS / 1000, BEGIN_MS / 1000))
    for module in ("tools.doctor.log_and_tables", "settings.installation"):
        monkeypatch.setattr(f"namesrv_stream.{module}.running_parts", lambda _run_dir: {"job": {}})
    late_ms = BEGIN_MS + settings.history.late_after_ms
    assert [f.grade for f in _examined_history(settings, late_ms)] == [Grade.FINE]
    found = _examined_history(settings, late_ms + 1_000)
    assert [f.grade for f in found] == [Grade.FINE, Grade.WARNING]
    assert found[-1].text.startswith("no history-job runs on this data directory; the data ends at 2023-11-14")
