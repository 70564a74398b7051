"""Name servers are added and removed while clients send queries; brokers and clients find them over HTTP."""

import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Measured
from tests.support.java_client import JavaClient
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

UNLISTED = "namesrv-stream.unlisted-servers"
FEW, MORE = ("ns-a", "ns-b"), ("ns-c", "ns-d", "ns-e")
LISTED_S = 30.0
BROKER_S = 60.0  # brokers register every 10 s
# RocketMQ's clients request the list every two minutes, and no option shortens that. This load requests it more often.
REREAD_S = 0.5
_GET_ROUTE = 105


class Load:
    """Route queries to all servers of the list in turn. A failed one is not repeated at another server."""

    def __init__(self, stack: Stack, topics: Sequence[str]) -> None:
        self.topics = topics
        self.failures: list[str] = []
        self.asked: Counter[str] = Counter()
        self._rereads = 0
        self._stack = stack
        self._connections: dict[str, RemotingClient] = {}
        self._stopping = threading.Event()

    @contextmanager
    def running(self) -> Iterator["Load"]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            thread.join()

    def wait_reread(self) -> None:
        """Wait until the load has read the list twice more, as the how-to guide says."""
        wanted = self._rereads + 2
        wait_until(lambda: self._rereads >= wanted, LISTED_S, "the load has read the list again")

    def _run(self) -> None:
        read_s, listed = 0.0, []
        while not self._stopping.is_set():
            if time.monotonic() - read_s >= REREAD_S:
                listed, read_s = name_servers(self._stack), time.monotonic()
                self._rereads += 1
            for addr in listed:
                for topic in self.topics:
                    self._query(addr, topic)
            self._stopping.wait(0.01)
        for connection in self._connections.values():
            connection.close()

    def _query(self, addr: str, topic: str) -> None:
        self.asked[addr] += 1
        try:
            if addr not in self._connections:
                self._connections[addr] = RemotingClient(addr)
            code = self._connections[addr].ask(_GET_ROUTE, {"topic": topic}).code
        except OSError as error:
            self._connections.pop(addr, None)
            self.failures.append(f"{topic} at {addr}: {error!r}")
        else:
            if code != 0:
                self.failures.append(f"{topic} at {addr}: code {code}")


@pytest.fixture
def servers(stack: Stack, tmp_path: Path) -> Iterator[dict[str, SecondServer]]:
    """Five servers that are not started; those that run at the end are stopped and leave the list."""
    stack.wait_job()
    made = {s: SecondServer(tmp_path / s, stack, server_id=s, is_advertised=True) for s in (*FEW, *MORE)}
    try:
        yield made
        for server in made.values():
            if server.process.is_alive:
                server.process.terminate()
        _wait_listed(stack, made, [stack.remoting])  # without a list, the requested server returns its own address
    finally:
        for server in made.values():
            server.process.close()


def test_no_query_fails_while_servers_are_added_and_removed(
    stack: Stack,
    servers: dict[str, SecondServer],
    mqadmin: Mqadmin,
    java_client: JavaClient,
    measured: Measured,
    tmp_path: Path,
) -> None:
    _start(stack, servers, FEW)
    with _broker(stack, tmp_path, "broker-first") as first, _broker(stack, tmp_path, "broker-second") as second:
        _wait_heard(stack, (first, second), FEW)
        with Load(stack, (first.name, second.name)).running() as load:
            took_s = _start(stack, servers, MORE, already=FEW)
            _wait_heard(stack, (first, second), (*FEW, *MORE))
            assert java_client.publish_queues(second.name, namesrv_domain=stack.http)

            for server_id in MORE:
                mqadmin.run("updateKvConfig", "-n", stack.remoting, "-s", UNLISTED, "-k", server_id, "-v", "removal")
            _wait_listed(stack, servers, FEW)
            load.wait_reread()
            for server_id in MORE:
                servers[server_id].process.terminate()
            for server_id in MORE:
                mqadmin.run("deleteKvConfig", "-n", stack.remoting, "-s", UNLISTED, "-k", server_id)
            assert _listed(stack, servers) == set(FEW)
            first.register()  # at the remaining servers
            assert java_client.publish_queues(second.name, namesrv_domain=stack.http)
    measured(
        f"servers 2 -> 5 -> 2: three servers started and listed in {took_s:.1f} s;"
        f" {sum(load.asked.values())} route queries at {len(load.asked)} servers, {len(load.failures)} failed"
    )
    assert load.failures == []
    assert load.asked.keys() == {server.remoting for server in servers.values()}


def test_stopped_server_leaves_the_list_before_it_closes_connections(
    stack: Stack, servers: dict[str, SecondServer]
) -> None:
    _start(stack, servers, FEW)
    leaving = servers[FEW[1]]
    with RemotingClient(leaving.remoting) as connection:
        closed_s: list[float] = []
        wait = threading.Thread(target=_wait_closed, args=(connection, closed_s))
        wait.start()
        stop = threading.Thread(target=leaving.process.terminate)
        stop.start()
        _wait_listed(stack, servers, FEW[:1])
        left_s = time.monotonic()
        stop.join()
        wait.join()
    assert left_s < closed_s[0]


def name_servers(stack: Stack) -> list[str]:
    """Return the addresses that clients receive."""
    with urllib.request.urlopen(f"http://{stack.http}/rocketmq/nsaddr", timeout=10) as answer:
        return str(answer.read().decode()).strip().split(";")


def _listed(stack: Stack, servers: dict[str, SecondServer]) -> set[str]:
    ids = {server.remoting: server_id for server_id, server in servers.items()}
    return {ids.get(addr, addr) for addr in name_servers(stack)}


def _wait_listed(stack: Stack, servers: dict[str, SecondServer], wanted: Sequence[str]) -> None:
    wait_until(lambda: _listed(stack, servers) == set(wanted), LISTED_S, f"the list is {wanted}")


def _start(
    stack: Stack, servers: dict[str, SecondServer], started: Sequence[str], already: Sequence[str] = ()
) -> float:
    """Start servers and wait until they are listed; return the seconds that it took."""
    began_s = time.monotonic()
    for server_id in started:
        servers[server_id].process.start()
    _wait_listed(stack, servers, (*already, *started))
    return time.monotonic() - began_s


@contextmanager
def _broker(stack: Stack, folder: Path, name: str) -> Iterator[Broker]:
    """A broker that requests the list 10 s after its start, and then every second."""
    properties = {"fetchNamesrvAddrInterval": "1000"}
    domain = {"rocketmq.namesrv.domain": stack.http}
    broker = Broker(folder / name, None, name=name, properties=properties, system_properties=domain)
    try:
        broker.start_unregistered()
        yield broker
    finally:
        broker.close()


def _wait_heard(stack: Stack, brokers: Sequence[Broker], wanted: Sequence[str]) -> None:
    """Wait until all these servers, and no others, receive the heartbeats of the brokers."""

    def heard() -> bool:
        servers = {found["broker_name"]: set(found["servers"]) for found in stack.get("/brokers")}
        return all(servers.get(broker.name) == set(wanted) for broker in brokers)

    wait_until(heard, BROKER_S, f"the brokers are heard by {wanted}")


def _wait_closed(connection: RemotingClient, closed_s: list[float]) -> None:
    """Add the time at which the peer closes the connection."""
    with suppress(ConnectionError):
        while True:
            connection.receive()
    closed_s.append(time.monotonic())
