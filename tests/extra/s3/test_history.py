"""The history in an S3-compatible store: writing by Spark, queries, upkeep, and two concurrent writers."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from namesrv_stream.history.database import Past
from namesrv_stream.history.past_route import RouteOptions, route_as_of
from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.settings import load_settings
from namesrv_stream.settings.layers import Flag
from namesrv_stream.streaming.history.history_job import build_history_session
from namesrv_stream.streaming.history.history_writer import History
from namesrv_stream.table_errors import TablesTakenOver
from namesrv_stream.tables.history_upkeep import Upkeep
from namesrv_stream.tables.layout import HISTORY_SCHEMAS, ROUTE_ARCHIVE
from tests.support.history_oracle import instant, intervals, sessions
from tests.support.history_rig import TOPIC_ID, HistoryRig
from tests.support.history_views import BROKER_SESSIONS, ROUTE_HISTORY, rows_of
from tests.support.object_store import ObjectStore
from tests.support.random_events import append_random_events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def spark(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session whose workers read the keys from the environment, like the tests."""
    folder = tmp_path_factory.mktemp("spark")
    settings = load_settings(environ={}, flags=[Flag("test", "data.dir", str(folder))]).settings
    with pytest.MonkeyPatch.context() as environment:
        for name, value in object_store.options.items():
            if "KEY" in name:
                environment.setenv(name, value)
        session = build_history_session(settings)
        yield session
        session.stop()


@pytest.fixture
def rig(spark: SparkSession, object_store: ObjectStore, tmp_path: Path) -> HistoryRig:
    flags: dict[str, str | int] = {"history__heartbeats_interval_ms": 1, "history__max_records": 100}
    flags |= {f"data__extra.{n}": value for n, value in object_store.options.items() if "KEY" not in n}
    flags["data__tables"] = f"s3://tables/{tmp_path.name}/of-a-test"
    return HistoryRig(spark, tmp_path, 2, **flags)


def test_history_in_a_store_equals_one_in_a_folder_and_a_second_run_changes_nothing(rig: HistoryRig) -> None:
    random = Random(5)
    for _ in range(2):
        for log in rig.logs:
            append_random_events(log, random, 60)
        rig.commit_and_write()
        rig.restart()  # as after a kill
    found = rows_of(rig.storage, ROUTE_HISTORY)
    expected = intervals(change for log in rig.logs for change in log.output.changes)
    assert [((r["partition"], r["offset"], r["seq"]), r["valid_to"]) for r in found] == [
        (change[:3], end and instant(end)) for change, end in expected
    ]
    assert rows_of(rig.storage, BROKER_SESSIONS) == [session for log in rig.logs for session in sessions(log)]
    table = str(rig.storage / ROUTE_ARCHIVE)
    version = DeltaTable(table, storage_options=rig.storage.delta_options).version()
    assert not any(rig.write().values())
    assert DeltaTable(table, storage_options=rig.storage.delta_options).version() == version
    past = Past(rig.settings)
    name = next(row["topic"] for row in found if row["kind"] == "queue_data" and row["valid_to"] is None)
    at_ms = max(row["at_ms"] for row in found)
    assert route_as_of(past, name, at_ms, RouteOptions()).body()
    before = {name: len(rows_of(rig.storage, name)) for name in HISTORY_SCHEMAS}
    upkeep = Upkeep(rig.settings)
    upkeep.join_files()
    upkeep.clean_up()
    assert {name: len(rows_of(rig.storage, name)) for name in HISTORY_SCHEMAS} == before


def test_one_of_two_concurrent_writers_ends(spark: SparkSession, rig: HistoryRig) -> None:
    append_random_events(rig.logs[0], Random(1), 20)
    rig.commit_and_write()
    ends = {p: len(log.records) for p, log in enumerate(rig.logs)}
    second = History(spark, rig.settings, TopicExtent(TOPIC_ID, rig.earliest, ends))
    append_random_events(rig.logs[0], Random(2), 20)
    rig.commit_and_write()
    ends = {p: len(log.records) for p, log in enumerate(rig.logs)}
    with pytest.raises(TablesTakenOver):
        second.take(rig.read(second.next_offsets, ends), ends)
    places = [(row["partition"], row["offset"], row["seq"]) for row in rows_of(rig.storage, ROUTE_ARCHIVE)]
    assert len(places) == len(set(places))
