"""Readers and writers of tables in an S3-compatible store: the same as in a folder, and two jobs without a lock."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from namesrv_stream.errors import ConfigError, StoreUnreachable
from namesrv_stream.history.database import open_changes
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.fold.folded_log import Place
from namesrv_stream.settings import Settings, load_settings
from namesrv_stream.settings.layers import Flag
from namesrv_stream.table_errors import TablesTakenOver
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, decode_changes
from namesrv_stream.tables.compaction import clean_up
from namesrv_stream.tables.delta import table_version, table_writer
from namesrv_stream.tables.delta.commit import checkpointed_version, commit_name
from namesrv_stream.tables.delta.open_table import open_delta
from namesrv_stream.tables.delta.table_version import open_version
from namesrv_stream.tables.job_commits import job_commits
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.repair import settle_swap
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.snapshot import Snapshot, load_snapshot, read_rows, read_tables
from namesrv_stream.tables.snapshot_follower import SnapshotFollower
from namesrv_stream.tables.storage import ObjectStore as ObjectStoreStorage
from namesrv_stream.tables.storage import Storage, tables_of
from namesrv_stream.tables.stored_changes import KeptStates, StoredChanges
from namesrv_stream.tools.doctor.finding import Grade
from namesrv_stream.tools.doctor.log_and_tables import object_store as examined_store
from namesrv_stream.tools.replay.rebuild import Consent, rebuild
from tests.support.builders import a_registration
from tests.support.log_source import opens, source_of
from tests.support.object_store import ObjectStore
from tests.support.processes import wait_until
from tests.support.tables import TablesOfLog

pytestmark = pytest.mark.timeout(600)
_SETTLE_S = 60.0


def _settings(store: ObjectStore, data_dir: Path, **extra: str) -> Settings:
    flags = {"data.dir": str(data_dir), "data.tables": f"s3://tables/{uuid4()}/of-a-test"}
    environ = store.environ | {f"NAMESRV_STREAM__DATA__EXTRA__{name}": value for name, value in extra.items()}
    return load_settings(environ=environ, flags=[Flag("test", key, value) for key, value in flags.items()]).settings


@pytest.fixture
def tables(object_store: ObjectStore, tmp_path: Path) -> TablesOfLog:
    return TablesOfLog(tmp_path, _settings(object_store, tmp_path))


def _add(tables: TablesOfLog, *names: str) -> None:
    for name in names:
        tables.log.register(a_registration(f"10.0.0.{len(name)}:1", broker_name=name))


def test_every_reader_reads_all_written_rows(tables: TablesOfLog) -> None:
    for name in ("a", "b", "c"):
        _add(tables, name)
        tables.commit()
    tables.compact()
    _add(tables, "d")
    tables.commit()
    changes = tables.log.output.changes
    assert set(load_snapshot(tables.storage).table.groups) == {"a", "b", "c", "d"}
    stored = StoredChanges.open(tables.storage)
    assert stored is not None
    assert decode_changes(stored.rows(0, 0, 4)) == changes
    state = KeptStates(tables.storage).newest(0)
    assert state is not None
    assert state.fold_state.next_offset == 3
    lives = read_rows(tables.storage, ChangeKind.BROKER_LIVE)
    assert [row.broker_name for row in lives] == ["a", "b", "c", "d"]
    history = open_changes(tables.settings)
    assert history.rows().height == len(changes)
    assert [commit.next_offsets for commit in job_commits(history, 0)] == [{0: offset} for offset in (1, 2, 3, 4)]


def test_files_are_joined_and_removed_while_the_writer_runs(tables: TablesOfLog) -> None:
    for number in range(5):
        _add(tables, f"b{number}")
        tables.commit()
    tables.compact()
    open_delta(tables.storage / ROUTE_CHANGES).optimize.compact()
    _add(tables, "after")
    tables.commit()
    clean_up(tables.settings, tables.writer.table, StateWriter(tables.storage).table)
    _add(tables, "last")
    tables.commit()
    stored = StoredChanges.open(tables.storage)
    assert stored is not None
    assert decode_changes(stored.rows(0, 0, 7)) == tables.log.output.changes
    assert len(load_snapshot(tables.storage).table.groups) == 7


def test_first_of_two_jobs_to_commit_continues(tables: TablesOfLog) -> None:
    _add(tables, "a")
    other = tables.new_writer()
    other.write(tables.rows_from(0), {0: tables.log.place(1)}, 9)
    with pytest.raises(TablesTakenOver):
        tables.commit()
    _add(tables, "b")
    other.write(tables.rows_from(1), {0: tables.log.place(2)}, 10)
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes
    files = (tables.storage / ROUTE_CHANGES).sizes()
    assert len([name for name in files if name.endswith(".parquet")]) == 2


def test_concurrent_commits_of_two_jobs_duplicate_no_row(tables: TablesOfLog) -> None:
    rounds = 10
    for number in range(rounds):
        _add(tables, f"b{number}")
        rows, reached = tables.rows_from(number), tables.reached()
        writers = [tables.new_writer() for _ in range(2)]
        together = threading.Barrier(2)
        outcomes: list[str] = []
        threads = [
            threading.Thread(target=_commit, args=(writer, rows, reached, together, outcomes)) for writer in writers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["ended", "written"]
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


def _commit(
    writer: ChangesWriter, rows: pa.Table, reached: dict[int, Place], together: threading.Barrier, outcomes: list[str]
) -> None:
    together.wait()
    try:
        writer.write(rows, reached, 1)
        outcomes.append("written")
    except TablesTakenOver:
        outcomes.append("ended")


def test_job_frozen_before_its_commit_writes_nothing(tables: TablesOfLog) -> None:
    _add(tables, "a")
    frozen, held = tables.writer, tables.rows_from(0)
    tables.writer = tables.new_writer()
    for name in ("b", "c", "d"):
        _add(tables, name)
        tables.commit()
    with pytest.raises(TablesTakenOver):
        frozen.write(held, {0: tables.log.place(1)}, 1)
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


@pytest.mark.parametrize("times", [1, 4])
def test_commit_with_a_lost_answer_counts_as_made(tables: TablesOfLog, object_store: ObjectStore, times: int) -> None:
    _add(tables, "a")
    _commit_and_lose(tables, object_store, b"00000000000000000001.json", times)


def test_commit_with_a_taken_version_is_repeated_with_a_later_one(
    tables: TablesOfLog, object_store: ObjectStore
) -> None:
    _add(tables, "a")
    somebodys = b'{"commitInfo":{"timestamp":1,"operation":"OPTIMIZE","operationParameters":{}}}'
    (tables.storage / ROUTE_CHANGES).create(commit_name(1), somebodys)
    _commit_and_lose(tables, object_store, commit_name(1).encode(), 4, version=3)


def _commit_and_lose(tables: TablesOfLog, object_store: ObjectStore, to: bytes, times: int, version: int = 2) -> None:
    lost = object_store.lose_answers(to, times)
    tables.commit()
    assert lost.is_set()
    _add(tables, "b")
    tables.commit()
    assert open_delta(tables.storage / ROUTE_CHANGES).version() == version
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


def test_batch_waits_while_the_store_is_unavailable(tables: TablesOfLog, object_store: ObjectStore) -> None:
    _add(tables, "a")
    tables.commit()
    _add(tables, "b")
    object_store.become_unavailable()
    with _committing_until_the_store_is_available(tables, object_store) as waiting:
        with pytest.raises(StoreUnreachable):
            load_snapshot(tables.storage)
        assert waiting.is_alive()


@contextmanager
def _committing_until_the_store_is_available(
    tables: TablesOfLog, object_store: ObjectStore
) -> Iterator[threading.Thread]:
    """Commit on a thread; after the block the store is available again, and the commit succeeds."""
    waiting = threading.Thread(target=tables.commit)
    waiting.start()
    try:
        yield waiting
    finally:
        object_store.become_available()
    waiting.join(_SETTLE_S)
    assert not waiting.is_alive()
    assert decode_changes(read_tables(tables.storage).changes) == tables.log.output.changes


@pytest.mark.parametrize("read", [load_snapshot, StoredChanges.open])
def test_reader_reports_a_store_that_becomes_unavailable(
    tables: TablesOfLog, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, read: Callable[[Storage], object]
) -> None:
    _add(tables, "a")
    tables.commit()
    _become_unavailable_after_an_opening(object_store, monkeypatch)
    try:
        with pytest.raises(StoreUnreachable):
            read(tables.storage)
    finally:
        object_store.become_available()


def test_batch_waits_for_a_store_that_becomes_unavailable_during_its_commit_check(
    tables: TablesOfLog,
    object_store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _add(tables, "a")
    tables.commit()
    _add(tables, "b")
    lost = object_store.lose_answers(
        b"00000000000000000002.json", 1
    )  # the client repeats the request, and finds its own file
    chances = [object_store.become_unavailable]

    def looked(table: Storage) -> int:
        if chances:
            chances.pop()()
        return checkpointed_version(table)

    monkeypatch.setattr(table_writer, "checkpointed_version", looked)
    with _committing_until_the_store_is_available(tables, object_store):
        wait_until(lambda: "waiting for the object store" in caplog.text, _SETTLE_S, "the batch waits")
        assert lost.is_set()
        assert not chances


def _become_unavailable_after_an_opening(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the store unavailable once, as soon as a table has been opened."""
    chances = [object_store.become_unavailable]

    def opened(table: Storage, version: int | None = None) -> DeltaTable:
        found = open_delta(table, version)
        if str(table).endswith(ROUTE_CHANGES) and chances:
            chances.pop()()
        return found

    monkeypatch.setattr(table_version, "open_delta", opened)


