"""Replay and rebuild from the archive equal those from Kafka; records that neither has are reported."""

from pathlib import Path
from random import Random
from typing import Final

import pyarrow.compute as pc
import pytest

from namesrv_stream.errors import ConfigError, KafkaUnreachable
from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.table_errors import NoStartPoint, NotInHistory, RebuildRefused
from namesrv_stream.tables.layout import BROKER_EVENTS, ROUTE_CHANGES
from namesrv_stream.tables.route_writers import StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tools.replay.log_archive import OpenLog, log_opener
from namesrv_stream.tools.replay.rebuild import Consent, rebuild
from namesrv_stream.tools.replay.replay import Replay, ReplayRange, replay
from namesrv_stream.tools.replay.replay_commands import parse_offsets
from namesrv_stream.tools.replay.replay_report import Rebuild, replay_json, replay_text
from namesrv_stream.tools.tool_options import Source
from tests.support.builders import Log
from tests.support.history_tables import HistoryOfLogs, write_archive
from tests.support.log_source import opens, source_of
from tests.support.random_events import append_random_events
from tests.support.table_edits import rewrite_rows

RECORDS: Final = 600
COMPACTED: Final = 400  # offset at which route_state was written


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> HistoryOfLogs:
    """Two partitions of every kind of event, folded; a ``route_state`` at record 400, and later one at the end."""
    logs = [Log(partition=partition, partitions=2) for partition in (0, 1)]
    tables = HistoryOfLogs(tmp_path_factory.mktemp("written"), *logs)
    for records in (COMPACTED, RECORDS - COMPACTED):
        for log in logs:
            append_random_events(log, Random(log.state.partition), records)
        tables.commit()
        states = [log.state for log in logs]
        rows = {s.partition: FoldStateRow(s.next_offset, s.at_ms, encode_state(s)) for s in states}
        StateWriter(tables_of(tables.settings)).cover(rows)
    return tables


@pytest.fixture
def tables(written: HistoryOfLogs, tmp_path: Path) -> HistoryOfLogs:
    return written.copied(tmp_path)


def _archive(tables: HistoryOfLogs, *spans: tuple[int, int]) -> None:
    """Archive the records of these offsets of both partitions."""
    write_archive(tables.settings, [r for log in tables.logs for begin, end in spans for r in log.records[begin:end]])


def _opener(tables: HistoryOfLogs, source: Source, kafka: OpenLog | int, *, needs_kafka: bool = False) -> OpenLog:
    """Return an opener of the log; Kafka has the records from an offset on."""
    if isinstance(kafka, int):
        kafka = opens(source_of(*tables.logs, earliest=kafka))
    return log_opener(source, needs_kafka=needs_kafka, open_kafka=kafka)


def _no_kafka(settings: object) -> object:
    raise KafkaUnreachable("nowhere:1", "refused")


def _replay(
    tables: HistoryOfLogs, source: Source, kafka: OpenLog | int = 0, *, begin: str = "", end: str = ""
) -> Replay:
    wanted = ReplayRange(parse_offsets("--from-offset", begin.split()), parse_offsets("--to-offset", end.split()), None)
    return replay(tables.settings, wanted, lambda p, done, total: None, _opener(tables, source, kafka))


def _stores(outcome: Replay) -> list[list[tuple[str, int, int]]]:
    return [[(piece.store.value, piece.begin, piece.end) for piece in part.read_from] for part in outcome.partitions]


def _facts(outcome: Replay) -> list[tuple[object, ...]]:
    return [(p.records, p.rows, p.dead_letters, p.is_state_compared, p.folded_digest) for p in outcome.partitions]


