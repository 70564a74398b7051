"""The history process beside a real Kafka and a real job: killed at any moment, its tables say what the log says."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable

from namesrv_stream.route.events import BrokerRegistered, BrokerUnregistered, Origin, Tick, TopicDeleted
from namesrv_stream.run_files import read_run_file
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.snapshot.history_mark import read_mark
from namesrv_stream.streaming.topic import read_extent
from namesrv_stream.tables import BROKER_EVENTS, BROKER_SESSIONS, ROUTE_HISTORY, TOPIC_ROUTE_HISTORY, table_path
from tests.support.builders import RW, a_registration
from tests.support.history_oracle import instant, intervals
from tests.support.kafka import REPOSITORY
from tests.support.offline_fold import fold_offline, read_records
from tests.support.processes import Process, wait_until
from tests.support.spark import EventProducer, committed_offsets, event_producer, own_settings

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark]

_DEADLINE_S = 240.0
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
            topics={f"t{number}": RW, "TopicTest": RW},
            registration_hash=f"hash {number}",
        )
        producer.send(BrokerRegistered(_S1, registration), Tick(_S1._replace(connection_id=0)))
        if number % 4 == 0:
            producer.send(TopicDeleted(_S1, f"t{number - 1}", None))
        if number % 7 == 0:
            producer.send(BrokerUnregistered(_S1, registration.broker_name, registration.live_key, 0))


def _rows(settings: Settings, table: str) -> list[dict[str, Any]]:
    path = table_path(settings.data.tables_dir, table)
    if not DeltaTable.is_deltatable(str(path)):
        return []
    columns = ["partition", "offset", "seq"] if table != BROKER_EVENTS else ["partition", "offset"]
    found: list[dict[str, Any]] = (
        DeltaTable(path).to_pyarrow_table().sort_by([(c, "ascending") for c in columns]).to_pylist()
    )
    return found


def test_killed_amid_its_work_it_loses_nothing_and_writes_nothing_twice(
    kafka_settings: Settings, tmp_path: Path
) -> None:
    settings = own_settings(kafka_settings, tmp_path, partitions=2, driver_memory="512m")
    history = settings.history.model_copy(update={"interval_ms": 200, "driver_memory": "512m", "max_records": 200})
    settings = settings.model_copy(update={"history": history})
    topic = read_extent(settings)
    random = Random(6)
    with event_producer(settings) as producer, _part(settings, "job"):
        for kill in range(3):
            with _part(settings, "history-job") as writer:
                _send_some(producer, range(40 * kill, 40 * kill + 40))
                seen = len(_rows(settings, BROKER_EVENTS))

                def has_more(seen: int = seen) -> bool:
                    assert writer.is_alive, writer.log_text()
                    return len(_rows(settings, BROKER_EVENTS)) > seen

                wait_until(has_more, _DEADLINE_S, "rows of broker_events")
                # Whatever it is just doing: it works from one run to the next without a pause.
                wait_until(lambda: random.random() < 0.02, 10, "a moment of chance")
                writer.signal(signal.SIGKILL, whole_group=True)
                writer.wait(10)

        end = read_extent(settings).end  # the job's own ticks go on

        def has_committed() -> bool:
            committed = committed_offsets(settings, topic.topic_id)
            return all(committed[p] >= end[p] for p in end)

        wait_until(has_committed, _DEADLINE_S, "all of it in route_changes")
        with _part(settings, "history-job", "--once") as last:
            assert last.wait(_DEADLINE_S) == 0, last.log_text()
            assert "wrote broker_events" in last.log_text()
    _agree_with_the_log(settings)


def _agree_with_the_log(settings: Settings) -> None:
    mark = read_mark(table_path(settings.data.tables_dir, BROKER_EVENTS))
    assert mark is not None
    until = dict(mark.next_offsets)
    events = _rows(settings, BROKER_EVENTS)
    records = read_records(settings, until)
    assert [(r["partition"], r["offset"], r["at"], r["value"].encode()) for r in events] == [
        (r.partition, r.offset, instant(r.at_ms), r.value) for r in records
    ]
    expected = [
        (c.partition, c.offset, c.seq, c.kind, c.gone, instant(c.at_ms), None if end is None else instant(end))
        for c, end in intervals(fold_offline(settings, until))
    ]
    columns = ("partition", "offset", "seq", "kind", "gone", "valid_from", "valid_to")
    assert [tuple(r[c] for c in columns) for r in _rows(settings, ROUTE_HISTORY)] == expected
    topics = [e for e in expected if e[3] == "queue_data"]
    assert [(r["partition"], r["offset"], r["seq"]) for r in _rows(settings, TOPIC_ROUTE_HISTORY)] == [
        e[:3] for e in topics
    ]
    sessions = _rows(settings, BROKER_SESSIONS)
    assert sum(s["down_at"] is None for s in sessions) == sum(
        e[3] == "broker_live" and not e[4] and e[6] is None for e in expected
    )


def test_a_clean_stop_is_quick_and_leaves_no_scratch_and_a_second_one_is_refused(
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
            assert Path(f"/proc/{writer.pid}/stat").read_text().rpartition(")")[2].split()[16] == "10"  # niced
            assert writer.terminate(10) == 0
            assert not (settings.data.dir / "scratch-history").exists()
