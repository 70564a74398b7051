"""At any instant, the history tables agree with a replay that stops there, in every engine and in the command.

The history has gone through kills of the job and of the history process during commits, a rebuild and a repartition.
Kafka, the job, the history process and the commands are real; only the brokers and name servers are simulated.
"""

import json
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from namesrv_stream.history.past_route import RouteOptions, route_body
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.processes import read_run_file
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.tables.layout import BROKER_EVENTS, HEARTBEAT_MINUTES, ROUTE_ARCHIVE, ROUTE_STATE
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import StoredChanges
from tests.support.analytics.document import DUCKDB, POLARS, SPARK, connect_as_documented
from tests.support.builders import Log
from tests.support.command_line import run_command
from tests.support.history_oracle import instant, minutes
from tests.support.history_views import change_of, rows_of
from tests.support.kafka import REPOSITORY
from tests.support.offline_fold import read_records
from tests.support.partition_replays import PartitionReplays, comparable_content
from tests.support.processes import Process, wait_until
from tests.support.random_events import RARE_TOPIC, append_random_events
from tests.support.spark import event_producer, own_settings, wait_folded

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1_800)]

_INSTANTS = 250  # of each phase
_TOPICS = ("t1", "t2", "t3", "t4", "t5", "TopicTest")
_NOT_IN_HISTORY = {ChangeKind.REGISTRATION, ChangeKind.REGISTRATION_WANTED, ChangeKind.IGNORED}
_VALID_AT_INSTANTS = """
SELECT i.instant_ms, h.partition, h.offset, h.seq
FROM instants i
CROSS JOIN route_history h
WHERE h.valid_from_ms <= i.instant_ms AND (h.valid_to_ms IS NULL OR h.valid_to_ms > i.instant_ms)
"""
_DEADLINE_S: Final = 600.0  # the machine may be busy
_PARTITIONS: Final = 3
_MORE_PARTITIONS: Final = 5
_PAUSE_S: Final = 0.1
_TRAFFIC_S: Final = 5.0
_SKIPPED_RECORDS: Final = 2_000  # per partition: servers continue with later epochs than before


class FaultyRun(NamedTuple):
    """What a run with faults leaves.

    Attributes:
        settings: Its number of partitions is that of the topic at the end.
        records: The records of each partition, as Kafka stores them.
        repartitioned_at: For each original partition, the offset at which the topic was given more partitions.
        phases: Where each phase begins, and where the last one ends, in epoch milliseconds. The phases end with the
            first kill, the end of the rebuild, the repartition, and the end of the run.
    """

    settings: Settings
    records: list[list[Record]]
    repartitioned_at: list[int]
    phases: list[int]


def run_with_faults(kafka_settings: Settings, data_dir: Path) -> FaultyRun:
    """Run job, history process and commands, with traffic and faults; takes about a minute."""
    settings = own_settings(kafka_settings, data_dir, _PARTITIONS, compaction_interval_ms=2_000, driver_memory="512m")
    kafka = settings.kafka.model_copy(update={"delivery_timeout_ms": 1_000})
    history = settings.history.model_copy(update={"heartbeats_interval_ms": 1, "driver_memory": "512m"})
    settings = settings.model_copy(update={"kafka": kafka, "history": history})
    more = settings.model_copy(update={"kafka": kafka.model_copy(update={"partitions": _MORE_PARTITIONS})})
    phases = [_now_ms()]
    with _traffic(settings, _random_streams(_PARTITIONS)):
        with _job(settings):
            _kill_history_during_commit(settings, BROKER_EVENTS)
            phases.append(_now_ms())
            _kill_history_during_commit(settings, ROUTE_ARCHIVE)
        # The history is behind the job. The rebuild also rewrites rows that the history has not read yet.
        tables_of(settings).remove_all(ROUTE_STATE)
        _run(settings, "rebuild")
        phases.append(_now_ms())
        with _job(settings):
            wait_folded(settings, _DEADLINE_S)
    _run(settings, "repartition", "--partitions", str(_MORE_PARTITIONS))
    repartitioned_at = [read_extent(more).end[partition] for partition in range(_PARTITIONS)]
    phases.append(_now_ms())
    streams = _random_streams(_MORE_PARTITIONS, skipped=_SKIPPED_RECORDS)
    with _job(more):
        with _traffic(more, streams):
            time.sleep(_TRAFFIC_S)
        with _history_process(more, "", data_dir, "--once") as process:
            assert process.wait(_DEADLINE_S) == 0, process.log_text()
        with _traffic(more, streams):
            time.sleep(_TRAFFIC_S)  # the history process does not run during this traffic
        wait_folded(more, _DEADLINE_S)
    phases.append(_now_ms())
    records: list[list[Record]] = [[] for _ in range(_MORE_PARTITIONS)]
    folded = StoredChanges.open(tables_of(more))
    assert folded is not None
    for record in read_records(more):
        if record.offset < folded.next_offsets[record.partition]:  # the job does not fold the last ticks that it logs
            records[record.partition].append(record)
    return FaultyRun(more, records, repartitioned_at, phases)


