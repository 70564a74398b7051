"""An operator's changes with a real Kafka: the server answers when they are in the log, or with an error in time."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from namesrv_stream.remoting.command import ResponseCode
from namesrv_stream.settings import Settings
from tests.integration.test_server import Serve
from tests.support.kafka import KafkaProcess, settings_for
from tests.support.offline_fold import read_records
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient, encode_request

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

_KAFKA_TIMEOUT_S = 90.0
#: How long mqadmin waits for an answer.
_MQADMIN_TIMEOUT_S = 5.0
PUT, GET, DELETE_TOPIC = 100, 101, 216
PARTITIONS = 3


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[tuple[KafkaProcess, Serve]]:
    settings = settings_for(tmp_path / "data", kafka__delivery_timeout_ms=8000, kafka__partitions=PARTITIONS)
    kafka = KafkaProcess(settings)
    server = Serve(settings, tmp_path)
    try:
        kafka.wait_ready()
        server.start()
        yield kafka, server
    finally:
        if kafka.process.poll() is None:
            kafka.thaw()
        server.process.close()
        kafka.stop()


def an_entry(key: str) -> dict[str, str]:
    return {"namespace": "n", "key": key, "value": "v"}


def logged(settings: Settings) -> Counter[str]:
    return Counter(orjson.loads(r.value)["kind"] for r in read_records(settings))


def is_accepted(operator: RemotingClient) -> bool:
    return operator.ask(PUT, an_entry("probe")).code == ResponseCode.SUCCESS


def test_change_is_acknowledged_when_it_is_in_the_log(stack: tuple[KafkaProcess, Serve]) -> None:
    _, server = stack
    with server.connect() as operator:
        for i in range(3):
            assert operator.ask(PUT, an_entry(f"k{i}")).code == ResponseCode.SUCCESS
            assert logged(server.settings)["kv_put"] == i + 1
        assert operator.ask(DELETE_TOPIC, {"topic": "T"}).code == ResponseCode.SUCCESS
        assert logged(server.settings)["topic_deleted"] == PARTITIONS


@pytest.mark.alone
def test_frozen_kafka_is_reported_in_time_and_a_deletion_is_complete_after_it_resumes(
    stack: tuple[KafkaProcess, Serve],
) -> None:
    kafka, server = stack
    with server.connect() as operator:
        assert is_accepted(operator)
        wait_until(server.talks, _KAFKA_TIMEOUT_S, "Kafka accepts records of all partitions")
        kafka.freeze()
        begin_s = time.monotonic()
        answer = operator.ask(DELETE_TOPIC, {"topic": "T"})
        assert time.monotonic() - begin_s < _MQADMIN_TIMEOUT_S
        assert (answer.code, "unknown" in (answer.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)
        answer = operator.ask(PUT, an_entry("k"))
        assert (answer.code, "nothing was changed" in (answer.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)
        wait_until(lambda: not server.talks(), _KAFKA_TIMEOUT_S, "the server has ended the session")

        kafka.thaw()
        wait_until(lambda: is_accepted(operator), _KAFKA_TIMEOUT_S, "changes are accepted again")

    records = [(r.partition, orjson.loads(r.value)["kind"]) for r in read_records(server.settings)]
    assert {p for p, kind in records if kind == "topic_deleted"} == set(range(PARTITIONS))


def test_stopping_server_answers_waiting_requests(stack: tuple[KafkaProcess, Serve]) -> None:
    kafka, server = stack
    with server.connect() as operator, server.connect() as other:
        assert is_accepted(operator)
        kafka.freeze()
        operator.send(encode_request(PUT, 7, an_entry("k")))
        wait_until(lambda: other.ask(GET, an_entry("k")).code == ResponseCode.SUCCESS, 30, "the view has the change")
        server.process.signal(signal.SIGTERM)
        assert operator.receive().code == ResponseCode.SYSTEM_BUSY
    assert server.process.wait(60) == 0
