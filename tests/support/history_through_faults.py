"""A history that has gone through kills, a rebuild and a repartition: with a real Kafka, job, writer and commands.

Only the brokers and name servers are a script, whose records are sent as Kafka's clock passes.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.processes import read_run_file
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.tables.layout import BROKER_EVENTS, ROUTE_ARCHIVE, ROUTE_STATE
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import Log
from tests.support.command_line import run_command
from tests.support.history_life import live_on
from tests.support.kafka import REPOSITORY
from tests.support.offline_fold import read_records
from tests.support.processes import Process, wait_until
from tests.support.spark import event_producer, own_settings, wait_folded

_DEADLINE_S: Final = 600.0  # the machine may be busy with other things
_PARTITIONS: Final = 3
_MORE_PARTITIONS: Final = 5
_PAUSE_S: Final = 0.1
_MOMENT_S: Final = 5.0
_RECORDS_BEFORE: Final = 2_000  # of a partition: so that servers start again in later epochs than before


class FaultyLife(NamedTuple):
    """What has happened.

    Attributes:
        settings: With as many partitions as the topic has at the end.
        records: Of each partition, as Kafka has them.
        grown_at: Of each of the first partitions, the offset at which the topic got more.
        phases: Begins of the phases, and the end of the last: until the first kill, until the rebuild is done, until
            the topic has more partitions, until the end; epoch milliseconds.
    """

    settings: Settings
    records: list[list[Record]]
    grown_at: list[int]
    phases: list[int]


def live_through_faults(kafka_settings: Settings, data_dir: Path) -> FaultyLife:
    """Live it; blocks for about a minute."""
    settings = own_settings(kafka_settings, data_dir, _PARTITIONS, compaction_interval_ms=2_000, driver_memory="512m")
    kafka = settings.kafka.model_copy(update={"delivery_timeout_ms": 1_000})
    history = settings.history.model_copy(update={"heartbeats_interval_ms": 1, "driver_memory": "512m"})
    settings = settings.model_copy(update={"kafka": kafka, "history": history})
    more = settings.model_copy(update={"kafka": kafka.model_copy(update={"partitions": _MORE_PARTITIONS})})
    phases = [_now_ms()]
    with _traffic(settings, _lives(_PARTITIONS)):
        with _job(settings):
            _kill_history_amid_commit(settings, BROKER_EVENTS)
        phases.append(_now_ms())
        with _job(settings):
            _kill_history_amid_commit(settings, ROUTE_ARCHIVE)
        # The history is behind, and the rows that it has not read yet are rebuilt.
        tables_of(settings).remove_all(ROUTE_STATE)
        _run(settings, "rebuild")
        phases.append(_now_ms())
        with _job(settings):
            wait_folded(settings, _DEADLINE_S)
    _run(settings, "repartition", "--partitions", str(_MORE_PARTITIONS))
    grown_at = [read_extent(more).end[partition] for partition in range(_PARTITIONS)]
    phases.append(_now_ms())
    lives = _lives(_MORE_PARTITIONS, begun=_RECORDS_BEFORE)
    with _job(more):
        with _traffic(more, lives):
            time.sleep(_MOMENT_S)
        with _history_process(more, "", data_dir, "--once") as process:
            assert process.wait(_DEADLINE_S) == 0, process.log_text()
        with _traffic(more, lives):
            time.sleep(_MOMENT_S)  # of this the history knows nothing
        wait_folded(more, _DEADLINE_S)
    phases.append(_now_ms())
    records: list[list[Record]] = [[] for _ in range(_MORE_PARTITIONS)]
    for record in read_records(more):
        records[record.partition].append(record)
    return FaultyLife(more, records, grown_at, phases)


def _lives(partitions: int, begun: int = 0) -> list[Iterator[bytes]]:
    """What happens in each partition, record by record, after so many records that no reader receives."""
    return [_life(Log(partition=p, partitions=partitions), Random(p), begun) for p in range(partitions)]


def _life(log: Log, random: Random, begun: int) -> Iterator[bytes]:
    sent = begun
    live_on(log, random, begun)
    while True:
        live_on(log, random, 100)
        yield from (record.value for record in log.records[sent:])
        sent = len(log.records)


@contextmanager
def _traffic(settings: Settings, lives: Sequence[Iterator[bytes]]) -> Iterator[None]:
    """Each partition gets a record now and then, until the context is left."""
    stop = threading.Event()
    failures: list[Exception] = []

    def send() -> None:
        try:
            with event_producer(settings) as producer:
                while not stop.wait(_PAUSE_S):
                    for partition, life in enumerate(lives):
                        producer.send_value(next(life), partition)
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
    """The job, from its first batch until it is killed."""
    run_file = settings.data.run_dir / "job.json"
    run_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "namesrv_stream", "job", "--conf", _conf(settings)]
    with Process("job", command, settings.data.dir / "job-test.log", cwd=REPOSITORY) as process:
        wait_until(lambda: read_run_file(run_file) or not process.is_alive, _DEADLINE_S, "the job has begun")
        yield
        assert process.is_alive, process.log_text()
        process.signal(signal.SIGKILL, whole_group=True)


def _kill_history_amid_commit(settings: Settings, table: str) -> None:
    """Kill the writer when it has written the data of a commit and not yet the commit."""
    # So few records at a time that there are commits before.
    slowly = settings.model_copy(update={"history": settings.history.model_copy(update={"max_records": 90})})
    reached = settings.data.dir / f"amid-{table}"
    with _history_process(slowly, table, reached) as process:
        wait_until(lambda: reached.exists() or not process.is_alive, _DEADLINE_S, f"a commit of {table} under way")
        assert process.is_alive, process.log_text()
        process.signal(signal.SIGKILL, whole_group=True)
        process.wait(10)
    folder = settings.data.tables_dir / table
    entries = "".join(path.read_text() for path in folder.glob("_delta_log/*.json"))
    data = [path.name for path in folder.glob("*/*.parquet") if not path.parent.name.startswith("_")]
    assert {name in entries for name in data} == {True, False}


def _history_process(settings: Settings, table: str, reached: Path, *options: str) -> Process:
    """One that hangs amid a commit of a table, and then makes a file; of no table where it is to come to its end."""
    command: list[str | Path] = [sys.executable, "-m", "tests.support.hanging_history", table, reached, "history-job"]
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
    """By the clock of this machine, which is Kafka's."""
    return time.time_ns() // 1_000_000
