"""A replay finds the tables equal to the log, or their first difference."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings

from namesrv_stream.errors import ConfigError
from namesrv_stream.route.digest import digest_of, total_of
from namesrv_stream.route.events import KvPut, TopicDeleted
from namesrv_stream.table_errors import LogTruncated, NoStartPoint, TableSchemaMismatch
from namesrv_stream.tables.change_rows import FOLD_STATE_KIND
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.snapshot import load_snapshot
from namesrv_stream.tools.replay import log_fold
from namesrv_stream.tools.replay.comparison import Difference
from namesrv_stream.tools.replay.replay import Replay, ReplayRange, replay
from namesrv_stream.tools.replay.replay_commands import parse_offsets
from namesrv_stream.tools.replay.replay_report import replay_json, replay_text
from tests.support.builders import S1, S2, a_registration
from tests.support.examples import examples
from tests.support.log_source import opens, source_of
from tests.support.strategies_route import Entry, logs
from tests.support.table_edits import add_rows, drop_rows, rewrite_rows
from tests.support.tables import TablesOfLog

_IS_ENTRY = pc.field("key").is_valid() & (pc.field("key") == "key")


def _replay(
    tables: TablesOfLog, *, begin: str = "", end: str = "", end_ms: int | None = None, earliest: int = 0
) -> Replay:
    wanted = ReplayRange(
        parse_offsets("--from-offset", begin.split()), parse_offsets("--to-offset", end.split()), end_ms
    )
    log = source_of(tables.log, earliest=earliest)
    return replay(tables.settings, wanted, lambda partition, done, total: None, opens(log))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> TablesOfLog:
    """A log with a compaction in the middle and one near the end, and rows after it."""
    tables = TablesOfLog(tmp_path_factory.mktemp("written"))
    log = tables.log
    log.started(S1)
    log.register(a_registration())
    log.register(a_registration("10.0.0.2:10911", 1), S2)
    log.say(KvPut(S1, "ns", "key", "value"))
    tables.commit()
    tables.compact()
    log.pass_time(20_000, S1, S2)
    log.say(TopicDeleted(S1, "TopicTest", None))
    log.heard(a_registration())
    tables.commit()
    tables.compact()
    log.say(KvPut(S1, "ns", "key", "other"))
    log.pass_time(5_000)
    tables.commit()
    return tables


@pytest.fixture
def tables(written: TablesOfLog, tmp_path: Path) -> TablesOfLog:
    return written.copied(tmp_path)


@pytest.mark.parametrize("rows_at_once", [1, 4, 200_000])
def test_tables_that_the_job_wrote_are_equal(
    tables: TablesOfLog, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_fold, "_ROWS", rows_at_once)
    outcome = _replay(tables)
    (part,) = outcome.partitions
    assert outcome.is_equal
    assert (part.origin, part.folded_from, part.compared_from) == ("the beginning of the log", 0, 0)
    assert (part.end, part.records) == (len(tables.log.records), len(tables.log.records))
    assert part.rows == len(tables.log.output.changes)
    assert part.is_state_compared


def test_the_digest_equals_that_of_a_server(tables: TablesOfLog) -> None:
    served = digest_of(load_snapshot(tables.storage).table, 1)
    outcome = _replay(tables)
    assert outcome.digest == served.total
    assert outcome.partitions[0].stored_digest == outcome.partitions[0].folded_digest == served.partitions[0]
    assert outcome.digest == total_of(served.partitions)


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(logs(min_size=10))
def test_tables_of_any_log_are_equal_to_a_replay_of_any_range(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Entry]
) -> None:
    tables = TablesOfLog(tmp_path_factory.mktemp("data"))
    for number, entry in enumerate(entries):
        tables.log.append(entry.value, entry.after_ms)
        if number % 4 == 3:
            tables.commit()
            tables.compact()
    tables.commit()
    assert _replay(tables).is_equal
    middle = len(entries) // 2
    assert _replay(tables, begin=str(middle)).is_equal
    assert _replay(tables, end=str(middle)).is_equal
    assert _replay(tables, begin=str(middle), earliest=middle - middle % 4).is_equal


def test_a_replay_from_an_offset_folds_from_the_newest_state_before_it(tables: TablesOfLog) -> None:
    (part,) = _replay(tables, begin="6").partitions
    assert (part.origin, part.folded_from, part.compared_from) == ("route_state, version 1", 4, 6)
    assert part.difference is None
    assert part.rows == sum(row.offset >= 6 for row in tables.log.output.changes)


def test_replay_from_offset_0_uses_no_stored_state(tables: TablesOfLog) -> None:
    assert _replay(tables, begin="0").partitions[0].origin == "the beginning of the log"


def test_replay_of_a_truncated_log_begins_with_the_oldest_usable_state(tables: TablesOfLog) -> None:
    (part,) = _replay(tables, earliest=3).partitions
    assert (part.folded_from, part.difference) == (4, None)
    late = len(tables.log.records) - 3
    with pytest.raises(NoStartPoint, match=f"partition 0: the log is complete from {late} on"):
        _replay(tables, earliest=late)


def test_a_replay_to_a_time_ends_before_the_first_record_of_that_time(tables: TablesOfLog) -> None:
    at_ms = tables.log.records[5].at_ms
    (part,) = _replay(tables, end_ms=at_ms).partitions
    assert part.end == next(record.offset for record in tables.log.records if record.at_ms >= at_ms)
    assert part.difference is None
    everything = _replay(tables, end_ms=tables.log.now_ms + 60_000)
    assert everything.partitions[0].end == len(tables.log.records)
    assert "is after the end of the data: all of it was replayed" in "".join(everything.notes)
    assert "beyond the end" not in "".join(_replay(tables, end_ms=at_ms).notes)


def test_records_that_the_job_has_not_folded_yet_are_left_out(tables: TablesOfLog) -> None:
    covered = len(tables.log.records)
    tables.log.register(a_registration("10.0.0.3:10911", 2))
    assert _replay(tables).partitions[0].end == covered
    with pytest.raises(ConfigError, match=f"the tables end at {covered}"):
        _replay(tables, end=str(covered + 1))


def test_a_partition_that_the_topic_does_not_have_is_refused(tables: TablesOfLog) -> None:
    with pytest.raises(ConfigError, match="--from-offset: there is no partition 7"):
        _replay(tables, begin="7:3")
    with pytest.raises(ConfigError, match="--to-offset: there is no partition 1"):
        _replay(tables, end="1:3")


def test_an_end_time_before_the_log_is_refused(tables: TablesOfLog) -> None:
    seconds = tables.log.records[-1].at_ms // 1_000  # Unix time in seconds instead of milliseconds
    with pytest.raises(ConfigError, match=r"--to-time: the log has no record from before 1970-01-"):
        _replay(tables, end_ms=seconds)


def test_end_before_the_earliest_possible_start_is_an_error(tables: TablesOfLog) -> None:
    with pytest.raises(NoStartPoint, match=r"at or before offset 3 .* it can be folded from 4 on"):
        _replay(tables, end="3", earliest=3)


def test_a_range_that_ends_before_it_begins_is_refused(tables: TablesOfLog) -> None:
    with pytest.raises(ConfigError, match="after its end"):
        _replay(tables, begin="5", end="4")


def _difference(tables: TablesOfLog) -> Difference:
    found = _replay(tables).difference
    assert found is not None
    return found


def test_different_row_is_found_with_both_values(tables: TablesOfLog) -> None:
    row = next(r for r in tables.log.output.changes if r.kind == "queue_data" and r.topic == "TopicTest")
    is_it = (pc.field("offset") == row.offset) & (pc.field("seq") == row.seq)
    assert rewrite_rows(tables.dir, ROUTE_CHANGES, "perm", 2, is_it) == 1
    found = _difference(tables)
    assert (found.where, found.offset, found.seq, found.kind) == ("route_changes", row.offset, row.seq, "queue_data")
    assert found.key == {"topic": "TopicTest", "broker_name": "broker-a"}
    assert found.columns == ("perm",)
    assert found.stored is not None
    assert found.folded is not None
    assert (found.stored["perm"], found.folded["perm"]) == (2, 6)


def test_a_row_that_is_missing_is_found(tables: TablesOfLog) -> None:
    row = tables.log.output.changes[3]
    drop_rows(tables.dir, (pc.field("offset") == row.offset) & (pc.field("seq") == row.seq))
    found = _difference(tables)
    assert (found.offset, found.seq, found.stored) == (row.offset, row.seq, None)
    assert found.folded is not None


def test_additional_row_is_found(tables: TablesOfLog) -> None:
    last = tables.log.output.changes[-1]
    stored = DeltaTable(tables.dir / ROUTE_CHANGES).to_pyarrow_table()
    rows = stored.filter(pc.field("offset") == last.offset).slice(0, 1)
    seq = rows.schema.get_field_index("seq")
    add_rows(tables.dir, rows.set_column(seq, rows.schema.field("seq"), pa.array([99], pa.int32())))
    found = _difference(tables)
    assert (found.offset, found.seq, found.folded) == (last.offset, 99, None)


def test_different_row_of_route_state_is_found(tables: TablesOfLog) -> None:
    assert rewrite_rows(tables.dir, ROUTE_STATE, "ha_server_addr", "9.9.9.9:1", pc.field("kind") == "broker_live")
    found = _difference(tables)
    assert (found.where, found.kind, found.columns) == ("table", "broker_live", ("ha_server_addr",))
    assert found.key["broker_addr"] == "10.0.0.1:10911"


def test_different_fold_state_is_found(tables: TablesOfLog) -> None:
    path = tables.dir / ROUTE_STATE
    rows = DeltaTable(path).to_pyarrow_table().filter(pc.field("kind") == FOLD_STATE_KIND)
    state = json.loads(rows["state"][0].as_py())
    state["observed_ms"] += 1
    rewrite_rows(tables.dir, ROUTE_STATE, "state", json.dumps(state).encode(), pc.field("kind") == FOLD_STATE_KIND)
    found = _difference(tables)
    assert (found.where, found.columns) == ("fold_state", ("observed_ms",))


def test_differing_broker_of_a_fold_state_is_shown(tables: TablesOfLog) -> None:
    for number in range(20):
        tables.log.register(a_registration(broker_name=f"broker-{number:02d}"))
    tables.commit()
    tables.compact()
    path = tables.dir / ROUTE_STATE
    rows = DeltaTable(path).to_pyarrow_table().filter(pc.field("kind") == FOLD_STATE_KIND)
    state = json.loads(rows["state"][0].as_py())
    hit = next(lease for lease in state["leases"] if lease[0] == "broker-13")
    hit[4] = "another hash"
    rewrite_rows(tables.dir, ROUTE_STATE, "state", json.dumps(state).encode(), pc.field("kind") == FOLD_STATE_KIND)
    found = _difference(tables)
    assert found.stored is not None
    assert found.folded is not None
    assert (found.stored["leases"][0], found.stored["leases"][4]) == ("broker-13", "another hash")
    assert found.folded["leases"][0] == "broker-13"


def test_rows_that_their_retention_removed_are_no_difference(tables: TablesOfLog) -> None:
    retention_ms = tables.settings.streaming.changes_retention_ms
    before = len(tables.log.output.changes)
    tables.log.register(a_registration(), S1, 7, after_ms=retention_ms + 60_000)
    tables.commit()
    tables.compact()
    drop_rows(tables.dir, pc.field("at_ms") < tables.log.now_ms - retention_ms)
    outcome = _replay(tables)
    assert outcome.is_equal
    assert outcome.partitions[0].rows_past_retention == before
    assert outcome.digest is not None


def test_the_error_about_a_missing_table_names_rebuild(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    (tmp_path / "tables" / ROUTE_CHANGES).rename(tmp_path / "away")
    with pytest.raises(TableSchemaMismatch, match="namesrv-stream rebuild"):
        _replay(tables)


@pytest.mark.parametrize("name", [ROUTE_CHANGES, ROUTE_STATE])
def test_a_table_that_cannot_be_read_is_named(tables: TablesOfLog, name: str) -> None:
    for path in (tables.dir / name).glob("*.parquet"):
        path.write_bytes(b"damaged")
    with pytest.raises(TableSchemaMismatch, match=rf"{name}: rows-\w+\.parquet is damaged"):
        _replay(tables)


def test_a_log_that_lost_its_end_is_refused(tables: TablesOfLog) -> None:
    log = source_of(tables.log, end=5)
    wanted = ReplayRange(parse_offsets("a", ()), parse_offsets("b", ()), None)
    with pytest.raises(LogTruncated, match="rebuild --accept-loss"):
        replay(tables.settings, wanted, lambda partition, done, total: None, opens(log))


def test_text_shows_equality_or_the_difference(tables: TablesOfLog) -> None:
    equal = _replay(tables)
    assert f"equal, digest {equal.digest}" in replay_text(equal)
    rewrite_rows(tables.dir, ROUTE_CHANGES, "value", "damaged", _IS_ENTRY)
    text = replay_text(_replay(tables))
    assert "NOT equal" in text
    assert "stored: value=damaged" in text
    assert "folded: value=value" in text


def test_json_shows_equality_or_the_difference(tables: TablesOfLog) -> None:
    fields = replay_json(_replay(tables))
    assert (fields["equal"], fields["first_difference"]) == (True, None)
    rewrite_rows(tables.dir, ROUTE_CHANGES, "value", "damaged", _IS_ENTRY)
    fields = replay_json(_replay(tables))
    assert fields["equal"] is False
    assert fields["first_difference"]["columns"] == ("value",)


@pytest.mark.parametrize(("texts", "expected"), [((), [None, None]), (("5",), [5, 5]), (("5", "1:7"), [5, 7])])
def test_an_offset_applies_to_all_partitions_or_to_the_named_one(
    texts: tuple[str, ...], expected: list[int | None]
) -> None:
    offsets = parse_offsets("--from-offset", texts)
    assert [offsets.get(partition) for partition in (0, 1)] == expected


@pytest.mark.parametrize("text", ["", "x", "1:", ":1", "-1", "0:x"])
def test_invalid_offset_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--from-offset"):
        parse_offsets("--from-offset", [text])
