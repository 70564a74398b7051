"""Notifications of a new smallest brokerId are equal to those of the Java NameServer 5.3.3."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import pytest

from namesrv_stream.remoting.command import ONEWAY_FLAG, RemotingCommand, RequestCode
from namesrv_stream.remoting.frame import FrameBuffer, decode_frame
from tests.support.name_server import a_body, a_registration_request, a_topic
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import JavaNameServer
from tests.support.stack import Stack

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

# Java checks for expired brokers every 5 s.
_GONE_WITHIN_S = 60.0
_NOTIFIED_WITHIN_S = 30.0
#: Smaller than all ids of the scenarios, so every member is notified of it, after all earlier notifications.
_FENCE_ID = -99
_FENCE = "fence"


class BrokerListener:
    """A broker's listener for requests of a name server: it records them and never answers; a context manager.

    Attributes:
        addr: ``host:port`` to advertise.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.addr = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._peers: list[socket.socket] = []
        self._requests: list[RemotingCommand] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def requests(self) -> list[RemotingCommand]:
        """All requests so far; requests of one connection are in order."""
        return list(self._requests)

    def close(self) -> None:
        """Close the listener and all connections."""
        for each in (self._listener, *self._peers):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._peers.append(peer)
            reader = threading.Thread(target=self._read, args=(peer,), daemon=True)
            self._threads.append(reader)
            reader.start()

    def _read(self, peer: socket.socket) -> None:
        frames = FrameBuffer()
        with suppress(OSError):
            while data := peer.recv(65_536):
                self._requests.extend(map(decode_frame, frames.feed(data)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the listener and all connections."""
        self.close()


@dataclass(frozen=True)
class Join:
    """A member registers; ``fields`` changes the request."""

    member: str
    broker_id: int
    fields: Mapping[str, str | None] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True)
class Leave:
    """A member unregisters."""

    member: str


@dataclass(frozen=True)
class Close:
    """A member's connection closes."""

    member: str
    is_missed: bool = True


@dataclass(frozen=True)
class Expire:
    """A member expires."""

    member: str


Step = Join | Leave | Close | Expire

_PLAIN = {"enableActingMaster": "false"}
_OLD = {"enableActingMaster": None}
_ONE_TOPIC = a_body({"TopicTest": a_topic()})
_SHORT_LIVED = {"heartbeatTimeoutMillis": "2000"}


@dataclass(frozen=True)
class Scenario:
    """Steps of one group, and for each member the smallest ids it is notified of."""

    name: str
    steps: tuple[Step, ...]
    notifications: Mapping[str, list[int]] = field(default_factory=dict)


SCENARIOS = [
    Scenario("master joins its slave", (Join("B", 1), Join("A", 0)), {"B": [0]}),
    Scenario("master joins its slaves", (Join("B", 1), Join("C", 2), Join("A", 0)), {"B": [0], "C": [0]}),
    Scenario("master joins without acting master", (Join("B", 1, _PLAIN), Join("A", 0, _PLAIN)), {"B": [0]}),
    Scenario("master older than 5.0 joins", (Join("B", 1), Join("A", 0, _OLD)), {"B": [0]}),
    Scenario("master without HA address joins", (Join("B", 1), Join("A", 0, {"haServerAddr": None})), {"B": [0]}),
    Scenario("slaves join their master", (Join("A", 0), Join("B", 1), Join("C", 2))),
    Scenario("slaves join downwards", (Join("D", 3), Join("C", 2), Join("B", 1)), {"D": [2, 1], "C": [1]}),
    Scenario("one topic is refused", (Join("B", 1), Join("A", 0, body=_ONE_TOPIC))),
    Scenario("node before its election alone", (Join("A", -1),), {"A": [-1]}),
    Scenario(
        "node before its election joins and is elected", (Join("B", 0), Join("A", -1), Leave("A")), {"B": [-1, 0]}
    ),
    Scenario("master leaves", (Join("A", 0), Join("B", 1), Join("C", 2), Leave("A")), {"B": [1], "C": [1]}),
    Scenario("master closes", (Join("A", 0), Join("B", 1), Join("C", 2), Close("A")), {"B": [1], "C": [1]}),
    Scenario("master expires", (Join("A", 0, _SHORT_LIVED), Join("B", 1), Expire("A")), {"B": [1]}),
    Scenario("master leaves without acting master", (Join("A", 0, _PLAIN), Join("B", 1, _PLAIN), Leave("A"))),
    Scenario(
        "slave turns acting master off, then the master leaves",
        (Join("A", 0), Join("B", 1), Join("C", 2, _OLD), Leave("A")),
    ),
    Scenario("slave leaves", (Join("A", 0), Join("B", 1), Join("C", 2), Leave("B"))),
    Scenario("last member leaves and a slave joins", (Join("A", 0), Leave("A"), Join("B", 1))),
    Scenario(
        "all leave one after another",
        (Join("A", 0), Join("B", 1), Join("C", 2), Leave("A"), Leave("B"), Leave("C")),
        {"B": [1], "C": [1, 2]},
    ),
    Scenario(
        "master leaves and returns twice",
        (Join("A", 0), Join("B", 1), Leave("A"), Join("A", 0), Close("A"), Join("A", 0)),
        {"B": [1, 0, 1, 0]},
    ),
    Scenario(
        "ids with gaps", (Join("D", 40), Join("C", 17), Join("B", 5), Leave("B")), {"D": [17, 5, 17], "C": [5, 17]}
    ),
    Scenario("only slave becomes master", (Join("A", 1), Join("A", 0)), {"A": [0]}),
    Scenario("slave becomes master", (Join("A", 1), Join("B", 2), Join("A", 0)), {"B": [0]}),
    Scenario("master becomes slave", (Join("A", 0), Join("B", 1), Join("A", 2))),
    Scenario("master takes the id of its slave", (Join("A", 0), Join("B", 1), Join("A", 1))),
    Scenario(
        "address of the master is replaced, then the old one closes",
        (Join("A", 0), Join("B", 1), Join("C", 0), Close("A", is_missed=False)),
    ),
]


class Group:
    """A broker group at one name server; each member has its own listener and connection.

    Args:
        addr: The name server.
        name: The broker name.
    """

    def __init__(self, addr: str, name: str) -> None:
        self._addr = addr
        self._name = name
        self._parts = ExitStack()
        self._listeners: dict[str, BrokerListener] = {}
        self._connections: dict[str, RemotingClient] = {}
        self._ids: dict[str, int] = {}

    def play(self, steps: tuple[Step, ...]) -> None:
        """Execute the steps one by one, and check the notifications after each."""
        for step in steps:
            self._take(step)
        self._take(Join(_FENCE, _FENCE_ID))
        alone = {_FENCE} if len(self._ids) == 1 else set()
        for member in self._ids.keys() - {_FENCE} | alone:
            requests = self._listeners[member]
            wait_until(lambda: _is_fenced(requests.requests), _NOTIFIED_WITHIN_S, f"{member} has all notifications")  # noqa: B023

    def notifications(self) -> dict[str, list[dict[str, str]]]:
        """All notifications by member, including former members; addresses are replaced by their owners."""
        names = {listener.addr: member for member, listener in self._listeners.items()}
        names |= {_ha_addr(listener.addr): f"{member}'s HA" for member, listener in self._listeners.items()}
        return {
            member: [
                {key: names.get(text, text) for key, text in (request.ext_fields or {}).items()}
                for request in listener.requests
            ]
            for member, listener in self._listeners.items()
        }

    def requests(self) -> list[RemotingCommand]:
        """All requests that any member has received."""
        return [request for listener in self._listeners.values() for request in listener.requests]

    def _take(self, step: Step) -> None:
        match step:
            case Join():
                self._join(step)
            case Leave():
                fields = self._request(step.member, self._ids[step.member]).ext_fields
                assert self._connections[step.member].ask(RequestCode.UNREGISTER_BROKER, fields).code == 0
                self._wait_gone(step.member)
            case Close():
                self._connections.pop(step.member).close()
                if step.is_missed:
                    self._wait_gone(step.member)
            case Expire():
                self._wait_gone(step.member)

    def _join(self, step: Join) -> None:
        if step.member not in self._listeners:
            self._listeners[step.member] = self._parts.enter_context(BrokerListener())
        if step.member not in self._connections:
            self._connections[step.member] = self._parts.enter_context(RemotingClient(self._addr))
        request = self._request(step.member, step.broker_id, step.fields, step.body)
        answer = self._connections[step.member].ask(request.code, request.ext_fields, request.body or b"")
        if answer.code == 0:
            self._ids = {m: i for m, i in self._ids.items() if i != step.broker_id} | {step.member: step.broker_id}

    def _request(
        self, member: str, broker_id: int, fields: Mapping[str, str | None] | None = None, body: bytes | None = None
    ) -> RemotingCommand:
        addr = self._listeners[member].addr
        # Each group has its own cluster. Otherwise the guard would hold the brokers whose connections close.
        request = a_registration_request(addr, broker_id, body=body, brokerName=self._name, clusterName=self._name)
        changes = {"haServerAddr": _ha_addr(addr), "enableActingMaster": "true", **(fields or {})}
        ext_fields = {key: text for key, text in {**(request.ext_fields or {}), **changes}.items() if text is not None}
        return replace(request, ext_fields=ext_fields)

    def _wait_gone(self, member: str) -> None:
        addr = self._listeners[member].addr.encode()
        fields = {"brokerName": self._name, "clusterName": self._name}
        with RemotingClient(self._addr) as client:
            wait_until(
                lambda: addr not in client.ask(RequestCode.GET_BROKER_MEMBER_GROUP, fields).body,
                _GONE_WITHIN_S,
                f"{member} is gone",
            )
        del self._ids[member]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections and listeners."""
        self._parts.close()


def _ha_addr(addr: str) -> str:
    return f"{addr}-ha"


def _is_fenced(requests: list[RemotingCommand]) -> bool:
    return any((request.ext_fields or {}).get("minBrokerId") == str(_FENCE_ID) for request in requests)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack") / "data", name_server__notify_min_broker_id_changed="true") as running:
        running.wait_job()  # only the job expires brokers
        yield running


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaNameServer]:
    properties = {"notifyMinBrokerIdChanged": "true"}
    with JavaNameServer(tmp_path_factory.mktemp("java"), properties=properties) as running:
        yield running


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_brokers_are_notified_as_by_java(stack: Stack, java: JavaNameServer, scenario: Scenario) -> None:
    name = f"group of {scenario.name}"
    with Group(java.addr, name) as theirs, Group(stack.remoting, name) as ours:
        theirs.play(scenario.steps)
        ours.play(scenario.steps)

        assert ours.notifications() == theirs.notifications()
        assert _min_ids(ours) == scenario.notifications
        assert {(r.code, r.flag, r.body) for r in ours.requests() + theirs.requests()} == {
            (RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ONEWAY_FLAG, None)
        }


def _min_ids(group: Group) -> dict[str, list[int]]:
    found = {m: [int(fields["minBrokerId"]) for fields in notices] for m, notices in group.notifications().items()}
    return {m: [i for i in ids if i != _FENCE_ID] for m, ids in found.items() if any(i != _FENCE_ID for i in ids)}
