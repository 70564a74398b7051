"""A rebuild makes tables that equal the log, and removes nothing before it has verified them."""

import errno
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings

from namesrv_stream.errors import ConfigError
from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.processes import job_lock
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.digest import digest_of
from namesrv_stream.route.events import KvPut, TopicDeleted
from namesrv_stream.route.fold.state import decode_state, encode_state
from namesrv_stream.streaming.route_table.fold_query import find_start_point
from namesrv_stream.table_errors import RebuildRefused
from namesrv_stream.tables.change_rows import decode_changes, in_log_order
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.repair import REBUILT, settle_swap
from namesrv_stream.tables.route_writers import StateWriter
from namesrv_stream.tables.snapshot import load_snapshot, read_newest_state
from namesrv_stream.tables.storage import Folder, tables_of
from namesrv_stream.tables.stored_changes import KeptStates
from namesrv_stream.tools.replay.rebuild import Consent, rebuild
from namesrv_stream.tools.replay.replay_report import Rebuild, rebuild_json, rebuild_text
from tests.support.builders import S1, S2, a_registration
from tests.support.examples import examples
from tests.support.log_source import opens, source_of
from tests.support.strategies_route import Entry, logs
from tests.support.table_edits import drop_rows, rewrite_rows
from tests.support.tables import TOPIC_ID, TablesOfLog, settings_in

_PLAN = "rebuild-swap.json"


def _rebuild(
    tables: TablesOfLog, *, loss: bool = False, differences: bool = False, earliest: int = 0, end: int | None = None
) -> Rebuild:
    log = source_of(tables.log, earliest=earliest, end=end)
    consent = Consent(loss=loss, differences=differences)
    return rebuild(tables.settings, consent, lambda text: None, lambda partition, done, total: None, opens(log))


def _rows(tables: TablesOfLog) -> list[RouteChange]:
    return decode_changes(in_log_order(DeltaTable(tables.dir / ROUTE_CHANGES).to_pyarrow_table()))


def _folders(tables: TablesOfLog) -> set[str]:
    return {path.name for path in tables.dir.iterdir() if path.is_dir()}


def _assert_as_the_log(tables: TablesOfLog) -> None:
    """Assert that the tables equal those of a job that folded the whole log, and that it continues from them."""
    log = tables.log
    assert _rows(tables) == log.output.changes
    loaded = load_snapshot(tables.storage)
    assert loaded.table.groups == log.groups.groups
    assert loaded.next_offsets == {0: log.state.next_offset}
    assert loaded.progress == {0: log.place()}
    extent = TopicExtent(TOPIC_ID, {0: len(log.records)}, {0: len(log.records)})
    start = find_start_point(KeptStates(tables.storage), loaded.next_offsets, {}, extent)
    assert start.offsets == {0: log.state.next_offset}
    (state,) = [content for _, name, content in start.initial_state if name is None]
    assert encode_state(decode_state(state)) == encode_state(log.state)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> TablesOfLog:
    """A log with a compaction in the middle, rows after it, and records that the job has not folded yet."""
    tables = TablesOfLog(tmp_path_factory.mktemp("written"))
    log = tables.log
    log.started(S1)
    log.register(a_registration())
    log.register(a_registration("10.0.0.2:10911", 1), S2)
    log.say(KvPut(S1, "ns", "key", "value"))
    tables.commit()
    tables.compact()
    log.pass_time(10_000, S1, S2)
    log.say(TopicDeleted(S1, "TopicTest", None))
    tables.commit()
    log.say(KvPut(S1, "ns", "key", "other"))
    log.pass_time(2_000)
    return tables


@pytest.fixture
def tables(written: TablesOfLog, tmp_path: Path) -> TablesOfLog:
    return written.copied(tmp_path)


def test_rebuild_makes_both_tables_from_the_whole_log(tables: TablesOfLog) -> None:
    outcome = _rebuild(tables)
    _assert_as_the_log(tables)
    assert (outcome.losses, outcome.difference) == ((), None)
    assert outcome.proof.digest == digest_of(load_snapshot(tables.storage).table, 1).total
    assert outcome.proof.partitions[0].is_state_compared


