"""Programs that follow the changes of the whole product despite kills: clients of ``/changes``, and the webhook."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.route import reducer
from namesrv_stream.route.digest import digest_of
from namesrv_stream.route.table import RouteTable
from tests.support.followed import row_of
from tests.support.name_server import a_broker_header, a_registration_request
from tests.support.processes import free_port, wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.scripted_brokers import ScriptedBrokers
from tests.support.second_server import SecondServer
from tests.support.stack import Stack
from tests.support.webhook_receiver import Receiver

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 2
BROKERS = 6
SETTLE_S = 90.0


@pytest.fixture(scope="module")
def webhook_port() -> int:
    """The port at which the webhook expects its receiver."""
    return free_port()


@pytest.fixture(scope="module")
def stack(webhook_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    flags: dict[str, str | int] = {
        "kafka__partitions": PARTITIONS,
        "webhook__url": f"http://127.0.0.1:{webhook_port}/hook",
        "webhook__events": "broker_down,broker_route",
    }
    with Stack(tmp_path_factory.mktemp("follow") / "data", **flags) as running:
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

    def has_the_state_of(self, http: str) -> bool:
        """Whether the follower has the state of the server; False if the server's state has changed meanwhile."""
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
        wait_until(lambda: client.has_the_state_of(stack.http), SETTLE_S, "the follower has the state of the server")
        brokers.register(0, version=2)
        wait_until(
            lambda: client.has_the_state_of(second.http), SETTLE_S, "the follower has the state of the second server"
        )
        stack.kill("serve")  # it loses its memory, so it reads the rows from the tables
        wait_until(
            lambda: client.has_the_state_of(stack.http),
            SETTLE_S,
            "the follower has the state of the restarted server",
            ignoring=(OSError,),
        )
        stack.kill("job")
        brokers.register(1, version=2)
        wait_until(
            lambda: client.has_the_state_of(second.http), SETTLE_S, "the follower has the changes after the job's end"
        )
        brokers.unregister()
        wait_until(lambda: client.brokers(second.http) == 0, SETTLE_S, "the follower has no broker")


def test_server_exports_metrics_of_the_job(stack: Stack) -> None:
    def figures() -> dict[str, float]:
        with urllib.request.urlopen(f"http://{stack.http}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ")[::2] for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    # The metrics of a batch are in the commit after it.
    batches = "rocketmq_namesrv_job_batch_seconds_count"
    wait_until(lambda: figures().get(batches, 0) > 0, SETTLE_S, "the job's figures")
    found = figures()
    assert found["rocketmq_namesrv_job_records_total"] > 0
    assert found["rocketmq_namesrv_job_dead_letters_total"] == 0
    assert found["rocketmq_namesrv_kafka_up"] == 1


def test_webhook_reports_every_removed_broker_in_order_across_restarts_of_both_sides(
    stack: Stack, webhook_port: int
) -> None:
    wait_until(lambda: (stack.settings.data.webhook_dir / "position.json").exists(), SETTLE_S, "webhook follows")
    with Receiver(webhook_port) as receiver:
        stack.kill("webhook")  # it had no receiver during the other tests, so it might wait for up to a minute
        _register_and_unregister(stack, "10.0.0.1:10911")
        _wait_reported(receiver, "10.0.0.1:10911")
    # The webhook is killed while there is no receiver.
    _register_and_unregister(stack, "10.0.0.2:10911")
    stack.kill("webhook")
    stack.kill("serve")
    with Receiver(webhook_port) as receiver:
        _register_and_unregister(stack, "10.0.0.3:10911")
        _wait_reported(receiver, "10.0.0.2:10911", "10.0.0.3:10911")


def _register_and_unregister(stack: Stack, addr: str) -> None:
    """Register and unregister a broker."""
    unregistration = RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header(addr, 0))
    with RemotingClient(stack.remoting) as broker:
        for request in (a_registration_request(addr, 0), unregistration):
            answer = broker.ask(request.code, request.ext_fields, request.body or b"")
            assert answer.code == ResponseCode.SUCCESS, answer
    stack.wait_change(kind="broker_live", broker_addr=addr, gone=True)


def _expected(*addrs: str) -> list[tuple[str, str]]:
    return [pair for addr in addrs for pair in (("broker_route", addr), ("broker_down", addr))]


def _wait_reported(receiver: Receiver, *addrs: str) -> None:
    """Wait until all events of these brokers have arrived in order; events may be repeated but not reordered."""

    def seen() -> list[tuple[str, str]]:
        events: dict[str, dict[str, Any]] = {}
        for event in receiver.accepted_events:
            events.setdefault(event["id"], event)
        found = [(e["event"], e.get("broker_addr") or e["broker_addrs"]["0"]) for e in events.values()]
        return [pair for pair in found if pair[1].startswith("10.0.0.")]  # not the brokers of the other tests

    wait_until(lambda: len(seen()) >= 2 * len(addrs), SETTLE_S, "reports of all brokers")
    assert seen() == _expected(*addrs)