class _Followed:
    """The reports of a follower."""

    def __init__(self, tables: TablesOfLog) -> None:
        self.names: set[str] = set()
        self.reloads = 0
        self.follower = SnapshotFollower(tables.storage, 50, self._reloaded, self._committed)

    def _reloaded(self, snapshot: Snapshot) -> None:
        self.reloads += 1
        self.names = {str(name) for name in snapshot.table.groups}

    def _committed(self, changes: list[RouteChange], _offsets: object) -> None:
        self.names |= {str(row.broker_name) for row in changes if row.kind == ChangeKind.BROKER_LIVE}


@pytest.fixture
def followed(tables: TablesOfLog) -> _Followed:
    return _Followed(tables)


def test_follower_reports_every_commit_and_survives_an_unavailable_store(
    tables: TablesOfLog, followed: _Followed, object_store: ObjectStore
) -> None:
    _add(tables, "a")
    tables.commit()
    followed.follower.start()
    try:
        wait_until(lambda: followed.names == {"a"}, _SETTLE_S, "the table is loaded")
        _add(tables, "b")
        tables.commit()
        wait_until(lambda: followed.names == {"a", "b"}, _SETTLE_S, "a commit is reported")
        object_store.become_unavailable()
        wait_until(lambda: followed.follower.failure, _SETTLE_S, "the follower reports that the store is unavailable")
        object_store.become_available()
        wait_until(lambda: not followed.follower.failure, _SETTLE_S, "the follower reaches the store again")
        _add(tables, "c")
        tables.commit()
        wait_until(lambda: followed.names == {"a", "b", "c"}, _SETTLE_S, "the follower continues")
        assert followed.reloads == 1
    finally:
        object_store.become_available()
        followed.follower.stop()


