"""Liveness, holders and the guard against a naive oracle; and the same rows however often the fold is restarted."""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from namesrv_stream.route.events import GuardReleased
from namesrv_stream.route.fold import FoldOutput, GroupDict, fold
from namesrv_stream.route.fold_state import FoldState, decode_state, encode_state
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.route.table import RouteTable
from tests.support.builders import S1, S2, Log, a_registration
from tests.support.liveness_oracle import Heard, Oracle, Process

SETTINGS = FoldSettings(server_silent_ms=6_000, server_lost_ms=15_000, guard_min_brokers=3)
WORLD = {f"10.0.0.{n}:1": Process("c0" if n < 7 else "c1", (2_500, 4_000)[n % 2]) for n in range(1, 10)}
BROKERS = {
    addr: a_registration(
        addr, broker_name=f"{process.cluster} at {addr}", cluster=process.cluster, timeout_ms=process.timeout_ms
    )
    for addr, process in WORLD.items()
}
SERVERS = {"s1": S1, "s2": S2}

_ADDRS = st.sampled_from(sorted(WORLD))
_MANY = st.lists(_ADDRS, min_size=2, max_size=9, unique=True) | st.just(sorted(WORLD)[:6])
_SERVERS = st.sampled_from(("s1", "s1", "s1", "s2"))
_AFTER_MS = st.sampled_from((0, 0, 1, 499, 500, 1_000, 2_000, 2_001, 60_000, -300))
_CONNECTIONS = st.integers(1, 2)


class GuardMachine(RuleBasedStateMachine):
    """Two servers and nine brokers of two clusters."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log(SETTINGS)
        self.oracle = Oracle(WORLD, SETTINGS)
        self.restarted_state, self.restarted_groups = FoldState(0, 1, settings=SETTINGS), GroupDict()
        self.restarted_output = FoldOutput()

    def note(self, server_id: str, kind: str, addr: str = "", connection: int = 0, cluster: str = "") -> None:
        self.oracle.events.append(Heard(self.log.now_ms, server_id, kind, addr, connection, cluster))

    @rule(addrs=_MANY, server_id=_SERVERS, connection=_CONNECTIONS, after_ms=_AFTER_MS)
    def register(self, addrs: Iterable[str], server_id: str, connection: int, after_ms: int) -> None:
        for addr in addrs:
            self.log.register(BROKERS[addr], SERVERS[server_id], connection, after_ms)
            self.note(server_id, "register", addr, connection)
            after_ms = 0

    @rule(addr=_ADDRS, server_id=_SERVERS, connection=_CONNECTIONS, after_ms=_AFTER_MS)
    def prove(self, addr: str, server_id: str, connection: int, after_ms: int) -> None:
        self.log.heard(BROKERS[addr], SERVERS[server_id], connection, after_ms)
        self.note(server_id, "proof", addr, connection)

    @rule(addrs=_MANY, server_id=_SERVERS, after_ms=_AFTER_MS)
    def beat(self, addrs: Iterable[str], server_id: str, after_ms: int) -> None:
        for addr in addrs:
            self.log.beat(BROKERS[addr], SERVERS[server_id], after_ms)
            self.note(server_id, "beat", addr)
            after_ms = 0

    @rule(addrs=_MANY, server_id=_SERVERS, connection=_CONNECTIONS, after_ms=st.sampled_from((0, 1, 400, 1_000)))
    def close(self, addrs: Iterable[str], server_id: str, connection: int, after_ms: int) -> None:
        for addr in addrs:
            self.tick(server_id, after_ms)
            self.log.disconnect(BROKERS[addr], SERVERS[server_id], connection)
            self.note(server_id, "close", addr, connection)

    @rule(addr=_ADDRS, server_id=_SERVERS, connection=_CONNECTIONS)
    def say_goodbye(self, addr: str, server_id: str, connection: int) -> None:
        self.log.unregister(BROKERS[addr], SERVERS[server_id], connection)
        self.note(server_id, "goodbye", addr, connection)

    @rule(server_id=_SERVERS, after_ms=_AFTER_MS)
    def resume(self, server_id: str, after_ms: int) -> None:
        self.log.resumed(SERVERS[server_id], after_ms)
        self.note(server_id, "resumed")

    @rule(server_id=_SERVERS, cluster=st.sampled_from(("c0", "c1")))
    def release(self, server_id: str, cluster: str) -> None:
        self.log.say(GuardReleased(SERVERS[server_id], cluster, "ada"))
        self.note(server_id, "release", cluster=cluster)

    @rule(server_id=_SERVERS, after_ms=_AFTER_MS)
    def tick(self, server_id: str, after_ms: int) -> None:
        self.log.tick(after_ms, SERVERS[server_id])
        self.note(server_id, "tick")

    @rule(ms=st.sampled_from((1_300, 2_500, 4_000, 7_600)), server_id=_SERVERS)
    def wait(self, ms: int, server_id: str) -> None:
        for left in range(ms, 0, -SETTINGS.max_gap_ms):
            self.tick(server_id, min(left, SETTINGS.max_gap_ms))

    @rule()
    def deliver_again(self) -> None:
        for record in self.log.records[-3:]:
            self.log.redeliver(record)

    @rule()
    def restart(self) -> None:
        """A job without its checkpoint goes on with the stored state and the rows alone."""
        table = RouteTable()
        apply(table, self.restarted_output.changes)
        self.restarted_state = decode_state(encode_state(self.restarted_state))
        self.restarted_groups = GroupDict(table.groups)
        assert table.held == {key: lease.hold for key, lease in self.restarted_state.leases.items() if lease.hold}

    @invariant()
    def the_fold_says_what_the_oracle_says(self) -> None:
        expected = {
            addr: ({s: c for s, (_, c) in broker.holds.items()}, broker.kept, broker.released)
            for addr, broker in self.oracle.replay().items()
        }
        found = {
            key.live_key.broker_addr: (
                {s: h.holder.connection_id for s, h in lease.holders.items()},
                (lease.hold.goes_with, lease.hold.server_id) if lease.hold else None,
                lease.released,
            )
            for key, lease in self.log.state.leases.items()
        }
        assert found == expected
        assert self.log.alive() == expected.keys()

    @invariant()
    def a_restart_changes_no_row(self) -> None:
        for record in self.log.records[self.restarted_state.next_offset :]:
            fold(self.restarted_state, self.restarted_groups, record, self.restarted_output)
        assert self.restarted_output == self.log.output
        assert encode_state(self.restarted_state) == encode_state(self.log.state)


TestGuard = GuardMachine.TestCase
TestGuard.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
