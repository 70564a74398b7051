"""Past routes on the whole product equal the answers that clients received at that time."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.tables.layout import HEARTBEAT_MINUTES, ROUTE_ARCHIVE
from tests.support.command_line import run_command
from tests.support.name_server import a_body, a_broker_header, a_registration_request, a_topic
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.stack import Stack

# The history's Spark has a low priority, so it takes minutes on a busy machine.
pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1_800)]

TOPIC = "TopicTest"
MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.3:10911"
#: With the long timeout no broker expires, even on a busy machine; with the short one a broker expires soon.
PATIENT_MS, HASTY_MS = 600_000, 1_000
WAIT_S = 600.0
#: Fields that the HTTP port and `route --json` add to RocketMQ's TopicRouteData.
BESIDE = ("asOf", "lastChange", "history", "notes")

Route = dict[str, Any] | None


class Observer:
    """A client that records the answers it receives, and when."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.seen: list[tuple[int, Route]] = []

    def observe(self) -> None:
        """Record the current route; later changes have a later time."""
        at_ms = time.time_ns() // 1_000_000
        self.seen.append((at_ms, self._get(f"/routes/{TOPIC}")))
        wait_until(lambda: time.time_ns() // 1_000_000 > at_ms, 1, "the next millisecond")

    def by_http(self, at_ms: int) -> Route:
        return _bare(self._get(f"/routes/{TOPIC}?as_of={at_ms}"))

    def by_command(self, at_ms: int) -> Route:
        found = run_command("route", TOPIC, "--as-of", str(at_ms), "--json", *_conf(self._stack))
        assert (
            found.code == 0 or "no route for topic" in found.err or "is before the start of the history" in found.err
        ), found
        return _bare(json.loads(found.out)) if found.code == 0 else None

    def _get(self, path: str) -> Route:
        try:
            found: Route = self._stack.get(path)
            return found
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 404:
                    raise
                return None


def _bare(route: Route) -> Route:
    return route and {key: value for key, value in route.items() if key not in BESIDE}


def _conf(stack: Stack) -> tuple[str, str]:
    return "-c", str(stack.settings.data.run_dir / "effective.toml")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    flags: dict[str, str | int] = {
        "history__enabled": "true",
        "history__interval_ms": 3_000,
        "streaming__driver_memory": "512m",
    }
    with Stack(tmp_path / "data", **flags) as running:
        running.wait_job()
        yield running


def test_past_routes_equal_the_answers_that_clients_received(stack: Stack) -> None:
    observer = Observer(stack)
    observer.observe()
    with RemotingClient(stack.remoting) as slave:
        with RemotingClient(stack.remoting) as master:
            # One after another, because records of one batch have one timestamp, and so are one change of the route.
            _register(master, MASTER, 0)
            _observe_after(observer, stack, kind="broker_live", broker_addr=MASTER, cause="registered")
            _register(slave, SLAVE, 1)
            _observe_after(observer, stack, kind="broker_live", broker_addr=SLAVE, cause="registered")
            _register(master, MASTER, 0, queues=16)
            _observe_after(observer, stack, kind="queue_data", topic=TOPIC, write_queue_nums=16)
        _observe_after(observer, stack, kind="broker_live", broker_addr=MASTER, gone=True, cause="disconnected")
        _ask(slave, RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header(SLAVE, 1)))
        _observe_after(observer, stack, kind="broker_live", broker_addr=SLAVE, gone=True, cause="unregistered")
        _register(slave, MASTER, 0, queues=4)
        _observe_after(observer, stack, kind="queue_data", topic=TOPIC, write_queue_nums=4)
        _register(slave, MASTER, 0, queues=4, timeout_ms=HASTY_MS)
        _observe_after(observer, stack, kind="broker_live", broker_addr=MASTER, gone=True, cause="expired")

    assert [route is not None for _, route in observer.seen] == [False, True, True, True, True, False, True, False]
    tables = [str(stack.settings.data.tables_dir / name) for name in (ROUTE_ARCHIVE, HEARTBEAT_MINUTES)]
    wait_until(lambda: all(map(DeltaTable.is_deltatable, tables)), WAIT_S, "the history tables exist")
    _check_past_routes(observer)
    last_ms = observer.seen[-1][0]
    wait_until(lambda: _stored_to_ms(stack) > last_ms, WAIT_S, "the history tables contain all changes", every_s=1)
    _check_past_routes(observer)
    _check_history_commands(stack)


def _check_past_routes(observer: Observer) -> None:
    for at_ms, route in observer.seen:
        assert observer.by_command(at_ms) == route
        assert observer.by_http(at_ms) == route


def _check_history_commands(stack: Stack) -> None:
    answer = _history(stack, "broker-a")
    ended = [(s["broker_addr"], s["cause"]) for s in answer["sessions"]]
    assert ended == [(MASTER, "disconnected"), (MASTER, "expired"), (SLAVE, "unregistered")]
    counts = [(c["brokers"], c["write_queues"]) for c in _history(stack, "--topic", TOPIC)["changes"]]
    assert counts == [(1, 8), (1, 8), (1, 16), (1, 16), (0, 0), (1, 4), (0, 0)]
    outages = _history(stack, "--outages")["outages"]
    last = [(o["scope"], o["cause"], o["for_good"]) for o in outages if o["end_ms"] is None]
    assert ("broker_name", "expired", False) in last
    plot = stack.data_dir / "plot.html"
    assert run_command("history", "broker-a", "--plot", str(plot), *_conf(stack)).code == 0
    assert "<svg" in plot.read_text()


def _history(stack: Stack, *question: str) -> dict[str, Any]:
    found = run_command("history", *question, "--json", *_conf(stack))
    assert found.code == 0, found.err
    answer: dict[str, Any] = json.loads(found.out)
    return answer


def _stored_to_ms(stack: Stack) -> int:
    found = run_command("history", "broker-a", "--json", *_conf(stack))
    return int(json.loads(found.out)["history"]["stored_to_ms"]) if found.code == 0 else 0


def _observe_after(observer: Observer, stack: Stack, **change: object) -> None:
    """Record the route after the job has committed a change and the server has it."""
    (*_, row) = stack.wait_change(WAIT_S, **change)
    wait_until(lambda: _served_to(stack, row["partition"]) > row["offset"], WAIT_S, "the server has the change")
    observer.observe()


def _served_to(stack: Stack, partition: int) -> int:
    offsets: dict[str, int] = stack.get("/state")["next_offsets"]
    return offsets[str(partition)]


def _register(
    client: RemotingClient, addr: str, broker_id: int, *, queues: int = 8, timeout_ms: int = PATIENT_MS
) -> None:
    topics = {TOPIC: a_topic(queues=queues), "baseTopic": a_topic()} if broker_id == 0 else {}
    body, timeout = a_body(topics, counter=queues), str(timeout_ms)
    _ask(client, a_registration_request(addr, broker_id, body=body, heartbeatTimeoutMillis=timeout))


def _ask(client: RemotingClient, request: RemotingCommand) -> None:
    answer = client.ask(request.code, request.ext_fields, request.body or b"")
    assert answer.code == ResponseCode.SUCCESS, answer
