"""Where the fold goes on."""

import json
from pathlib import Path

import pytest

from namesrv_stream.errors import LogTruncated, StateFromNewerVersion
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.fold import GroupDict
from namesrv_stream.route.fold_state import decode_state
from namesrv_stream.route.group_json import decode_group
from namesrv_stream.snapshot.table_reader import FoldStateRow
from namesrv_stream.streaming.compaction import write_route_state
from namesrv_stream.streaming.start_point import InitialState, checkpoint_offsets, find_start_point
from namesrv_stream.streaming.topic import TopicExtent
from namesrv_stream.tables import ROUTE_STATE, table_path
from tests.support.builders import S1, Log, a_registration
from tests.support.tables import TOPIC_ID, TablesOfLog


def _extent(earliest: int, end: int) -> TopicExtent:
    return TopicExtent(TOPIC_ID, {0: earliest}, {0: end})


def _checkpoint(tables: TablesOfLog, *, batches: int, committed: int) -> Path:
    """As Spark writes it: batch n ends at offset 10 (n + 1)."""
    folder = tables.settings.data.checkpoint_dir
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    topic = tables.settings.kafka.broker_events_topic
    for batch in range(batches):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({topic: {"0": 10 * (batch + 1)}})]
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))
    for batch in range(committed):
        (folder / "commits" / str(batch)).write_text("v1\n{}")
        (folder / "commits" / f".{batch}.crc").write_text("")
    return folder


def test_a_checkpoint_goes_on_after_its_last_whole_batch(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.tick()
    tables.commit()
    folder = _checkpoint(tables, batches=12, committed=11)
    assert checkpoint_offsets(folder, tables.settings.kafka.broker_events_topic) == {0: 110}
    start = find_start_point(tables.settings, _extent(0, 500))
    assert (start.origin, start.offsets, start.initial_state) == ("checkpoint", {0: 110}, [])


def test_a_checkpoint_whose_tables_were_made_anew_is_removed(tmp_path: Path) -> None:
    # They may be there from a start that was killed before it came to remove the checkpoint.
    tables = TablesOfLog(tmp_path)
    folder = _checkpoint(tables, batches=3, committed=3)
    start = find_start_point(tables.settings, _extent(0, 500))
    assert (start.origin, start.offsets) == ("log", {0: 0})
    assert not folder.exists()


def test_a_checkpoint_without_a_whole_batch_is_removed(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    folder = _checkpoint(tables, batches=1, committed=0)
    assert find_start_point(tables.settings, _extent(0, 500)).origin == "log"
    assert not folder.exists()


def test_without_a_checkpoint_it_goes_on_from_route_state(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    tables.compact()
    start = find_start_point(tables.settings, _extent(0, 500))
    assert (start.origin, start.offsets) == ("route_state", {0: 1})
    assert {name for _, name, _ in start.initial_state} == {None, "broker-a"}


def test_an_empty_table_begins_where_the_log_begins(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    assert find_start_point(tables.settings, _extent(40, 50)).offsets == {0: 40}


def test_a_record_that_kafka_no_longer_has_is_refused(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.tick()
    tables.commit()
    _checkpoint(tables, batches=1, committed=1)
    with pytest.raises(LogTruncated) as refused:
        find_start_point(tables.settings, _extent(11, 50))
    assert (refused.value.partition, refused.value.wanted, refused.value.earliest) == (0, 10, 11)


def test_the_error_says_what_is_missing_and_what_helps(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.tick()
    tables.commit()
    _checkpoint(tables, batches=1, committed=1)
    for extent, text in ((_extent(11, 50), "begins at 11"), (_extent(0, 9), "ends at 9")):
        with pytest.raises(
            LogTruncated, match=f"offset 10 .* log {text}: .* run `namesrv-stream rebuild --accept-loss`"
        ):
            find_start_point(tables.settings, extent)


def test_a_checkpoint_that_cannot_be_read_is_removed(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    tables.compact()
    folder = _checkpoint(tables, batches=2, committed=2)
    (folder / "offsets" / "1").write_text("")
    assert find_start_point(tables.settings, _extent(0, 500)).origin == "route_state"
    assert not folder.exists()


def test_rows_without_state_are_folded_again_where_the_log_is_whole(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    start = find_start_point(tables.settings, _extent(0, 50))
    assert (start.origin, start.offsets, start.initial_state) == ("log", {0: 0}, [])


def test_rows_without_state_are_not_enough_where_records_after_them_are_gone(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    with pytest.raises(LogTruncated):
        find_start_point(tables.settings, _extent(2, 50))


def _continued(tables: TablesOfLog, initial: InitialState) -> Log:
    """The log as a fold from the initial state goes on with it."""
    log = tables.log
    (state,) = [decode_state(content) for _, name, content in initial if name is None]
    assert state.next_offset == log.state.next_offset
    log.state, log.groups = state, GroupDict({n: decode_group(c) for _, n, c in initial if n is not None})
    return log


@pytest.mark.parametrize("has_old_state", [False, True])
def test_without_state_and_with_a_cut_log_all_brokers_start_again_at_age_zero(
    tmp_path: Path, has_old_state: bool
) -> None:
    tables = TablesOfLog(tmp_path)
    heard, silent = a_registration(timeout_ms=20_000), a_registration("10.0.0.2:1", broker_name="b2", timeout_ms=20_000)
    gone = a_registration("10.0.0.3:1", broker_name="b3")
    tables.log.started(S1)
    tables.log.register(gone)
    if has_old_state:
        tables.commit()
        tables.compact()
    tables.log.change_settings(min_timeout_ms=10_000)
    tables.log.register(heard)
    tables.log.register(silent)
    tables.log.unregister(gone)
    tables.log.pass_time(19_000)
    tables.commit()
    groups = tables.log.groups.groups
    next_offset = tables.log.state.next_offset
    start = find_start_point(tables.settings, _extent(next_offset, next_offset))
    assert (start.origin, start.offsets) == ("tables, every broker at age zero", {0: next_offset})
    log = _continued(tables, start.initial_state)
    assert log.groups.groups == groups
    assert log.state.settings.min_timeout_ms == 10_000
    log.tick(3_600_000)
    log.pass_time(15_000)
    assert log.alive() == {"10.0.0.1:10911", "10.0.0.2:1"}
    log.heard(heard)
    log.heard(gone)
    assert log.pass_time(5_001)[0].cause == Cause.EXPIRED
    assert log.alive() == {"10.0.0.1:10911", "10.0.0.3:1"}


def test_a_state_of_a_newer_program_is_refused_with_the_way_out_and_nothing_is_removed(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    write_route_state(tables.settings, {0: FoldStateRow(1, 1_000, b'{"state_version": 99}')})
    folder = _checkpoint(tables, batches=3, committed=3)
    with pytest.raises(StateFromNewerVersion, match=r"version 99.*`namesrv-stream rebuild`"):
        find_start_point(tables.settings, _extent(0, 500))
    assert folder.exists()


def test_a_damaged_route_state_does_not_stop_a_job_that_has_a_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    tables.compact()
    for file in table_path(tables.dir, ROUTE_STATE).glob("*.parquet"):
        file.write_bytes(b"")
    _checkpoint(tables, batches=3, committed=3)
    assert find_start_point(tables.settings, _extent(0, 500)).origin == "checkpoint"
    assert "route_state cannot be read" in caplog.text
