"""Tables of a topic that was given more partitions, and the fold after that."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.route.digest import decode_group
from namesrv_stream.route.fold.state import decode_state
from namesrv_stream.route.fold.step import GroupDict
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.route_table.fold_query import find_start_point
from namesrv_stream.table_errors import NoStartPoint, RebuildRefused
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import StateWriter, state_rows
from namesrv_stream.tables.snapshot import load_snapshot
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptStates, StoredChanges
from namesrv_stream.tools.replay.rebuild import Consent, rebuild
from namesrv_stream.tools.replay.replay import Replay, ReplayRange, replay
from namesrv_stream.tools.replay.replay_commands import parse_offsets
from namesrv_stream.tools.replay.replay_report import Rebuild
from namesrv_stream.tools.replay.topic_repartition import carry_over
from namesrv_stream.tools.what_if.log_analysis import analyse_log
from tests.support.builders import Log
from tests.support.history_tables import HistoryOfLogs
from tests.support.log_source import opens, source_of
from tests.support.random_events import append_random_events
from tests.support.tables import TOPIC_ID

BEFORE, AFTER = 2, 5
RECORDS = 300


class Grown(HistoryOfLogs):
    """Logs of first two and then five partitions, with tables that were carried over."""

    def __init__(self, data_dir: Path) -> None:
        old = [Log(partition=partition, partitions=BEFORE) for partition in range(BEFORE)]
        super().__init__(data_dir, *old)
        for records in (RECORDS // 2, RECORDS // 2):
            for log in old:
                append_random_events(log, Random(log.state.partition), records)
            self.commit()
            StateWriter(tables_of(self.settings)).cover(state_rows([log.state for log in old]))
        self.before = load_snapshot(tables_of(self.settings)).table
        self.begins = {p: RECORDS if p < BEFORE else 0 for p in range(AFTER)}
        carry_over(tables_of(self.settings), BEFORE, AFTER, self.begins, [log.state for log in old])
        kafka = self.settings.kafka.model_copy(update={"partitions": AFTER})
        self.settings = self.settings.model_copy(update={"kafka": kafka})
        self.logs = tuple(self._log_from_start_point(old, partition) for partition in range(AFTER))
        self.restart_job()

    def _log_from_start_point(self, old: Sequence[Log], partition: int) -> Log:
        """Return the log of a partition with the state from which a job would start."""
        log = Log(partition=partition, partitions=AFTER)
        extent = TopicExtent(TOPIC_ID, dict.fromkeys(range(AFTER), 0), self.begins)
        start = find_start_point(KeptStates(tables_of(self.settings)), self.begins, {}, extent)
        own = [(name, content) for p, name, content in start.initial_state if p == partition]
        log.state = decode_state(next(content for name, content in own if name is None))
        log.groups = GroupDict({name: decode_group(content) for name, content in own if name is not None})
        log.now_ms = max(each.now_ms for each in old)
        if partition < BEFORE:
            log.records = list(old[partition].records)
            log.output = old[partition].output
        return log

    def fold_more_records(self) -> None:
        """Append more records to each log, fold them, and compact at the end."""
        for log in self.logs:
            append_random_events(log, Random(log.state.partition + 7), RECORDS)
        self.commit()
        StateWriter(tables_of(self.settings)).cover(state_rows([log.state for log in self.logs]))


@pytest.fixture(scope="module")
def carried_over(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    return Grown(tmp_path_factory.mktemp("carried-over"))


@pytest.fixture(scope="module")
def continued(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    tables = Grown(tmp_path_factory.mktemp("continued"))
    tables.fold_more_records()
    return tables


@pytest.fixture
def tables(continued: Grown, tmp_path: Path) -> Grown:
    """Tables to which the job has added rows since they were carried over."""
    return continued.copied(tmp_path)


def _replay(tables: Grown, begin: str = "") -> Replay:
    wanted = ReplayRange(parse_offsets("--from-offset", begin.split()), parse_offsets("--to-offset", ()), None)
    return replay(tables.settings, wanted, lambda p, done, total: None, opens(source_of(*tables.logs)))


def _rebuild(tables: Grown, *, loss: bool = False) -> Rebuild:
    consent = Consent(loss=loss, differences=False)
    opener = opens(source_of(*tables.logs))
    return rebuild(tables.settings, consent, lambda text: None, lambda p, done, total: None, opener)


def test_readers_find_the_carried_over_routes_and_the_job_continues(carried_over: Grown, tables: Grown) -> None:
    loaded = load_snapshot(tables_of(carried_over.settings))
    assert loaded.table.groups == carried_over.before.groups
    assert loaded.table.kv == carried_over.before.kv
    assert loaded.next_offsets == carried_over.begins
    for partition in range(BEFORE, AFTER):
        assert loaded.table.settings_of(partition) == carried_over.before.settings_of(0)
    after = load_snapshot(tables_of(tables.settings)).table
    assert after.groups == {name: group for log in tables.logs for name, group in log.groups.groups.items()}
    assert prepare_tables(tables.settings, TOPIC_ID) == []


def test_a_replay_begins_after_the_number_of_partitions_changed(tables: Grown) -> None:
    outcome = _replay(tables)
    assert outcome.difference is None
    assert [part.folded_from for part in outcome.partitions] == [RECORDS, RECORDS, 0, 0, 0]
    assert [part.records for part in outcome.partitions] == [RECORDS] * AFTER
    assert outcome.digest is not None
    with pytest.raises(NoStartPoint):
        _replay(tables, "0:5")


def test_what_if_ignores_records_written_for_fewer_partitions(tables: Grown) -> None:
    found = analyse_log(tables.settings, [], 0, open_log=opens(source_of(*tables.logs)))
    assert found.records == RECORDS * AFTER
    assert "the analysis begins at 300" in "".join(found.notes)


@pytest.mark.parametrize("lost", [None, ROUTE_CHANGES])
def test_rebuild_continues_from_the_carried_over_state(tables: Grown, lost: str | None) -> None:
    digest = _replay(tables).digest
    if lost is not None:
        (tables.settings.data.tables_dir / lost).rename(tables.settings.data.dir / lost)
    outcome = _rebuild(tables, loss=lost is not None)
    assert outcome.proof.digest == digest
    assert StoredChanges.open(tables_of(tables.settings)).begins == tables.begins  # type: ignore[union-attr]
    assert _replay(tables).is_equal


def test_rebuild_without_route_state_loses_the_carried_over_state_and_reports_it(tables: Grown) -> None:
    (tables.settings.data.tables_dir / ROUTE_STATE).rename(tables.settings.data.dir / ROUTE_STATE)
    with pytest.raises(RebuildRefused, match="route_state is lost"):
        _rebuild(tables)
    assert _rebuild(tables, loss=True).losses


def test_a_job_with_another_number_of_partitions_is_refused(tables: Grown) -> None:
    kafka = tables.settings.kafka.model_copy(update={"partitions": BEFORE})
    old: Settings = tables.settings.model_copy(update={"kafka": kafka})
    with pytest.raises(ConfigError, match=r"namesrv_stream\.partitions: is 5, but .* has 2"):
        prepare_tables(old, TOPIC_ID)