def test_follower_notices_rebuilt_tables(tables: TablesOfLog, followed: _Followed) -> None:
    _add(tables, "a")
    tables.commit()
    followed.follower.start()
    try:
        wait_until(lambda: followed.names == {"a"}, _SETTLE_S, "the table is loaded")
        _empty(tables)
        anew = TablesOfLog(tables.settings.data.dir, tables.settings)
        for name in ("x", "y", "z"):
            _add(anew, name)
            anew.commit()
        wait_until(lambda: followed.names == {"x", "y", "z"}, _SETTLE_S, "the new table is loaded")
    finally:
        followed.follower.stop()


def _empty(tables: TablesOfLog) -> None:
    for name in (ROUTE_CHANGES, ROUTE_STATE):
        tables.storage.remove_all(name)
        assert open_version(tables.storage / name, CHANGES_SCHEMA) is None


@pytest.mark.parametrize("stop_at", [None, 1, 2, 3, 4])
def test_killed_rebuild_in_the_store_is_finished_by_the_next_one(
    tables: TablesOfLog, monkeypatch: pytest.MonkeyPatch, stop_at: int | None
) -> None:
    _add(tables, "a")
    tables.commit()
    tables.compact()
    _add(tables, "b", "c")
    moved = 0
    move = ObjectStoreStorage.move

    def killed(self: ObjectStoreStorage, source: str, target: str) -> None:
        nonlocal moved
        moved += 1
        if moved == stop_at:
            raise KeyboardInterrupt
        move(self, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStoreStorage, "move", killed)
        with pytest.raises(KeyboardInterrupt) if stop_at else nullcontext():
            consent = Consent(loss=False, differences=False)
            outcome = rebuild(tables.settings, consent, lambda _: None, lambda *_: None, opens(source_of(tables.log)))
            assert all(path.startswith(f"{tables.storage}/route_") for path in outcome.kept)
            assert len(outcome.kept) == 2
    assert settle_swap(tables.storage) is bool(stop_at)
    rows = read_tables(tables.storage)
    assert rows.progress == tables.reached()
    assert set(load_snapshot(tables.storage).table.groups) == {"a", "b", "c"}
    stored = StoredChanges.open(tables.storage)
    assert stored is not None
    assert decode_changes(stored.rows(0, 0, 3)) == tables.log.output.changes


