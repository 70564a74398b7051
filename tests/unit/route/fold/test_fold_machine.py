"""Liveness against a naive oracle that scans all events on each call."""

from itertools import pairwise
from typing import ClassVar, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from namesrv_stream.route.liveness_settings import FoldSettings
from tests.support.builders import S1, S2, Log, a_registration
from tests.support.examples import examples

MAX_GAP_MS = 2_000
#: Address to timeout, ms; two processes of one broker name and their own timeouts.
TIMEOUTS = {"10.0.0.1:1": 2_500, "10.0.0.2:1": 4_000, "10.0.0.3:1": 7_000}
BROKERS = {addr: a_registration(addr, i, timeout_ms=ms) for i, (addr, ms) in enumerate(TIMEOUTS.items())}
SERVERS = {"s1": S1, "s2": S2}

_ADDRS = st.sampled_from(sorted(BROKERS))
_SERVERS = st.sampled_from(sorted(SERVERS))
_AFTER_MS = st.sampled_from((0, 1, 499, 500, 1_000, 2_000, 2_001, 60_000, -300))


class LogEvent(NamedTuple):
    """One record, as the oracle stores it."""

    at_ms: int
    server_id: str
    kind: str  # register, proof, beat, leave, tick
    addr: str = ""
    connection: int = 0


class Oracle:
    """Computes liveness by its definition; it stores only the events."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []

    def observed_ms(self, server_id: str, since: int, until: int) -> int:
        """Observed time at a server between two of the log's events."""
        mine = [i for i, e in enumerate(self.events) if e.server_id == server_id and i <= until]
        steps = [(i, self.events[i].at_ms - self.events[j].at_ms) for j, i in pairwise(mine)]
        return sum(max(0, min(step, MAX_GAP_MS)) for i, step in steps if i > since)

    def has_lease(self, addr: str, server_id: str) -> bool:
        """Whether the server is a holder of the broker after all events."""
        heard, connection = -1, 0
        for i, event in enumerate(self.events):
            if event.server_id != server_id:
                continue
            if event.kind == "tick" and heard >= 0 and self.observed_ms(server_id, heard, i) > TIMEOUTS[addr]:
                heard = -1
            if event.addr != addr:
                continue
            registered = any(e.kind == "register" and e.addr == addr for e in self.events[:i])
            if event.kind == "register" or (event.kind == "proof" and registered):
                heard, connection = i, event.connection
            elif event.kind == "beat" and heard >= 0:
                heard = i
            elif event.kind == "leave" and event.connection == connection:
                heard = -1
        return heard >= 0

    def alive(self) -> set[str]:
        return {addr for addr in BROKERS for server_id in SERVERS if self.has_lease(addr, server_id)}


class LivenessMachine(RuleBasedStateMachine):
    """Two servers that never fall silent, and three brokers."""

    never: ClassVar[int] = 10**12

    def __init__(self) -> None:
        super().__init__()
        self.log = Log(FoldSettings(max_gap_ms=MAX_GAP_MS, server_silent_ms=self.never, server_lost_ms=self.never))
        self.oracle = Oracle()

    def record_event(self, server_id: str, kind: str, addr: str = "", connection: int = 0) -> None:
        self.oracle.events.append(LogEvent(self.log.now_ms, server_id, kind, addr, connection))

    @rule(addr=_ADDRS, server_id=_SERVERS, connection=st.integers(1, 2), after_ms=_AFTER_MS)
    def register(self, addr: str, server_id: str, connection: int, after_ms: int) -> None:
        self.log.register(BROKERS[addr], SERVERS[server_id], connection, after_ms)
        self.record_event(server_id, "register", addr, connection)

    @rule(addr=_ADDRS, server_id=_SERVERS, connection=st.integers(1, 2), after_ms=_AFTER_MS)
    def register_unchanged(self, addr: str, server_id: str, connection: int, after_ms: int) -> None:
        self.log.heard(BROKERS[addr], SERVERS[server_id], connection, after_ms)
        self.record_event(server_id, "proof", addr, connection)

    @rule(addr=_ADDRS, server_id=_SERVERS, after_ms=_AFTER_MS)
    def beat(self, addr: str, server_id: str, after_ms: int) -> None:
        self.log.beat(BROKERS[addr], SERVERS[server_id], after_ms)
        self.record_event(server_id, "beat", addr)

    @rule(addr=_ADDRS, server_id=_SERVERS, connection=st.integers(1, 2))
    def disconnect(self, addr: str, server_id: str, connection: int) -> None:
        self.log.disconnect(BROKERS[addr], SERVERS[server_id], connection)
        self.record_event(server_id, "leave", addr, connection)

    @rule(server_id=_SERVERS, after_ms=_AFTER_MS)
    def tick(self, server_id: str, after_ms: int) -> None:
        self.log.tick(after_ms, SERVERS[server_id])
        self.record_event(server_id, "tick")

    @rule(ms=st.sampled_from((2_500, 4_000, 7_000)), server_id=_SERVERS)
    def wait(self, ms: int, server_id: str) -> None:
        for left in range(ms, 0, -MAX_GAP_MS):
            self.tick(server_id, min(left, MAX_GAP_MS))

    @rule()
    def deliver_again(self) -> None:
        for record in self.log.records[-3:]:
            self.log.redeliver(record)

    @invariant()
    def fold_equals_oracle(self) -> None:
        assert self.log.alive() == self.oracle.alive()


TestLiveness = LivenessMachine.TestCase
TestLiveness.settings = settings(max_examples=examples(40), stateful_step_count=40)
