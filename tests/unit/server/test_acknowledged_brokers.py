"""A broker whose registration was answered with SUCCESS stays in the view, whatever commits arrive afterwards.

The job may be behind: its commit can say that the broker expired at an earlier moment.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import BrokerDisconnected, BrokerHeartbeat, Event, Origin, Proof, Tick
from namesrv_stream.route.model import LeaseKey, LiveKey
from namesrv_stream.server.gateway.records import OutRecord
from tests.support.examples import examples
from tests.support.name_server import MASTER, a_broker_header, a_registration_request
from tests.support.server_rig import MAX_GAP_MS, TICK_MS, MemoryTransport, Rig, turn

KEY = LeaseKey("broker-a", LiveKey("c0", MASTER))
ANOTHER = Origin("s2", 1, 1)
TIMEOUT_MS = 7_000
REGISTRATION = a_registration_request(heartbeatTimeoutMillis=str(TIMEOUT_MS))
HEARTBEAT = RemotingCommand(RequestCode.BROKER_HEARTBEAT, ext_fields=a_broker_header())


class Beats(NamedTuple):
    """The server works while the broker says nothing."""

    ticks: int


class Freeze(NamedTuple):
    """The server stalls, and another one goes on."""

    ticks: int


class Outage(NamedTuple):
    """The server does not reach Kafka, and another one does."""

    ticks: int


class Commit(NamedTuple):
    """The job commits the next records of the log."""

    records: int


class Do(NamedTuple):
    what: str


Step = Beats | Freeze | Outage | Commit | Do
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(Beats, st.integers(1, 16)),
    st.builds(Freeze, st.integers(MAX_GAP_MS // TICK_MS + 1, 40)),
    st.builds(Outage, st.integers(1, 40)),
    st.builds(Commit, st.integers(1, 40)),
    st.sampled_from(
        ("register", "register", "heartbeat", "reconnect", "connect too", "close the older", "ends elsewhere")
    ).map(Do),
)


class World:
    """A broker and its server.

    Attributes:
        is_safe: Whether the broker has been heard without a pause since its last registration, over this connection.
        older: Other connections over which the broker has registered.
        removals: Number of committed rows that removed the broker.
    """

    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.talk()
        self.broker = self.rig.connect()
        self.older: list[MemoryTransport] = []
        self.is_safe, self.removals = False, 0
        self._silent_ms = 0

    async def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Beats():
                    for _ in range(step.ticks):
                        self.rig.beat()
                        self.rig.publisher.ack()
                    self._silent_ms += step.ticks * TICK_MS
                    self.is_safe &= self._silent_ms <= TIMEOUT_MS
                case Freeze():
                    for _ in range(step.ticks):
                        self.rig.clock.advance(TICK_MS)
                        self._log_of_another(Tick(ANOTHER))
                    self.is_safe = False
                case Outage():
                    self.rig.publisher.fail()
                    for _ in range(step.ticks):
                        self.rig.beat()
                        self._log_of_another(Tick(ANOTHER))
                    self.rig.beat(1_000 // TICK_MS)
                    self.rig.publisher.open()
                    self.is_safe = False
                case Commit():
                    rows = self.rig.commit(step.records)
                    self.removals += sum(row.kind == ChangeKind.BROKER_LIVE and row.gone for row in rows)
                case Do():
                    self._do(step.what)
            await turn()
            self.rig.publisher.ack()
            if self.is_safe:
                assert self.rig.served.live(KEY) is not None
                assert not self.broker.is_closing()

    def _do(self, what: str) -> None:
        if what == "reconnect" or self.broker.is_closing():
            self.broker.close()
            self.broker, self.is_safe = self.rig.connect(), False
        if what == "connect too":
            self.older.append(self.broker)
            self.broker, what = self.rig.connect(), "register"
        elif what == "close the older" and self.older:
            self.older.pop().close()
        if what == "register":
            assert self.rig.ask(self.broker, REGISTRATION).code == ResponseCode.SUCCESS
            self.is_safe, self._silent_ms = True, 0
        elif what == "heartbeat":
            self.rig.ask(self.broker, HEARTBEAT)
            self._silent_ms = 0
        elif what == "ends elsewhere" and (live := self.rig.served.live(KEY)) is not None:
            self._log_of_another(BrokerHeartbeat(ANOTHER, *KEY, Proof.REGISTRATION, live.registration_hash))
            self._log_of_another(BrokerDisconnected(ANOTHER, *KEY, "closed"))

    def _log_of_another(self, event: Event) -> None:
        self.rig.publisher.append(OutRecord(0, None, encode_event(event), at_ms=self.rig.clock.monotonic_ms()))


REGISTER, HEAR, EXPIRE = Do("register"), Do("heartbeat"), Beats(TIMEOUT_MS // TICK_MS + 6)
ELSEWHERE, FREEZE, OUTAGE = Do("ends elsewhere"), Freeze(40), Outage(40)
PAUSES: dict[str, Sequence[Step]] = {
    "silence": (EXPIRE, REGISTER),
    "silence, then a heartbeat": (EXPIRE, HEAR, REGISTER),
    "silence, then two registrations": (EXPIRE, REGISTER, Beats(1), REGISTER),
    "silence, then another connection": (EXPIRE, Do("reconnect"), REGISTER),
    "silence, then a second connection": (EXPIRE, Do("connect too"), Do("close the older")),
    "the server stalled": (ELSEWHERE, FREEZE, REGISTER),
    "the server stalled, and worked for a moment": (ELSEWHERE, FREEZE, HEAR, Beats(6), REGISTER),
    "no Kafka": (ELSEWHERE, OUTAGE, REGISTER),
    "no Kafka, then a moment with it": (ELSEWHERE, OUTAGE, HEAR, Beats(6), REGISTER),
}


@pytest.mark.parametrize("pause", PAUSES)
@pytest.mark.parametrize("before", [1, 2])
async def test_a_late_expiry_does_not_remove_a_broker_that_has_come_back(pause: str, before: int) -> None:
    world = World()
    await world.run([step for _ in range(before) for step in (REGISTER, Beats(1), Commit(99))])
    await world.run(PAUSES[pause])
    await world.run([Commit(1) for _ in world.rig.publisher.log])
    assert world.removals == 1  # the fold has removed it, at an earlier moment


@settings(max_examples=examples(300))
@given(st.lists(STEPS, max_size=30))
def test_whoever_was_answered_success_stays(steps: list[Step]) -> None:
    asyncio.run(World().run(steps))