def test_credentials_are_read_from_files(object_store: ObjectStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("Tr0ub4dor-of-a-file\n")
    settings = _settings(object_store, tmp_path, AWS_SECRET_ACCESS_KEY_FILE=str(secret))
    assert TablesOfLog(tmp_path, settings).writer.committed == {0: 0}


def test_unknown_store_option_is_named(object_store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="aws_secret_acess_key") as caught:
        TablesOfLog(tmp_path, _settings(object_store, tmp_path, AWS_SECRET_ACESS_KEY="Tr0ub4dor-typed"))
    assert caught.value.key == "data.extra"
    assert "Tr0ub4dor" not in str(caught.value)


def test_errors_show_the_location_and_no_secret(object_store: ObjectStore, tmp_path: Path) -> None:
    settings = _settings(object_store, tmp_path, AWS_ENDPOINT_URL="http://127.0.0.1:1")
    with pytest.raises(StoreUnreachable, match="s3://tables/") as caught:
        load_snapshot(tables_of(settings))
    assert "Tr0ub4dor" not in str(caught.value) + repr(tables_of(settings))


@pytest.mark.parametrize(("is_forgetful", "grade"), [(False, Grade.FINE), (True, Grade.FAULT)])
def test_doctor_checks_that_the_store_supports_conditional_writes(
    object_store: ObjectStore, tmp_path: Path, is_forgetful: bool, grade: Grade
) -> None:
    settings = _settings(object_store, tmp_path)
    object_store.forget_conditions(is_forgetful)
    try:
        (finding,) = examined_store(settings)
    finally:
        object_store.forget_conditions(False)
    assert finding.grade is grade, finding
    assert tables_of(settings).sizes() == {}


def test_doctor_reports_a_store_that_cannot_be_written(object_store: ObjectStore, tmp_path: Path) -> None:
    settings = _settings(object_store, tmp_path)
    object_store.become_unavailable()
    try:
        (finding,) = examined_store(settings)
    finally:
        object_store.become_available()
    assert finding.grade is Grade.NOTE
    assert "cannot be written to from here" in finding.text