def test_a_state_that_a_newer_program_wrote_is_replaced(tables: TablesOfLog) -> None:
    kept = read_newest_state(tables.storage).fold_states[0]
    newer = replace(kept, next_offset=kept.next_offset + 1, content=b'{"state_version": 99}')
    StateWriter(tables.storage).cover({0: newer})
    assert b"99" in read_newest_state(tables.storage).fold_states[0].content
    _rebuild(tables)
    _assert_as_the_log(tables)


def test_old_tables_are_kept_under_a_dated_name(tables: TablesOfLog) -> None:
    before = _rows(tables)
    outcome = _rebuild(tables)
    kept = [Path(path) for path in outcome.kept]
    assert [path.name.split(".")[0] for path in kept] == [ROUTE_STATE, ROUTE_CHANGES]
    assert all(path.parent == tables.dir for path in kept)
    old = DeltaTable(kept[1])
    assert decode_changes(in_log_order(old.to_pyarrow_table())) == before
    assert _folders(tables) == {ROUTE_CHANGES, ROUTE_STATE, *(path.name for path in kept)}


@pytest.mark.parametrize("lost", [(ROUTE_CHANGES,), (ROUTE_STATE,), (ROUTE_CHANGES, ROUTE_STATE)])
def test_lost_tables_are_rebuilt_from_the_log_alone(tables: TablesOfLog, lost: tuple[str, ...]) -> None:
    for name in lost:
        shutil.rmtree(tables.dir / name)
    _rebuild(tables)
    _assert_as_the_log(tables)


def test_damaged_tables_are_rebuilt_from_the_log_alone(tables: TablesOfLog) -> None:
    for name in (ROUTE_CHANGES, ROUTE_STATE):
        for path in (tables.dir / name).rglob("*.json"):
            path.write_text("damaged")
    _rebuild(tables)
    _assert_as_the_log(tables)


def test_different_row_in_the_old_tables_needs_consent(tables: TablesOfLog) -> None:
    is_topic = pc.field("kind") == "broker_data"
    assert rewrite_rows(tables.dir, ROUTE_CHANGES, "zone_name", "elsewhere", is_topic)
    damaged = _rows(tables)
    with pytest.raises(RebuildRefused, match=r"zone_name=elsewhere.* --accept-differences"):
        _rebuild(tables)
    assert _rows(tables) == damaged
    assert _folders(tables) == {ROUTE_CHANGES, ROUTE_STATE}
    outcome = _rebuild(tables, differences=True)
    assert outcome.difference is not None
    assert outcome.difference.columns == ("zone_name",)
    _assert_as_the_log(tables)


def test_older_rows_are_kept_if_the_log_was_truncated(tables: TablesOfLog) -> None:
    outcome = _rebuild(tables, earliest=2)
    assert outcome.origins == {0: "route_state, version 1"}
    _assert_as_the_log(tables)


def test_a_gap_between_the_tables_and_the_log_needs_consent_and_leaves_brokers_at_age_zero(
    tables: TablesOfLog,
) -> None:
    covered = load_snapshot(tables.storage).next_offsets[0]
    before = load_snapshot(tables.storage).table
    with pytest.raises(RebuildRefused, match=f"the records {covered} to {covered} were removed .* --accept-loss"):
        _rebuild(tables, earliest=covered + 1)
    outcome = _rebuild(tables, earliest=covered + 1, loss=True)
    assert "age zero" in outcome.origins[0]
    loaded = load_snapshot(tables.storage)
    assert loaded.next_offsets == {0: len(tables.log.records)}
    assert loaded.table.groups == before.groups
    assert loaded.table.kv == {"ns": {"key": "value"}}  # entries that were written in the gap are not known
    rows = _rows(tables)
    assert rows == [row for row in tables.log.output.changes if row.offset < covered]
    state = decode_state(read_newest_state(tables.storage).fold_states[0].content)
    assert {holder.seen_ms for lease in state.leases.values() for holder in lease.holders.values()} == {0}