@pytest.mark.parametrize("kafka_begin", [0, 250, 600])
def test_replay_of_the_archive_equals_a_replay_of_kafka(tables: HistoryOfLogs, kafka_begin: int) -> None:
    expected = _replay(tables, Source.KAFKA)
    assert expected.is_equal
    assert all(part.dead_letters for part in expected.partitions)  # the records contain invalid ones
    _archive(tables, (0, 500) if kafka_begin < 500 else (0, RECORDS))
    outcome = _replay(tables, Source.ARCHIVE, kafka_begin)
    assert outcome.is_equal
    assert outcome.digest == expected.digest
    assert _facts(outcome) == _facts(expected)
    tail = [("kafka", 500, RECORDS)] if kafka_begin < 500 else []
    assert _stores(outcome) == [[("archive", 0, 500 if tail else RECORDS), *tail]] * 2


def test_replay_prefers_kafka_and_otherwise_reads_the_archive(tables: HistoryOfLogs) -> None:
    _archive(tables, (0, RECORDS))
    assert _stores(_replay(tables, Source.AUTO, 0)) == [[("kafka", 0, RECORDS)]] * 2
    from_state = _replay(tables, Source.AUTO, 300)
    assert [part.origin for part in from_state.partitions] == ["route_state, version 1"] * 2
    assert _stores(from_state) == [[("kafka", COMPACTED, RECORDS)]] * 2
    earlier = _replay(tables, Source.AUTO, 300, begin="200")
    assert [(part.origin, part.compared_from) for part in earlier.partitions] == [("the beginning of the log", 200)] * 2
    assert _stores(earlier) == [[("archive", 0, 300), ("kafka", 300, RECORDS)]] * 2
    assert from_state.is_equal
    assert earlier.is_equal


def test_without_kafka_replay_ends_with_the_archive_and_reports_it(tables: HistoryOfLogs) -> None:
    _archive(tables, (0, 450))
    outcome = _replay(tables, Source.AUTO, _no_kafka)  # type: ignore[arg-type]
    assert outcome.is_equal
    assert [part.end for part in outcome.partitions] == [450, 450]
    assert "Kafka at nowhere:1 does not answer (refused): the log ends with broker_events" in (replay_text(outcome))
    with pytest.raises(ConfigError, match="--to-offset: is 500, but broker_events ends at 450 in partition 0"):
        _replay(tables, Source.ARCHIVE, _no_kafka, end="500")  # type: ignore[arg-type]
    with pytest.raises(KafkaUnreachable):
        _replay(tables, Source.KAFKA, _no_kafka)  # type: ignore[arg-type]


def test_without_kafka_and_archive_the_error_is_about_kafka(tables: HistoryOfLogs) -> None:
    with pytest.raises(KafkaUnreachable):
        _replay(tables, Source.AUTO, _no_kafka)  # type: ignore[arg-type]
    with pytest.raises(NotInHistory):
        _replay(tables, Source.ARCHIVE, _no_kafka)  # type: ignore[arg-type]


def test_the_error_names_the_missing_archive_if_it_was_requested(tables: HistoryOfLogs) -> None:
    with pytest.raises(NotInHistory, match="there is no table broker_events"):
        _replay(tables, Source.ARCHIVE)


def test_gap_in_the_log_is_an_error(tables: HistoryOfLogs) -> None:
    _archive(tables, (0, 100), (200, 300))
    outcome = _replay(tables, Source.AUTO, 250, begin="450")
    gap = "partition 0: the records 100 to 199 are missing: Kafka removed them while the history did not run"
    assert outcome.is_equal
    assert [part.folded_from for part in outcome.partitions] == [COMPACTED] * 2
    assert gap in replay_text(outcome)
    assert any(note.startswith(gap) for note in replay_json(outcome)["notes"])
    words = f"complete from 200 on .{gap}.* at or before offset 220 .* folded from {COMPACTED} on"
    with pytest.raises(NoStartPoint, match=words):
        _replay(tables, Source.AUTO, 250, begin="220")


def test_records_before_a_gap_can_be_replayed(tables: HistoryOfLogs) -> None:
    _archive(tables, (0, 100), (200, 300))
    outcome = _replay(tables, Source.AUTO, 250, end="80")
    assert outcome.is_equal
    assert _stores(outcome) == [[("archive", 0, 80)]] * 2


