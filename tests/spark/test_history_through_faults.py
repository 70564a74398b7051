"""Any instant, asked of the tables in any engine or by the command, is the fold stopped there.

Through kills of the job and of the history process amid its commits, a rebuild and a repartition.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from namesrv_stream.history.past_route import RouteOptions, route_body
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings
from namesrv_stream.tables.layout import BROKER_EVENTS, HEARTBEAT_MINUTES
from namesrv_stream.tables.storage import tables_of
from tests.support.analytics import DUCKDB, POLARS, SPARK, connecting
from tests.support.builders import Log
from tests.support.command_line import run_command
from tests.support.history_life import RARE_TOPIC
from tests.support.history_oracle import instant, minutes
from tests.support.history_through_faults import FaultyLife, live_through_faults
from tests.support.history_views import change_of, rows_of
from tests.support.stopped_folds import StoppedFolds, content_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1_800)]

_INSTANTS = 250  # of each phase
_TOPICS = ("t1", "t2", "t3", "t4", "t5", "TopicTest")
_UNTOLD = {ChangeKind.REGISTRATION, ChangeKind.REGISTRATION_WANTED, ChangeKind.IGNORED}
_HELD = """
SELECT i.instant_ms, h.partition, h.offset, h.seq
FROM instants i
CROSS JOIN route_history h
WHERE h.valid_from_ms <= i.instant_ms AND (h.valid_to_ms IS NULL OR h.valid_to_ms > i.instant_ms)
"""


@pytest.fixture(scope="module")
def life(kafka_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> FaultyLife:
    return live_through_faults(kafka_settings, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def changes(life: FaultyLife) -> list[RouteChange]:
    """All rows that the history tells of, as the fold of Kafka's records makes them."""
    folds = StoppedFolds(life.records, life.grown_at)
    folds.stopped_at(life.phases[-1] + 1)
    return sorted(change for change in folds.changes if change.kind not in _UNTOLD)


