"""The history process with a real Kafka and job, and replay and what-if of the records that it archived.

``tests/spark/test_history_with_faults.py`` kills it.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from kafka import KafkaAdminClient, TopicPartition

from namesrv_stream.kafka import admin_config
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.processes import read_run_file
from namesrv_stream.route.events import BrokerRegistered, KvPut, Origin, ServerStarted, Tick, TopicDeleted
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.tables.layout import BROKER_EVENTS
from tests.support.builders import RW, a_proof, a_registration
from tests.support.command_line import run_command
from tests.support.kafka import REPOSITORY
from tests.support.processes import Process, wait_until
from tests.support.spark import EventProducer, event_producer, has_folded, own_settings
from tests.support.table_edits import rewrite_rows

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark]

_DEADLINE_S = 600.0
_S1 = Origin("s1", 1, 1)


def _conf(settings: Settings) -> str:
    return str(settings.data.dir / "test.toml")


def _process(settings: Settings, *command: str) -> Process:
    arguments = [sys.executable, "-m", "namesrv_stream", *command, "--conf", _conf(settings)]
    return Process(command[0], arguments, settings.data.dir / f"{command[0]}.log", cwd=REPOSITORY)


def _send_events(producer: EventProducer) -> None:
    producer.send(ServerStarted(_S1._replace(connection_id=0)))
    for number in range(30):
        topics = {f"t{number}": RW, "TopicTest": RW}
        registration = a_registration(broker_name=f"broker-{number % 7}", topics=topics, registration_hash=f"{number}")
        producer.send(BrokerRegistered(_S1, registration), Tick(_S1._replace(connection_id=0)))
        producer.send(a_proof(registration, _S1))
    producer.send(TopicDeleted(_S1, "t3", None), KvPut(_S1, "ns", "key", "value"))
    for partition in (0, 1):
        producer.send_value(b"\xff\xfe no JSON", partition)
        producer.send_value(b"", partition)


def _fold_and_archive(settings: Settings) -> None:
    """Run the job, and the history process for one run."""
    with event_producer(settings) as producer, _process(settings, "job") as job:
        _send_events(producer)
        _wait_folded(settings, job)
        _archive(settings)
        _send_events(producer)  # while the history process does not run
        _wait_folded(settings, job)
        assert job.terminate(60) == 0, job.log_text()


def _archive(settings: Settings) -> None:
    """Run the history process until its first run has ended. Meanwhile a second process is refused."""
    with _process(settings, "history-job") as history:
        run_file = settings.data.run_dir / "history-job.json"
        wait_until(lambda: read_run_file(run_file) or not history.is_alive, _DEADLINE_S, "the first run")
        assert history.is_alive, history.log_text()
        with _process(settings, "history-job", "--once") as second:
            assert second.wait(60) == 2
            assert "another history-job runs here" in second.log_text()
        assert os.getpriority(os.PRIO_PROCESS, history.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
        assert history.terminate(10) == 0
        assert not (settings.data.dir / "scratch-history").exists()


def _wait_folded(settings: Settings, job: Process) -> None:
    """Wait until the job has committed all current records of the topic."""
    extent = read_extent(settings)

    def has_all() -> bool:
        assert job.is_alive, job.log_text()
        if read_run_file(settings.data.run_dir / "job.json") is None:
            return False
        return has_folded(settings, extent)

    wait_until(has_all, _DEADLINE_S, "the job has folded the whole topic")


def _remove_from_kafka(settings: Settings, before: dict[int, int]) -> None:
    """Remove records from Kafka, as its retention does."""
    topic = settings.kafka.broker_events_topic
    admin = KafkaAdminClient(**admin_config(settings))
    try:
        admin.delete_records({TopicPartition(topic, p): offset for p, offset in before.items()})
    finally:
        admin.close()


def _run(settings: Settings, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run_command(*arguments, "--json", "--conf", _conf(settings))
    assert code in (0, 1), err
    return code, json.loads(out)


def _stores(outcome: dict[str, Any]) -> list[list[str]]:
    return [[piece["store"] for piece in part["read_from"]] for part in outcome["partitions"]]


@pytest.mark.timeout(1_200)  # it starts Spark twice and folds eight times, which takes minutes on a busy machine
def test_records_removed_from_kafka_are_read_from_the_archive(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = own_settings(kafka_settings, tmp_path / "data", partitions=2, driver_memory="512m")
    settings.data.dir.mkdir()
    Path(_conf(settings)).write_text(to_toml(settings))
    _fold_and_archive(settings)
    code, of_kafka = _run(settings, "replay", "--source", "kafka", "--from-offset", "0")
    assert (code, of_kafka["equal"]) == (0, True), of_kafka
    asked = ("what-if", "--timeout", "1s,2s")
    lived = _run(settings, *asked, "--source", "kafka")[1]
    archived = {p: piece["end"] for p, piece in enumerate(_pieces(settings))}

    _remove_from_kafka(settings, {p: end - 5 for p, end in archived.items()})
    code, outcome = _run(settings, "replay", "--from-offset", "0")
    assert (code, outcome["digest"]) == (0, of_kafka["digest"]), outcome
    assert _stores(outcome) == [["archive", "kafka"]] * 2
    for before, after in zip(of_kafka["partitions"], outcome["partitions"], strict=True):
        assert {**before, "read_from": None} == {**after, "read_from": None}
    again = _run(settings, *asked)[1]
    assert again["clusters"] == lived["clusters"]
    assert again["records"] == lived["records"]

    is_it = pc.field("kind").is_valid() & (pc.field("kind") == "kv_put")
    assert rewrite_rows(settings.data.tables_dir, BROKER_EVENTS, "value", "{}", is_it) == 1
    code, damaged = _run(settings, "replay", "--from-offset", "0")
    first = damaged["first_difference"]
    assert (code, first["kind"], first["stored"]["namespace"], first["folded"]) == (1, "kv", "ns", None)

    _remove_from_kafka(settings, {p: end + 5 for p, end in archived.items()})
    code, _, error = run_command("replay", "--from-offset", "0", "--conf", _conf(settings))
    assert code == 1
    missing = f"the records {archived[0]} to {archived[0] + 4} are missing: Kafka removed them while the history did"
    assert missing in error


def _pieces(settings: Settings) -> list[dict[str, Any]]:
    """Return the offsets in the archive by partition."""
    found = _run(settings, "replay", "--source", "archive", "--from-offset", "0")[1]
    assert found["equal"] is True, found
    return [part["read_from"][0] for part in found["partitions"]]