def test_rebuild_without_tables_and_with_a_truncated_log_needs_consent(tables: TablesOfLog) -> None:
    shutil.rmtree(tables.dir)
    with pytest.raises(RebuildRefused, match="the records 0 to 2 were removed"):
        _rebuild(tables, earliest=3)
    _rebuild(tables, earliest=3, loss=True)
    loaded = load_snapshot(tables.storage)
    assert loaded.next_offsets == {0: len(tables.log.records)}
    assert loaded.table.kv == {"ns": {"key": "other"}}


def test_rows_of_records_lost_in_kafka_are_dropped_with_consent(tables: TablesOfLog) -> None:
    covered = load_snapshot(tables.storage).next_offsets[0]
    with pytest.raises(RebuildRefused, match=f"Kafka has lost the records 6 to {covered - 1}"):
        _rebuild(tables, end=6)
    _rebuild(tables, end=6, loss=True)
    assert _rows(tables) == [row for row in tables.log.output.changes if row.offset < 6]
    assert load_snapshot(tables.storage).next_offsets == {0: 6}


def test_rows_that_cannot_be_read_and_are_in_no_log_need_consent(tables: TablesOfLog) -> None:
    for path in (tables.dir / ROUTE_CHANGES).glob("*.parquet"):
        path.write_bytes(b"damaged")
    with pytest.raises(RebuildRefused, match=r"route_changes: rows-\w+\.parquet is damaged: .* --accept-loss"):
        _rebuild(tables, earliest=2)
    _rebuild(tables, earliest=2, loss=True)
    assert load_snapshot(tables.storage).table.groups == tables.log.groups.groups


def test_lost_rows_that_are_in_no_log_need_consent(tables: TablesOfLog) -> None:
    shutil.rmtree(tables.dir / ROUTE_CHANGES)
    with pytest.raises(RebuildRefused, match=r"no rows of the records before 4; .* --accept-loss"):
        _rebuild(tables, earliest=2)
    _rebuild(tables, earliest=2, loss=True)
    assert load_snapshot(tables.storage).table.groups == tables.log.groups.groups


def test_rows_only_in_route_state_are_kept_if_the_log_begins_later(tables: TablesOfLog) -> None:
    shutil.rmtree(tables.dir / ROUTE_CHANGES)
    with pytest.raises(RebuildRefused, match="the records 4 to 5 were removed"):
        _rebuild(tables, earliest=6)
    _rebuild(tables, earliest=6, loss=True)
    assert load_snapshot(tables.storage).table.kv["ns"] == {"key": "other"}
    assert load_snapshot(tables.storage).table.groups.keys() == tables.log.groups.groups.keys()


@pytest.mark.parametrize("lost", [(), (ROUTE_CHANGES,)])
def test_tables_of_another_topic_are_not_replaced_whatever_the_consent(
    tables: TablesOfLog, lost: tuple[str, ...]
) -> None:
    for name in lost:
        shutil.rmtree(tables.dir / name)
    before = _folders(tables)
    other = replace(source_of(tables.log, earliest=2), topic_id="another")
    consent = Consent(loss=True, differences=True)
    with pytest.raises(RebuildRefused, match=f"topic with the id {TOPIC_ID}, .* start with new tables"):
        rebuild(tables.settings, consent, lambda text: None, lambda partition, done, total: None, opens(other))
    assert _folders(tables) == before


def test_tables_with_another_number_of_partitions_need_consent(tables: TablesOfLog) -> None:
    log = source_of(tables.log, tables.log)
    two = tables.settings.model_copy(update={"kafka": tables.settings.kafka.model_copy(update={"partitions": 2})})
    consent = Consent(loss=False, differences=False)
    with pytest.raises(RebuildRefused, match=r"the old tables have 1 partition, .* --accept-loss"):
        rebuild(two, consent, lambda text: None, lambda partition, done, total: None, opens(log))