def test_records_removed_by_retention_are_reported(tables: HistoryOfLogs) -> None:
    _archive(tables, (50, 300))
    outcome = _replay(tables, Source.ARCHIVE, 250, begin="450")
    assert outcome.is_equal
    assert "partition 1: the records 0 to 49 are missing: removed for their age" in replay_text(outcome)


def test_an_edited_row_of_the_archive_is_found(tables: HistoryOfLogs) -> None:
    _archive(tables, (0, RECORDS))
    row = next(row for row in tables.logs[1].output.changes if row.kind == "queue_data" and row.perm == 6)
    record = tables.logs[1].records[row.offset]
    edited = record.value.decode().replace("[8,8,6,0]", "[8,8,2,0]")
    assert edited != record.value.decode()
    is_it = (pc.field("partition") == 1) & (pc.field("offset") == row.offset)
    assert rewrite_rows(tables.settings.data.tables_dir, BROKER_EVENTS, "value", edited, is_it) == 1
    found = _replay(tables, Source.ARCHIVE).difference
    assert found is not None
    assert (found.partition, found.offset, found.columns) == (1, row.offset, ("perm",))
    assert _replay(tables, Source.KAFKA).is_equal


def test_row_removed_from_the_archive_is_a_gap(tables: HistoryOfLogs) -> None:
    _archive(tables, (0, 77), (78, RECORDS))
    with pytest.raises(NoStartPoint, match="the records 77 to 77 are missing"):
        _replay(tables, Source.ARCHIVE, RECORDS, begin="90")


def test_an_archive_of_another_topic_is_left_out_or_refused(tables: HistoryOfLogs) -> None:
    write_archive(tables.settings, tables.logs[0].records, topic_id="another")
    with pytest.raises(ConfigError, match="broker_events belongs to topic id another"):
        _replay(tables, Source.ARCHIVE)
    outcome = _replay(tables, Source.AUTO, 300)
    assert outcome.is_equal
    assert "broker_events belongs to topic id another" in outcome.notes[0]


def _rebuild(tables: HistoryOfLogs, kafka: OpenLog | int, said: list[str]) -> Rebuild:
    opener = _opener(tables, Source.AUTO, kafka, needs_kafka=True)
    consent = Consent(loss=False, differences=False)
    return rebuild(tables.settings, consent, said.append, lambda p, done, total: None, opener)


def test_lost_tables_are_rebuilt_from_the_archive_and_kafka(tables: HistoryOfLogs) -> None:
    digest = _replay(tables, Source.KAFKA).digest
    for name in (ROUTE_CHANGES, "route_state"):
        (tables.settings.data.tables_dir / name).rename(tables.settings.data.dir / name)
    with pytest.raises(RebuildRefused):
        _rebuild(tables, 300, [])
    _archive(tables, (0, 350))
    said: list[str] = []
    outcome = _rebuild(tables, 300, said)
    assert outcome.proof.digest == digest
    assert outcome.losses == ()
    expected = "from the beginning of the log, folding 0 to 299 from broker_events, 300 to 599 from Kafka"
    assert f"partition 1: {expected}" in said


def test_lost_route_changes_are_rebuilt_from_the_archive_without_loss(
    tables: HistoryOfLogs,
) -> None:
    _archive(tables, (0, 350))
    (tables.settings.data.tables_dir / ROUTE_CHANGES).rename(tables.settings.data.dir / ROUTE_CHANGES)
    outcome = _rebuild(tables, 300, [])
    assert outcome.losses == ()
    assert sum(part.rows for part in outcome.proof.partitions) == len(tables.changes)


def test_a_rebuild_needs_kafka_for_the_end_of_the_log(tables: HistoryOfLogs) -> None:
    _archive(tables, (0, RECORDS))
    with pytest.raises(KafkaUnreachable):
        _rebuild(tables, _no_kafka, [])  # type: ignore[arg-type]