@pytest.fixture(scope="module")
def instants(life: FaultyLife, changes: list[RouteChange]) -> list[int]:
    """At changes, a millisecond before them, and at any other times, of each phase."""
    random = Random(1_000)
    found: list[int] = []
    for begin_ms, end_ms in pairwise(life.phases):
        changed = {c.at_ms - before for c in changes for before in (0, 1) if begin_ms <= c.at_ms - before < end_ms}
        chosen = random.sample(sorted(changed), min(len(changed), _INSTANTS // 2))
        others = sorted(set(range(begin_ms, end_ms)) - set(chosen))
        found += chosen + random.sample(others, _INSTANTS - len(chosen))
    return sorted(found)


@pytest.fixture(scope="module")
def contents(life: FaultyLife, instants: list[int]) -> dict[int, Any]:
    """Instant → what the fold says there."""
    folds = StoppedFolds(life.records, life.grown_at)
    return {at_ms: content_of(folds.stopped_at(at_ms), len(life.grown_at)) for at_ms in instants}


def test_every_change_of_the_log_is_there_once(life: FaultyLife, changes: list[RouteChange]) -> None:
    rows = [change_of(row) for row in rows_of(tables_of(life.settings), "changes")]
    told = [row for row in rows if row.cause != Cause.STATE_REBUILT]
    assert told == changes
    assert {change.kind for change in changes} == set(ChangeKind) - _UNTOLD
    # Nothing was lost: no more than what a new partition has taken over of the first.
    taken_over = {
        (row.kind, row.partition in range(len(life.grown_at))) for row in rows if row.cause == Cause.STATE_REBUILT
    }
    assert taken_over <= {(ChangeKind.SETTING, False), (ChangeKind.SERVER, False)}


def test_every_event_and_heartbeat_of_the_log_is_there_once(life: FaultyLife) -> None:
    tables, found = tables_of(life.settings), defaultdict(list)
    for row in rows_of(tables, BROKER_EVENTS):
        value = row["raw"] if row["value"] is None else row["value"].encode()
        found[row["partition"]].append((row["offset"], row["at"], value))
    logs = []
    for partition, records in enumerate(life.records):
        own = sorted(found[partition])
        assert len(own) > 20
        assert own == [(r.offset, instant(r.at_ms), r.value) for r in records[: len(own)]]
        log = Log(partition=partition, partitions=len(life.records))
        for record in records[: len(own)]:
            log.append(record.value, record.at_ms - log.now_ms)
        logs.append(log)
    columns = ("partition", "cluster", "broker_name", "broker_addr", "server_id", "minute", "heartbeats", "last_at")
    expected = [tuple(row[c] for c in columns) for log in logs for row in minutes(log, 0)]
    assert sorted(tuple(row[c] for c in columns) for row in rows_of(tables, HEARTBEAT_MINUTES)) == expected


@pytest.mark.parametrize("engine", [SPARK, DUCKDB, POLARS])
def test_the_rows_that_hold_at_1000_instants_are_the_fold_stopped_there(
    engine: str, spark: SparkSession, life: FaultyLife, instants: list[int], contents: dict[int, Any]
) -> None:
    with ExitStack() as stack:
        ask = _asking(engine, spark, life, stack, pa.table({"instant_ms": instants}))
        rows = {row[:3]: row for row in map(change_of, ask("SELECT h.* FROM route_history h"))}
        held: dict[int, list[RouteChange]] = defaultdict(list)
        for row in ask(_HELD):
            held[row["instant_ms"]].append(rows[row["partition"], row["offset"], row["seq"]])
    assert len(instants) == _INSTANTS * (len(life.phases) - 1) >= 1_000
    for at_ms in instants:
        found = RouteTable()
        reducer.apply(found, sorted(held[at_ms], key=lambda row: (row.at_ms, *row[:3])))
        assert content_of(found, len(life.grown_at)) == contents[at_ms], instant(at_ms)


def test_as_of_is_a_replay_stopped_at_that_instant(life: FaultyLife, instants: list[int]) -> None:
    """By the command itself, also where the history has not been yet; the route, or that there was none."""
    folds, random = StoppedFolds(life.records, life.grown_at), Random(7)
    outcomes: dict[bool, int] = defaultdict(int)
    for at_ms in (instants[0], *sorted(random.sample(instants[1:], 12))):
        table = folds.stopped_at(at_ms)
        for topic in (random.choice(_TOPICS), RARE_TOPIC):
            expected = route_body(table, topic, RouteOptions())
            data_dir, sets = str(life.settings.data.dir), f"kafka.partitions={len(life.records)}"
            asked = run_command("route", topic, "--as-of", str(at_ms), "--data-dir", data_dir, "--set", sets, "--json")
            outcomes[expected is not None] += 1
            if expected is None:
                assert (asked.code, asked.out) == (1, ""), (topic, at_ms)
                assert f"no route for topic {topic} as of" in asked.err or "before the history" in asked.err
                continue
            assert asked.code == 0, asked.err
            found = json.loads(asked.out)
            assert {name: found[name] for name in json.loads(expected)} == json.loads(expected), (topic, at_ms)
            assert found["lastChange"]["at_ms"] <= at_ms
    assert min(outcomes[True], outcomes[False]) > 1, outcomes


def _asking(
    engine: str, spark: SparkSession, life: FaultyLife, stack: ExitStack, instants: pa.Table
) -> Callable[[str], list[dict[str, Any]]]:
    """Ask an engine that is connected as the documentation says, and knows the instants."""
    names = connecting(engine, life.settings.data.tables_dir, {"spark": spark})
    match engine:
        case "spark":
            spark.createDataFrame(instants).createOrReplaceTempView("instants")
            return lambda sql: spark.sql(sql).toArrow().to_pylist()
        case "duckdb":
            connection = stack.enter_context(closing(names["con"]))
            connection.register("instants", instants)
            return lambda sql: connection.execute(sql).to_arrow_table().to_pylist()
        case _:
            context = names["context"].register("instants", names["pl"].from_arrow(instants))
            return lambda sql: context.execute(sql, eager=True).to_dicts()