def _random_streams(partitions: int, skipped: int = 0) -> list[Iterator[bytes]]:
    """Return the random records of each partition, without the first ``skipped`` ones."""
    return [_random_records(Log(partition=p, partitions=partitions), Random(p), skipped) for p in range(partitions)]


def _random_records(log: Log, random: Random, skipped: int) -> Iterator[bytes]:
    sent = skipped
    append_random_events(log, random, skipped)
    while True:
        append_random_events(log, random, 100)
        yield from (record.value for record in log.records[sent:])
        sent = len(log.records)


@contextmanager
def _traffic(settings: Settings, streams: Sequence[Iterator[bytes]]) -> Iterator[None]:
    """Send a record to each partition at short intervals until the context is left."""
    stop = threading.Event()
    failures: list[Exception] = []

    def send() -> None:
        try:
            with event_producer(settings) as producer:
                while not stop.wait(_PAUSE_S):
                    for partition, stream in enumerate(streams):
                        producer.send_value(next(stream), partition)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=send, name="traffic", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
    assert not failures, failures


@contextmanager
def _job(settings: Settings) -> Iterator[None]:
    """Run the job from its first batch until it is killed."""
    run_file = settings.data.run_dir / "job.json"
    run_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "namesrv_stream", "job", "--conf", _conf(settings)]
    with Process("job", command, settings.data.dir / "job-test.log", cwd=REPOSITORY) as process:
        wait_until(lambda: read_run_file(run_file) or not process.is_alive, _DEADLINE_S, "the job has begun")
        yield
        assert process.is_alive, process.log_text()
        process.signal(signal.SIGKILL, whole_group=True)


def _kill_history_during_commit(settings: Settings, table: str) -> None:
    """Kill the history process when it has written the data of a commit and not yet the commit itself."""
    # A batch is so small that there are commits before this one.
    slowly = settings.model_copy(update={"history": settings.history.model_copy(update={"max_records": 90})})
    reached = settings.data.dir / f"during-{table}"
    with _history_process(slowly, table, reached) as process:
        wait_until(lambda: reached.exists() or not process.is_alive, _DEADLINE_S, f"a commit of {table} has begun")
        assert process.is_alive, process.log_text()
        process.signal(signal.SIGKILL, whole_group=True)
        process.wait(10)
    folder = settings.data.tables_dir / table
    entries = "".join(path.read_text() for path in folder.glob("_delta_log/*.json"))
    data = [path.name for path in folder.glob("*/*.parquet") if not path.parent.name.startswith("_")]
    assert {name in entries for name in data} == {True, False}


def _history_process(settings: Settings, table: str, reached: Path, *options: str) -> Process:
    """Return a history process that creates a file and hangs during a commit of ``table``; "" lets it end normally."""
    program = (sys.executable, "-m", "tests.support.hanging_history_job")
    command: list[str | Path] = [*program, table, reached, "history-job"]
    log = settings.data.dir / "history-job-test.log"
    return Process("history-job", [*command, "--conf", _conf(settings), *options], log, cwd=REPOSITORY)


def _run(settings: Settings, *arguments: str) -> None:
    done = run_command(*arguments, "--conf", _conf(settings))
    assert done.code == 0, done.err


def _conf(settings: Settings) -> str:
    conf = settings.data.dir / "test.toml"
    conf.write_text(to_toml(settings))
    return str(conf)