def test_new_tables_that_cannot_be_written_completely_are_removed(
    tables: TablesOfLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(pq, "write_table", full)
        with pytest.raises(RebuildRefused, match=r"cannot be rebuilt: .*No space left on device; nothing was changed"):
            _rebuild(tables)
    assert _folders(tables) == {ROUTE_CHANGES, ROUTE_STATE}


def test_unverified_files_of_a_killed_rebuild_are_removed(tables: TablesOfLog) -> None:
    before = _rows(tables)
    (tables.dir / REBUILT / ROUTE_CHANGES).mkdir(parents=True)
    assert not settle_swap(tables.storage)
    assert _folders(tables) == {ROUTE_CHANGES, ROUTE_STATE}
    assert _rows(tables) == before


def test_a_swap_that_was_killed_after_its_last_move_repeats_no_move(
    tables: TablesOfLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def killed(self: Path, missing_ok: bool = False) -> None:
        if self.name == _PLAN:  # after all moves
            raise KeyboardInterrupt
        unlink(self, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            _rebuild(tables)
    for path in tables.dir.glob("*.20*"):
        shutil.rmtree(path)  # the operator deletes the old tables
    assert settle_swap(tables.storage)
    _assert_as_the_log(tables)


def test_a_swap_is_finished_although_the_data_directory_was_moved(
    tables: TablesOfLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def killed(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            _rebuild(tables)
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    tmp_path.rename(moved)
    storage = tables_of(settings_in(moved))
    assert settle_swap(storage)
    loaded = load_snapshot(storage)
    assert loaded.next_offsets == {0: tables.log.state.next_offset}
    moved.rename(tmp_path)


def test_rebuild_is_refused_while_the_job_runs(tables: TablesOfLog) -> None:
    with (
        job_lock(tables.settings.data.tables_dir),
        pytest.raises(ConfigError, match=r"another job runs here.* stop it"),
    ):
        _rebuild(tables)


@pytest.mark.parametrize("stop_at", range(1, 9))
def test_a_swap_that_was_killed_is_finished(tables: TablesOfLog, monkeypatch: pytest.MonkeyPatch, stop_at: int) -> None:
    """The kill happens after all moves are recorded: before each move, and before the remaining moves are recorded."""
    done = -1
    move, write = Folder.move, Folder.write

    def step() -> None:
        nonlocal done
        done += 1
        if done == stop_at:
            raise KeyboardInterrupt

    def killed_move(self: Folder, source: str, target: str) -> None:
        step()
        move(self, source, target)

    def killed_write(self: Folder, name: str, content: bytes) -> None:
        if name == _PLAN:
            step()
        write(self, name, content)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "move", killed_move)
        patched.setattr(Folder, "write", killed_write)
        with pytest.raises(KeyboardInterrupt):
            _rebuild(tables)
    assert settle_swap(tables.storage)
    assert not settle_swap(tables.storage)
    _assert_as_the_log(tables)


@pytest.mark.parametrize("stop_at", range(1, 5))
def test_a_swap_that_replaces_lost_tables_is_finished(
    tables: TablesOfLog, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    shutil.rmtree(tables.dir)
    test_a_swap_that_was_killed_is_finished(tables, monkeypatch, stop_at)


def test_rebuilding_twice_changes_nothing(tables: TablesOfLog) -> None:
    first = _rebuild(tables)
    second = _rebuild(tables)  # within the same second, as a rule
    assert second.proof.digest == first.proof.digest
    assert not {*first.kept} & {*second.kept}
    assert all(Path(path).exists() for path in (*first.kept, *second.kept))
    _assert_as_the_log(tables)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(logs(min_size=8))
def test_a_rebuild_of_any_log_writes_the_same_rows_as_the_job(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Entry]
) -> None:
    tables = TablesOfLog(tmp_path_factory.mktemp("data"))
    for number, entry in enumerate(entries):
        tables.log.append(entry.value, entry.after_ms)
        if number == 3:
            tables.commit()
            tables.compact()
    _rebuild(tables, earliest=len(entries) % 4)
    assert _rows(tables) == tables.log.output.changes
    assert load_snapshot(tables.storage).table.groups == tables.log.groups.groups


def test_rebuild_reports_what_it_did(tables: TablesOfLog) -> None:
    drop_rows(tables.dir, pc.field("kind") == "kv")
    outcome = _rebuild(tables, differences=True)
    text = rebuild_text(outcome)
    assert "different from the old tables" in text
    assert f"digest {outcome.proof.digest}" in text
    assert all(path in text for path in outcome.kept)
    fields = rebuild_json(outcome)
    assert fields["digest"] == outcome.proof.digest
    assert fields["kept"] == outcome.kept
