"""The cost of an event does not grow with what peers can make large, apart from the exceptions in ``_LINEAR``.

Each collection of the fold's state is grown to two sizes. An event of each kind is then folded, and the growth itself
is measured. A new kind of event or a new collection needs an entry here, or a test fails.
"""

import dataclasses
import re
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

import pytest

from namesrv_stream.route.event_json import KIND_OF
from namesrv_stream.route.events import (
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    GuardReleased,
    KvDeleted,
    KvPut,
    Origin,
    Proof,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    SettingsChanged,
    Tick,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.fold.fold_record import fold_events
from namesrv_stream.route.fold.lease import Lease, ServerClock
from namesrv_stream.route.fold.liveness import MAX_RETAINED
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.fold.step import FoldOutput, GroupDict, Record
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import BrokerLive, LiveKey, Registration
from namesrv_stream.route.registration import MAX_PROCESSES
from tests.support.builders import BASE, BEGIN_MS, NAME, RW, S1, a_registration, over

_SMALL, _LARGE = 200, 4_800  # 24 times as many
_EVENTS: Final = 20  # of one kind, folded for one measurement
_ROUNDS: Final = 3
_TOLERANCE: Final = 3  # n log n is 1.6 times n here; a cost of n for each event would be 24 times
_NOISE_S: Final = 0.001


class World:
    """A fold whose records are not encoded, because only the fold is measured."""

    def __init__(self) -> None:
        self.state, self.groups, self.numbers = (
            FoldState(0, 1, settings=FoldSettings(guard_known_ms=0)),
            GroupDict(),
            count(),
        )
        self.at_ms = BEGIN_MS

    def say(self, event: Event, after_ms: int = 0) -> None:
        self.at_ms += after_ms
        output = FoldOutput()
        fold_events(self.state, self.groups, Record(0, next(self.numbers), self.at_ms, b""), [event], output)
        assert not output.dead_letters


def _broker(number: int, name: str = "", cluster: str = "c0") -> Registration:
    addr = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:10911"
    return a_registration(addr, broker_name=name or f"broker-{number}", cluster=cluster, topics=BASE | {"T": RW})


def _registers(registration: Registration) -> Event:
    return BrokerRegistered(over(S1, 1), registration)


def _closes(registration: Registration) -> Event:
    return BrokerDisconnected(over(S1, 1), registration.broker_name, registration.live_key, "closed")


def _brokers(world: World, size: int) -> None:
    for number in range(size):
        world.say(_registers(_broker(number)))


def _brokers_of_one_name(world: World, size: int) -> None:
    for number in range(size):
        world.say(_registers(_broker(number, NAME)))


def _clusters(world: World, size: int) -> None:
    for number in range(size):
        world.say(_registers(_broker(number, cluster=f"c{number}")))


def _mass_failure(world: World, size: int) -> None:
    _brokers(world, size)
    for number in range(size):
        world.say(_closes(_broker(number)))


def _closes_of_clusters(world: World, size: int) -> None:
    _clusters(world, size)
    for number in range(size):
        world.say(_closes(_broker(number, cluster=f"c{number}")))


def _ended(world: World, size: int) -> None:
    for number in range(size):
        broker = _broker(number)
        world.say(_registers(broker))
        world.say(BrokerUnregistered(over(S1, 1), broker.broker_name, broker.live_key, 0))


def _ended_of_one_name(world: World, size: int) -> None:
    for number in range(size):
        broker = _broker(number, NAME)
        world.say(_registers(broker))
        world.say(BrokerUnregistered(over(S1, 1), broker.broker_name, broker.live_key, 0))


def _expiry(world: World, size: int) -> None:
    _brokers(world, size)
    for _ in range(130):
        world.say(Tick(S1), 1_000)


_GROWTH: Final[dict[str, Callable[[World, int], None]]] = {
    f.__name__.strip("_"): f
    for f in (
        _brokers,
        _brokers_of_one_name,
        _clusters,
        _mass_failure,
        _closes_of_clusters,
        _ended,
        _ended_of_one_name,
        _expiry,
    )
}
#: Collection → the growth that makes it large, or why peers cannot.
_COLLECTIONS: Final = {
    "FoldState.servers": "only those who may write to the topic name servers; ended ones are forgotten after a day",
    "FoldState.leases": "brokers",
    "FoldState.gone": "ended",
    "FoldState.new": "ended",
    "ServerClock.closes": "closes_of_clusters",
    "Lease.holders": "at most one of each server",
    "BrokerGroup.clusters": "at most one of each process",
    "BrokerGroup.broker_addrs": "brokers_of_one_name",
    "BrokerGroup.live_brokers": "brokers_of_one_name",
    "BrokerGroup.topics": "the size of a registration, which is limited",
    "BrokerGroup.topic_mappings": "the size of a registration, which is limited",
    "BrokerGroup.registrations": "ended_of_one_name",
    "BrokerLive.filter_servers": "the size of a registration, which is limited",
    "BrokerLive.holders": "at most one of each server",
    "BrokerLive.contradictions": "the size of a registration, which is limited",
}
_NEW: Final = _broker(1 << 20)
_EXAMPLES: Final[dict[type, Callable[[int], Event]]] = {
    BrokerRegistered: lambda n: _registers(_broker((1 << 20) + n)),
    BrokerHeartbeat: lambda _: BrokerHeartbeat(over(S1, 1), NAME, _NEW.live_key, Proof.HEARTBEAT),
    BrokerUnregistered: lambda n: BrokerUnregistered(over(S1, 1), f"broker-{n}", _broker(n).live_key, 0),
    BrokerDisconnected: lambda n: _closes(_broker(n)),
    TopicRegistered: lambda n: TopicRegistered(S1, f"broker-{n}", "new", RW),
    TopicDeleted: lambda _: TopicDeleted(S1, "none", None),
    WritePermChanged: lambda n: WritePermChanged(S1, f"broker-{n}", n % 2 > 0),
    KvPut: lambda n: KvPut(S1, "namespace", f"key{n}", "value"),
    KvDeleted: lambda n: KvDeleted(S1, "namespace", f"key{n}"),
    SettingsChanged: lambda n: SettingsChanged(S1, "ada", (("guard_min_brokers", 3 + n),)),
    GuardReleased: lambda _: GuardReleased(S1, "c0", "ada"),
    ServerStarted: lambda n: ServerStarted(Origin("s1", n + 2)),
    ServerResumed: lambda _: ServerResumed(S1),
    ServerStopped: lambda _: ServerStopped(S1),
    Tick: lambda _: Tick(S1, "10.0.0.1:9876"),
}
#: Kinds whose cost may grow like the number of brokers: operators and name servers cause them.
_LINEAR: Final = (TopicDeleted, SettingsChanged, GuardReleased, ServerResumed)


def _grown(growth: str, size: int) -> tuple[World, float]:
    """Return a world with a collection of a size, and the processor time of its growth."""
    world = World()
    world.say(ServerStarted(S1))
    began_s = time.process_time()
    _GROWTH[growth](world, size)
    return world, time.process_time() - began_s


def _least(values: Iterable[float]) -> float:
    return max(min(values), _NOISE_S)


@pytest.mark.parametrize("growth", _GROWTH)
def test_growth_costs_at_most_n_log_n(growth: str) -> None:
    small = _least(_grown(growth, _SMALL)[1] for _ in range(_ROUNDS))
    large = _least(_grown(growth, _LARGE)[1] for _ in range(2))

    assert large <= small * _LARGE / _SMALL * _TOLERANCE, f"{small * 1e3:.1f} ms, {large * 1e3:.1f} ms"


@pytest.mark.parametrize("growth", _GROWTH)
def test_cost_of_an_event_does_not_grow(growth: str) -> None:
    def costs(size: int, times: int) -> dict[type, float]:
        rounds: dict[type, list[float]] = {kind: [] for kind in _EXAMPLES}
        for number in range(times):
            world = _grown(growth, size)[0]
            for kind, example in _EXAMPLES.items():
                began_s = time.process_time()
                for each in range(_EVENTS):
                    world.say(example(number * _EVENTS + each))
                rounds[kind].append(time.process_time() - began_s)
        return {kind: _least(found) for kind, found in rounds.items()}

    small, large = costs(_SMALL, _ROUNDS), costs(_LARGE, 2)

    for kind in _EXAMPLES:
        most = small[kind] * _TOLERANCE * (_LARGE / _SMALL if kind in _LINEAR else 1)
        assert large[kind] <= most, f"{kind.__name__}: {small[kind] * 1e3:.1f} ms, {large[kind] * 1e3:.1f} ms"


def test_every_kind_of_event_and_every_collection_is_measured() -> None:
    stores = (FoldState, ServerClock, Lease, BrokerGroup, BrokerLive)
    containers = (r"\b(dict|Mapping|list|tuple|set|frozenset)\b", "RecentCloses")
    fields = ((cls, field) for cls in stores for field in dataclasses.fields(cls) if not field.name.startswith("_"))

    assert set(_EXAMPLES) == {*KIND_OF, BrokerHeartbeat}
    assert set(_COLLECTIONS) == {
        f"{c.__name__}.{f.name}" for c, f in fields if any(re.search(k, str(f.type)) for k in containers)
    }


def test_newcomer_beyond_the_processes_of_a_name_is_refused_and_the_others_stay() -> None:
    world = World()
    _brokers_of_one_name(world, MAX_PROCESSES)
    before = world.groups.groups[NAME]
    output = FoldOutput()

    record = Record(0, next(world.numbers), world.at_ms, b"")
    fold_events(world.state, world.groups, record, [_registers(_broker(MAX_PROCESSES, NAME))], output)

    assert [row.detail for row in output.changes] == [
        f"{NAME} has {MAX_PROCESSES} live processes, and may have no more"
    ]
    assert world.groups.groups[NAME] is before
    world.say(_registers(_broker(0, NAME)))
    assert _broker(0).live_key in world.groups.groups[NAME].live_brokers


def test_registrations_of_ended_processes_are_limited() -> None:
    of_one_name, of_many = _grown("ended_of_one_name", 3 * MAX_PROCESSES)[0], World()
    _ended(of_many, MAX_RETAINED + 3)
    of_many.say(Tick(S1))

    assert len(of_one_name.groups.groups[NAME].registrations) <= MAX_PROCESSES
    assert LiveKey("c0", _broker(3 * MAX_PROCESSES - 1).broker_addr) in of_one_name.groups.groups[NAME].registrations
    assert len(of_many.state.gone) == len(of_many.groups.groups) == MAX_RETAINED
    assert "broker-2" not in of_many.groups.groups
