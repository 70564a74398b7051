"""Permissions and addresses of a group with acting master, as brokers register, unregister and change roles.

Every case was executed with a Java NameServer 5.3.3 and supportActingMaster=true, with the same result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from namesrv_stream.route.group import BrokerGroup, add_write_perm, unregister, wipe_write_perm
from namesrv_stream.route.model import DataVersion, QueueData
from namesrv_stream.route.registration import register
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import pickup_topic_route
from tests.support.builders import HOLDER, NAME, a_key, a_registration

A, B, C = (f"10.0.0.{n}:10911" for n in range(1, 4))
BOTH: Mapping[str, int] = {"t": 6, "u": 6}


@dataclass(frozen=True)
class Registers:
    """``topics`` is topic to perm; ``acting`` the header enableActingMaster."""

    addr: str
    broker_id: int
    version: int = 1
    topics: Mapping[str, int] = field(default_factory=lambda: BOTH)
    acting: bool | None = True


@dataclass(frozen=True)
class Unregisters:
    addr: str
    broker_id: int


@dataclass(frozen=True)
class Operator:
    """Code 327 (add) or 205 (wipe)."""

    adds_write: bool


Step = Registers | Unregisters | Operator

ADD_WRITE, WIPE_WRITE = Operator(True), Operator(False)
MASTERLESS = (Registers(A, 0), Registers(B, 1), Registers(C, 2), Unregisters(A, 0))


@dataclass(frozen=True)
class Case:
    """The state after ``steps``: perm by topic, and the addresses in the route of topic ``t``."""

    name: str
    steps: tuple[Step, ...]
    perms: Mapping[str, int]
    addrs: Mapping[int, str]


CASES = [
    Case("slave first", (Registers(B, 1),), {"t": 4, "u": 4}, {0: B}),
    Case("slave first, then its master", (Registers(B, 1), Registers(A, 0)), BOTH, {0: A, 1: B}),
    Case(
        "slave of a master changes no topic",
        (Registers(A, 0), Registers(B, 1, 2, {"t": 2, "v": 6})),
        BOTH,
        {0: A, 1: B},
    ),
    Case("master unregisters", MASTERLESS, {"t": 4, "u": 4}, {0: B, 2: C}),
    Case(
        "master unregisters, and the same slave registers again",
        (*MASTERLESS, Registers(B, 1)),
        {"t": 4, "u": 4},
        {0: B, 2: C},
    ),
    Case(
        "prime slave of a known version only adds topics, without write",
        (*MASTERLESS, Registers(B, 1, 1, {"t": 2, "u": 6, "v": 6})),
        {"t": 4, "u": 4, "v": 4},
        {0: B, 2: C},
    ),
    Case(
        "prime slave of another version rewrites topics, without write",
        (*MASTERLESS, Registers(B, 1, 2, {"t": 3, "u": 7})),
        {"t": 1, "u": 5},
        {0: B, 2: C},
    ),
    Case(
        "slave that is not prime changes no topic",
        (*MASTERLESS, Registers(C, 2, 2, {"t": 3, "v": 6})),
        {"t": 4, "u": 4},
        {0: B, 2: C},
    ),
    Case("prime slave unregisters", (*MASTERLESS, Unregisters(B, 1)), {"t": 4, "u": 4}, {0: C}),
    Case(
        "next slave of a known version only adds topics",
        (*MASTERLESS, Unregisters(B, 1), Registers(C, 2, 1, {"t": 2, "v": 6})),
        {"t": 4, "u": 4, "v": 4},
        {0: C},
    ),
    Case(
        "next slave of another version rewrites topics",
        (*MASTERLESS, Unregisters(B, 1), Registers(C, 2, 2, {"t": 3, "v": 6})),
        {"t": 1, "u": 4, "v": 4},
        {0: C},
    ),
    Case("master returns with its version", (*MASTERLESS, Registers(A, 0)), BOTH, {0: A, 1: B, 2: C}),
    Case(
        "slaves register after the master returned",
        (*MASTERLESS, Registers(A, 0), Registers(B, 1, 2), Registers(C, 2, 2)),
        BOTH,
        {0: A, 1: B, 2: C},
    ),
    Case(
        "another master comes", (*MASTERLESS, Registers("10.0.0.9:10911", 0)), BOTH, {0: "10.0.0.9:10911", 1: B, 2: C}
    ),
    Case("prime slave becomes master with its version", (*MASTERLESS, Registers(B, 0)), BOTH, {0: B, 2: C}),
    Case("last slave becomes master", (*MASTERLESS, Registers(C, 0, 2)), BOTH, {0: C, 1: B}),
    Case(
        "master becomes slave, nobody has left", (Registers(A, 0), Registers(B, 1), Registers(A, 2)), BOTH, {1: B, 2: A}
    ),
    Case(
        "master becomes slave, and the prime slave registers with another version",
        (Registers(A, 0), Registers(B, 1), Registers(A, 2), Registers(B, 1, 2)),
        {"t": 4, "u": 4},
        {0: B, 2: A},
    ),
    Case(
        "master becomes slave, then unregisters",
        (Registers(A, 0), Registers(B, 1), Registers(A, 2), Unregisters(A, 2)),
        {"t": 4, "u": 4},
        {0: B},
    ),
    Case(
        "master at another address replaces the master",
        (Registers(A, 0), Registers(B, 1), Registers(C, 0)),
        BOTH,
        {0: C, 1: B},
    ),
    Case(
        "replaced master unregisters",
        (Registers(A, 0), Registers(B, 1), Registers(C, 0), Unregisters(A, 0)),
        BOTH,
        {0: C, 1: B},
    ),
    Case("slave unregisters", (Registers(A, 0), Registers(B, 1), Unregisters(B, 1)), BOTH, {0: A}),
    Case(
        "master of a group whose last registration is without acting master unregisters",
        (Registers(A, 0), Registers(B, 1, acting=False), Unregisters(A, 0)),
        BOTH,
        {1: B},
    ),
    Case(
        "master of a group whose last registration is of a 4.x broker unregisters",
        (Registers(A, 0), Registers(B, 1, acting=None), Unregisters(A, 0)),
        BOTH,
        {1: B},
    ),
    Case(
        "acting master is disabled after the master unregistered",
        (*MASTERLESS, Registers(B, 1, 2, acting=False)),
        BOTH,
        {1: B, 2: C},
    ),
    Case("operator adds write to a masterless group", (*MASTERLESS, ADD_WRITE), BOTH, {1: B, 2: C}),
    Case(
        "operator adds write, then a slave unregisters",
        (*MASTERLESS, ADD_WRITE, Unregisters(C, 2)),
        {"t": 4, "u": 4},
        {0: B},
    ),
    Case(
        "operator wipes write, then the master returns",
        (*MASTERLESS, WIPE_WRITE, Registers(A, 0)),
        BOTH,
        {0: A, 1: B, 2: C},
    ),
    Case(
        "master registers again after an operator wiped write",
        (Registers(A, 0), WIPE_WRITE, Registers(A, 0)),
        {"t": 4, "u": 4},
        {0: A},
    ),
    Case(
        "slave registers after all unregistered",
        (*MASTERLESS, Unregisters(B, 1), Unregisters(C, 2), Registers(C, 2)),
        {"t": 4, "u": 4},
        {0: C},
    ),
    # rocketmq #7626: a node without an id yet is the smallest, and takes write from the topics of its master.
    Case(
        "node before its election registers next to its master and unregisters",
        (Registers(A, 0), Registers(B, -1), Unregisters(B, -1)),
        {"t": 4, "u": 4},
        {0: A},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_permissions_and_addresses_of_a_group_with_acting_master_are_those_of_java(case: Case) -> None:
    table = RouteTable()
    for step in case.steps:
        table.replace_group(_after(table.group(NAME), step))

    group = table.group(NAME)
    route = pickup_topic_route(table, "t", support_acting_master=True)
    assert {topic: queue_data.perm for topic, queue_data in group.topics.items()} == case.perms
    assert route is not None
    assert [broker.broker_addrs for broker in route.broker_datas] == [case.addrs]


def _after(group: BrokerGroup, step: Step) -> BrokerGroup:
    match step:
        case Registers():
            registration = a_registration(
                step.addr,
                step.broker_id,
                data_version=DataVersion(step.version, 1_000, 0),
                topics={topic: QueueData(8, 8, perm) for topic, perm in step.topics.items()},
                enable_acting_master=step.acting,
            )
            return register(group, registration, "s1", HOLDER).group
        case Unregisters():
            return unregister(group, a_key(step.addr))
        case Operator():
            return add_write_perm(group) if step.adds_write else wipe_write_perm(group)
