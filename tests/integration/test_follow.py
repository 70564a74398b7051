"""``/changes`` of the whole product: a follower has the same state as each server, despite kills."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from namesrv_stream.route import reducer
from namesrv_stream.route.digest import digest_of
from namesrv_stream.route.table import RouteTable
from tests.support.followed import row_of
from tests.support.processes import wait_until
from tests.support.scripted_brokers import ScriptedBrokers
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 2
BROKERS = 6
SETTLE_S = 90.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("follow") / "data", kafka__partitions=PARTITIONS) as running:
        running.wait_job()
        yield running


class Client:
    """A follower that uses long polling and applies the changes."""

    def __init__(self, http: str) -> None:
        self.table = RouteTable()
        state = _get(http, "/changes/state?kind=*")
        self.position = state["position"]
        reducer.apply(self.table, map(row_of, state["rows"]))

    def follow(self, http: str) -> None:
        """Follow at a server until there is nothing new."""
        while True:
            found = _get(http, f"/changes?since={self.position}&kind=*&wait=0")
            reducer.apply(self.table, map(row_of, found["rows"]))
            self.position = found["position"]
            if not found["rows"] and found["whole"]:
                return

    def brokers(self, http: str) -> int:
        """Follow at a server; returns the number of brokers."""
        self.follow(http)
        return sum(1 for _ in self.table.registered_groups())

    def has_what(self, http: str) -> bool:
        """Whether it has the state of the server; False if the server has changed meanwhile."""
        self.follow(http)
        state = _get(http, "/state")
        return bool(state["digest"] == digest_of(self.table, PARTITIONS).total)


def _get(http: str, path: str) -> Any:
    with urllib.request.urlopen(f"http://{http}{path}", timeout=30) as answer:
        return json.load(answer)


def test_follower_has_the_state_of_every_server_despite_kills(stack: Stack, tmp_path: Path) -> None:
    client = Client(stack.http)
    with (
        SecondServer(tmp_path / "second", stack, kafka__partitions=PARTITIONS) as second,
        ScriptedBrokers("follow", BROKERS, [second.remoting]) as brokers,
    ):
        brokers.register()
        wait_until(lambda: client.brokers(stack.http) == BROKERS, SETTLE_S, "the follower has all brokers")
        wait_until(lambda: client.has_what(stack.http), SETTLE_S, "the follower has the state of the server")
        brokers.register(0, version=2)
        wait_until(lambda: client.has_what(second.http), SETTLE_S, "the follower has the state of the second server")
        stack.kill("serve")  # what it had in memory is gone: rows come out of the tables
        wait_until(
            lambda: client.has_what(stack.http),
            SETTLE_S,
            "the follower has the state of the restarted server",
            ignoring=(OSError,),
        )
        stack.kill("job")
        brokers.register(1, version=2)
        wait_until(lambda: client.has_what(second.http), SETTLE_S, "the follower has the changes after the job's end")
        brokers.unregister()
        wait_until(lambda: client.brokers(second.http) == 0, SETTLE_S, "the follower has no broker")


def test_server_exports_metrics_of_the_job(stack: Stack) -> None:
    def figures() -> dict[str, float]:
        with urllib.request.urlopen(f"http://{stack.http}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ")[::2] for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    # A batch is told of with the commit after it.
    batches = "rocketmq_namesrv_job_batch_seconds_count"
    wait_until(lambda: figures().get(batches, 0) > 0, SETTLE_S, "the job's figures")
    found = figures()
    assert found["rocketmq_namesrv_job_records_total"] > 0
    assert found["rocketmq_namesrv_job_dead_letters_total"] == 0
    assert found["rocketmq_namesrv_kafka_up"] == 1
