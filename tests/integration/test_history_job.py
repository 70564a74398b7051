"""The history process with a real Kafka and job: its tables equal the log although it is killed at any time."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.processes import read_run_file
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.events import BrokerRegistered, BrokerUnregistered, Origin, Tick, TopicDeleted
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.tables.history_files import read_mark
from namesrv_stream.tables.layout import (
    BROKER_EVENTS,
    HEARTBEAT_MINUTES,
    HISTORY_SCHEMAS,
    ROUTE_ARCHIVE,
)
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import RW, Log, a_registration
from tests.support.history_oracle import instant, intervals, minutes, sessions
from tests.support.history_views import BROKER_SESSIONS, ROUTE_HISTORY, TOPIC_ROUTE_HISTORY, rows_of
from tests.support.kafka import REPOSITORY
from tests.support.offline_fold import as_row, read_records
from tests.support.processes import Process, wait_until
from tests.support.spark import EventProducer, committed_offsets, event_producer, own_settings

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(2_000)]

_DEADLINE_S = 600.0  # it is niced, and the machine may be busy with other things
_MADE = 0  # the commit that makes a table
_HOUR_MS = 3_600_000
_S1 = Origin("s1", 1, 1)


@contextmanager
def _part(settings: Settings, command: str, *flags: str) -> Iterator[Process]:
    conf = settings.data.dir / "conf.toml"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(to_toml(settings))
    arguments = [sys.executable, "-m", "namesrv_stream", command, "--conf", str(conf), *flags]
    with Process(command, arguments, settings.data.dir / f"{command}.log", cwd=REPOSITORY) as process:
        yield process


def _send_some(producer: EventProducer, numbers: range) -> None:
    for number in numbers:
        registration = a_registration(
            broker_name=f"broker-{number % 5}",
            topics={f"t{number % 40}": RW, "TopicTest": RW},
            registration_hash=f"hash {number}",
        )
        producer.send(BrokerRegistered(_S1, registration), Tick(_S1._replace(connection_id=0)))
        if number % 4 == 0:
            producer.send(TopicDeleted(_S1, f"t{(number - 1) % 40}", None))
        if number % 7 == 0:
            producer.send(BrokerUnregistered(_S1, registration.broker_name, registration.live_key, 0))


def _rows(settings: Settings, table: str) -> list[dict[str, Any]]:
    rows = rows_of(tables_of(settings), table)
    return sorted(rows, key=lambda row: (row["partition"], row["offset"])) if table == BROKER_EVENTS else rows


def test_kills_lose_nothing_and_duplicate_nothing(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = own_settings(kafka_settings, tmp_path, partitions=2, driver_memory="512m")
    history = settings.history.model_copy(
        update={"interval_ms": 1, "driver_memory": "512m", "max_records": 5_000, "heartbeats_interval_ms": 1}
    )
    settings = settings.model_copy(update={"history": history})
    topic = read_extent(settings)
    random = Random(6)
    versions: list[dict[str, int]] = []
    with event_producer(settings) as producer, _part(settings, "job"):
        with _sending(producer):
            for table in (HEARTBEAT_MINUTES, BROKER_EVENTS, ROUTE_ARCHIVE):
                _kill_after_a_commit_of(table, settings, random)
                versions.append(_versions(settings))
        end = read_extent(settings).end  # the job's own ticks go on

        def has_folded() -> bool:
            committed = committed_offsets(settings, topic.topic_id)
            return all(committed[p] >= end[p] for p in end)

        wait_until(has_folded, _DEADLINE_S, "all of it in route_changes")
        with _part(settings, "history-job", "--once") as last:
            assert last.wait(_DEADLINE_S) == 0, last.log_text()
            assert "broker_events=" in last.log_text()
    assert any(len(set(version.values())) > 1 for version in versions), "no kill between commits of two tables"
    _agree_with_the_log(settings)


def _kill_after_a_commit_of(table: str, settings: Settings, random: Random) -> None:
    with _part(settings, "history-job") as writer:
        before = _versions(settings)[table]

        def has_committed() -> bool:
            assert writer.is_alive, writer.log_text()
            return _versions(settings)[table] > max(before, _MADE)

        wait_until(has_committed, _DEADLINE_S, f"a commit of {table}")
        # Whatever it is just doing: it works from one run to the next without a pause.
        time.sleep(random.uniform(0.0, 2.0))
        writer.signal(signal.SIGKILL, whole_group=True)
        writer.wait(10)


@contextmanager
def _sending(producer: EventProducer) -> Iterator[None]:
    """Send events continuously from a thread."""
    has_ended = threading.Event()

    def send() -> None:
        number = 0
        while not has_ended.wait(1.0):
            _send_some(producer, range(number, number + 2))
            number += 2

    thread = threading.Thread(target=send, name="events")
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def _versions(settings: Settings) -> dict[str, int]:
    """Return table → number of its newest commit; -1 if there is no table."""
    return {
        table: max(
            (
                int(p.stem)
                for p in (settings.data.tables_dir / table / "_delta_log").glob("*.json")
                if p.stem.isdecimal()
            ),
            default=-1,
        )
        for table in HISTORY_SCHEMAS
    }


def _agree_with_the_log(settings: Settings) -> None:
    """Assert that each table equals what Kafka's records give up to its progress."""
    reaches = read_mark(tables_of(settings) / BROKER_EVENTS)
    assert reaches is not None
    logs = [Log(partition=p, partitions=2) for p in range(2)]
    for record in read_records(settings, dict(reaches.next_offsets)):
        log = logs[record.partition]
        log.append(record.value, record.at_ms - log.now_ms)
    changes = [c for log in logs for c in log.output.changes]
    assert [(r["partition"], r["offset"], r["at"], r["value"].encode()) for r in _rows(settings, BROKER_EVENTS)] == [
        (r.partition, r.offset, instant(r.at_ms), r.value) for log in logs for r in log.records
    ]
    routes = [
        {**as_row(c), "valid_from": instant(c.at_ms), "valid_to": None if end is None else instant(end)}
        for c, end in intervals(changes)
    ]
    found = _rows(settings, ROUTE_HISTORY)
    assert [{**row, "broker_addrs": row["broker_addrs"] and dict(row["broker_addrs"])} for row in found] == routes
    topics = _rows(settings, TOPIC_ROUTE_HISTORY)
    of_topics = [row for row in routes if row["kind"] == ChangeKind.QUEUE_DATA]
    assert topics == [{name: row[name] for name in topics[0]} for row in of_topics]
    assert _rows(settings, BROKER_SESSIONS) == [session for log in logs for session in sessions(log)]
    key = ("partition", "cluster", "broker_name", "broker_addr", "server_id", "minute")
    found_minutes = sorted(_rows(settings, HEARTBEAT_MINUTES), key=lambda row: tuple(row[name] for name in key))
    expected_minutes = [row for log in logs for row in minutes(log, _HOUR_MS)]
    assert [_without(row, "gap_p50_ms", "gap_p99_ms", "gap_max_ms") for row in found_minutes] == [
        _without(row, "gaps") for row in expected_minutes
    ]
    assert [row["gap_max_ms"] for row in found_minutes] == [max(row["gaps"], default=None) for row in expected_minutes]


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def test_clean_stop_removes_scratch_files_and_a_second_process_is_refused(
    kafka_settings: Settings, tmp_path: Path
) -> None:
    settings = own_settings(kafka_settings, tmp_path, driver_memory="512m")
    settings = settings.model_copy(update={"history": settings.history.model_copy(update={"driver_memory": "512m"})})
    with event_producer(settings) as producer, _part(settings, "job"):
        _send_some(producer, range(5))
        with _part(settings, "history-job") as writer:
            wait_until(lambda: read_run_file(settings.data.run_dir / "history-job.json"), _DEADLINE_S, "the first run")
            with _part(settings, "history-job", "--once") as second:
                assert second.wait(60) == 2
                assert "another history-job runs here" in second.log_text()
            assert os.getpriority(os.PRIO_PROCESS, writer.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
            assert writer.terminate(10) == 0
            assert not (settings.data.dir / "scratch-history").exists()