def _now_ms() -> int:
    """The clock of this machine, which Kafka uses too."""
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def faulty_run(kafka_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> FaultyRun:
    return run_with_faults(kafka_settings, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def changes(faulty_run: FaultyRun) -> list[RouteChange]:
    """All changes that the history stores, computed by a replay of Kafka's records."""
    replays = PartitionReplays(faulty_run.records, faulty_run.repartitioned_at)
    replays.table_at(faulty_run.phases[-1] + 1)
    return sorted(change for change in replays.changes if change.kind not in _NOT_IN_HISTORY)


@pytest.fixture(scope="module")
def instants(faulty_run: FaultyRun, changes: list[RouteChange]) -> list[int]:
    """Instants of each phase: at changes, a millisecond before changes, and at random."""
    random = Random(1_000)
    found: list[int] = []
    for begin_ms, end_ms in pairwise(faulty_run.phases):
        changed = {c.at_ms - before for c in changes for before in (0, 1) if begin_ms <= c.at_ms - before < end_ms}
        chosen = random.sample(sorted(changed), min(len(changed), _INSTANTS // 2))
        others = sorted(set(range(begin_ms, end_ms)) - set(chosen))
        found += chosen + random.sample(others, _INSTANTS - len(chosen))
    return sorted(found)


@pytest.fixture(scope="module")
def contents(faulty_run: FaultyRun, instants: list[int]) -> dict[int, Any]:
    """Instant → content of the table after a replay to that instant."""
    replays = PartitionReplays(faulty_run.records, faulty_run.repartitioned_at)
    return {at_ms: comparable_content(replays.table_at(at_ms), len(faulty_run.repartitioned_at)) for at_ms in instants}


def test_every_change_of_the_log_is_in_the_history_once(faulty_run: FaultyRun, changes: list[RouteChange]) -> None:
    rows = [change_of(row) for row in rows_of(tables_of(faulty_run.settings), "changes")]
    found = [row for row in rows if row.cause != Cause.STATE_REBUILT]
    assert found == changes
    assert {change.kind for change in changes} == set(ChangeKind) - _NOT_IN_HISTORY
    # Nothing was lost: the new partitions have only rows of the settings and servers that they have taken over.
    taken_over = {
        (row.kind, row.partition in range(len(faulty_run.repartitioned_at)))
        for row in rows
        if row.cause == Cause.STATE_REBUILT
    }
    assert taken_over <= {(ChangeKind.SETTING, False), (ChangeKind.SERVER, False)}


def test_every_event_and_heartbeat_of_the_log_is_in_the_history_once(faulty_run: FaultyRun) -> None:
    tables, found = tables_of(faulty_run.settings), defaultdict(list)
    for row in rows_of(tables, BROKER_EVENTS):
        value = row["raw"] if row["value"] is None else row["value"].encode()
        found[row["partition"]].append((row["offset"], row["at"], value))
    logs = []
    for partition, records in enumerate(faulty_run.records):
        own = sorted(found[partition])
        assert len(own) > 20
        assert own == [(r.offset, instant(r.at_ms), r.value) for r in records[: len(own)]]
        log = Log(partition=partition, partitions=len(faulty_run.records))
        for record in records[: len(own)]:
            log.append(record.value, record.at_ms - log.now_ms)
        logs.append(log)
    columns = ("partition", "cluster", "broker_name", "broker_addr", "server_id", "minute", "heartbeats", "last_at")
    expected = [tuple(row[c] for c in columns) for log in logs for row in minutes(log, 0)]
    assert sorted(tuple(row[c] for c in columns) for row in rows_of(tables, HEARTBEAT_MINUTES)) == expected


@pytest.mark.parametrize("engine", [SPARK, DUCKDB, POLARS])
def test_rows_valid_at_1000_instants_equal_a_replay_to_that_instant(
    engine: str, spark: SparkSession, faulty_run: FaultyRun, instants: list[int], contents: dict[int, Any]
) -> None:
    with ExitStack() as stack:
        query = _query_function(engine, spark, faulty_run, stack, pa.table({"instant_ms": instants}))
        rows = {row[:3]: row for row in map(change_of, query("SELECT h.* FROM route_history h"))}
        valid_rows: dict[int, list[RouteChange]] = defaultdict(list)
        for row in query(_VALID_AT_INSTANTS):
            valid_rows[row["instant_ms"]].append(rows[row["partition"], row["offset"], row["seq"]])
    assert len(instants) == _INSTANTS * (len(faulty_run.phases) - 1) >= 1_000
    for at_ms in instants:
        found = RouteTable()
        reducer.apply(found, sorted(valid_rows[at_ms], key=lambda row: (row.at_ms, *row[:3])))
        assert comparable_content(found, len(faulty_run.repartitioned_at)) == contents[at_ms], instant(at_ms)


def test_route_as_of_an_instant_equals_a_replay_to_that_instant(faulty_run: FaultyRun, instants: list[int]) -> None:
    """The command is also asked for instants that the history has not reached, and for topics without a route."""
    replays, random = PartitionReplays(faulty_run.records, faulty_run.repartitioned_at), Random(7)
    outcomes: dict[bool, int] = defaultdict(int)
    for at_ms in (instants[0], *sorted(random.sample(instants[1:], 12))):
        table = replays.table_at(at_ms)
        for topic in (random.choice(_TOPICS), RARE_TOPIC):
            expected = route_body(table, topic, RouteOptions())
            data_dir, sets = str(faulty_run.settings.data.dir), f"kafka.partitions={len(faulty_run.records)}"
            done = run_command("route", topic, "--as-of", str(at_ms), "--data-dir", data_dir, "--set", sets, "--json")
            outcomes[expected is not None] += 1
            if expected is None:
                assert (done.code, done.out) == (1, ""), (topic, at_ms)
                allowed = (f"no route for topic {topic} as of", "is before the start of the history")
                assert any(text in done.err for text in allowed), done.err
                continue
            assert done.code == 0, done.err
            found = json.loads(done.out)
            assert {name: found[name] for name in json.loads(expected)} == json.loads(expected), (topic, at_ms)
            assert found["lastChange"]["at_ms"] <= at_ms
    assert min(outcomes[True], outcomes[False]) > 1, outcomes


def _query_function(
    engine: str, spark: SparkSession, faulty_run: FaultyRun, stack: ExitStack, instants: pa.Table
) -> Callable[[str], list[dict[str, Any]]]:
    """Return a function that runs SQL in an engine connected as documented, in which ``instants`` is a table."""
    names = connect_as_documented(engine, faulty_run.settings.data.tables_dir, {"spark": spark})
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
