"""Liveness, holders and the guard against a naive oracle; restarts of the fold change no row."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from namesrv_stream.route.events import DIRECT, JOB, GuardReleased, Origin, SettingsChanged
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.state import FoldState, decode_state, encode_state
from namesrv_stream.route.fold.step import FoldOutput, GroupDict
from namesrv_stream.route.liveness_settings import FoldSettings, SettingValue
from namesrv_stream.route.model import Registration
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from tests.support.builders import DIRECT_ORIGIN, Log, a_registration, over
from tests.support.examples import examples
from tests.support.liveness_oracle import Oracle
from tests.support.simulated_liveness import BrokerProcess, LogEvent

SETTINGS = FoldSettings(
    guard_known_ms=0,
    default_timeout_ms=3_000,
    max_timeout_ms=5_000,
    server_silent_ms=6_000,
    server_lost_ms=15_000,
    guard_min_brokers=3,
)
#: Settings that operators change, and their new values.
CHANGES: dict[str, tuple[SettingValue, ...]] = {
    "default_timeout_ms": (2_000, 3_000, 9_000),
    "min_timeout_ms": (1_000, 3_500),
    "max_timeout_ms": (2_600, 5_000),
    "max_gap_ms": (1_000, 2_000),
    "server_silent_ms": (4_000, 6_000),
    "server_lost_ms": (9_000, 15_000),
    "guard_share_percent": (20, 50, 100),
    "guard_min_brokers": (2, 3),
    "guard_hold_timeouts": (1, 2),
    "guard_known_ms": (0, 1_000, 5_000),
    "guard_off_clusters": ((), ("c0",)),
}
#: Two addresses each claim brokerId 0 of b5 and of b8.
NAMES = ("b1", "b2", "b3", "b4", "b5", "b5", "b7", "b8", "b8")
PROCESSES = {f"10.0.0.{n}:1": BrokerProcess("c0" if n < 7 else "c1", name) for n, name in enumerate(NAMES, 1)}

_ADDRS = st.sampled_from(sorted(PROCESSES))
_MANY = st.lists(_ADDRS, min_size=2, max_size=9, unique=True) | st.just(sorted(PROCESSES)[:6])
_SERVERS = st.sampled_from(("s1", "s1", "s1", "s1", "s2", "s2", "s3", DIRECT))
_TALKING = st.sampled_from(("s1", "s1", "s1", "s2", "s2", "s3", JOB))
_AFTER_MS = st.sampled_from((0, 0, 1, 499, 500, 1_000, 2_000, 2_001, 60_000, -300))
_CONNECTIONS = st.integers(1, 2)
_TIMEOUTS_MS = st.sampled_from((2_500, 4_000, 4_000, None, 1, 10**9))
#: How many epochs ago the server wrote a record: records of an earlier epoch may arrive late.
_STARTS_AGO = st.sampled_from((0, 0, 0, 0, 1))


def registration_of(addr: str, timeout_ms: int | None) -> Registration:
    cluster, name = PROCESSES[addr]
    text = f"{addr} {timeout_ms}"
    return a_registration(addr, broker_name=name, cluster=cluster, timeout_ms=timeout_ms, registration_hash=text)


class GuardMachine(RuleBasedStateMachine):
    """Three servers, a direct publisher, and nine brokers of two clusters."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log(SETTINGS)
        self.oracle = Oracle(PROCESSES, SETTINGS)
        self.epochs = {"s1": 2, "s2": 2, "s3": 2, JOB: 1}
        self.restarted_state, self.restarted_groups = FoldState(0, 1, settings=SETTINGS), GroupDict()
        self.restarted_output = FoldOutput()

    def origin(self, server_id: str, starts_ago: int = 0) -> Origin:
        return DIRECT_ORIGIN if server_id == DIRECT else Origin(server_id, self.epochs[server_id] - starts_ago)

    def record_event(
        self,
        kind: str,
        origin: Origin,
        addr: str = "",
        timeout_ms: int | None = None,
        cluster: str = "",
        values: Mapping[str, SettingValue] = MappingProxyType({}),
    ) -> None:
        server_id, epoch, connection = origin
        event = LogEvent(self.log.now_ms, server_id, kind, epoch, addr, connection, timeout_ms, cluster, values)
        self.oracle.events.append(event)

    @rule(
        addrs=_MANY,
        server_id=_SERVERS,
        connection=_CONNECTIONS,
        timeout_ms=_TIMEOUTS_MS,
        starts_ago=_STARTS_AGO,
        after_ms=_AFTER_MS,
    )
    def register(
        self,
        addrs: Iterable[str],
        server_id: str,
        connection: int,
        timeout_ms: int | None,
        starts_ago: int,
        after_ms: int,
    ) -> None:
        server = self.origin(server_id, starts_ago)
        for addr in addrs:
            self.log.register(registration_of(addr, timeout_ms), server, connection, after_ms)
            self.record_event("register", over(server, connection), addr, timeout_ms)
            after_ms = 0

    @rule(
        addr=_ADDRS,
        server_id=_SERVERS,
        connection=_CONNECTIONS,
        timeout_ms=_TIMEOUTS_MS,
        starts_ago=_STARTS_AGO,
        after_ms=_AFTER_MS,
    )
    def register_unchanged(
        self, addr: str, server_id: str, connection: int, timeout_ms: int | None, starts_ago: int, after_ms: int
    ) -> None:
        server = self.origin(server_id, starts_ago)
        self.log.heard(registration_of(addr, timeout_ms), server, connection, after_ms)
        self.record_event("proof", over(server, connection), addr, timeout_ms)

    @rule(addrs=_MANY, server_id=_SERVERS, after_ms=_AFTER_MS)
    def heartbeat(self, addrs: Iterable[str], server_id: str, after_ms: int) -> None:
        for addr in addrs:
            self.log.beat(registration_of(addr, None), self.origin(server_id), after_ms)
            self.record_event("beat", self.origin(server_id), addr)
            after_ms = 0

    @rule(
        addrs=_MANY,
        server_id=_SERVERS,
        connection=_CONNECTIONS,
        starts_ago=_STARTS_AGO,
        after_ms=st.sampled_from((0, 1, 400, 1_000)),
    )
    def close(self, addrs: Iterable[str], server_id: str, connection: int, starts_ago: int, after_ms: int) -> None:
        server = self.origin(server_id, starts_ago)
        for addr in addrs:
            self.tick(JOB if server_id == DIRECT else server_id, after_ms)
            rows = self.log.disconnect(registration_of(addr, None), server, connection)
            self.record_event("close", over(server, connection), addr)
            assert rows, "every closed connection writes a row"

    @rule(addr=_ADDRS, server_id=_SERVERS, connection=_CONNECTIONS, starts_ago=_STARTS_AGO)
    def unregister(self, addr: str, server_id: str, connection: int, starts_ago: int) -> None:
        server = self.origin(server_id, starts_ago)
        rows = self.log.unregister(registration_of(addr, None), server, connection)
        self.record_event("unregister", over(server, connection), addr)
        assert rows, "every unregistration writes a row"

    @rule(server_id=st.sampled_from(("s1", "s2", "s3")), after_ms=_AFTER_MS)
    def start(self, server_id: str, after_ms: int) -> None:
        self.epochs[server_id] += 1
        self.log.started(self.origin(server_id), after_ms)
        self.record_event("started", self.origin(server_id))

    @rule(server_id=st.sampled_from(("s1", "s2", "s3")), after_ms=_AFTER_MS)
    def resume(self, server_id: str, after_ms: int) -> None:
        self.log.resumed(self.origin(server_id), after_ms)
        self.record_event("resumed", self.origin(server_id))

    @rule(server_id=st.sampled_from(("s1", "s2")), cluster=st.sampled_from(("c0", "c1")))
    def release(self, server_id: str, cluster: str) -> None:
        self.log.say(GuardReleased(self.origin(server_id), cluster, "ada"))
        self.record_event("release", self.origin(server_id), cluster=cluster)

    @rule(data=st.data(), name=st.sampled_from(sorted(CHANGES)))
    def change_a_setting(self, data: st.DataObject, name: str) -> None:
        value = data.draw(st.sampled_from(CHANGES[name]))
        self.log.say(SettingsChanged(self.origin("s1"), "ada", ((name, value),)))
        self.record_event("settings", self.origin("s1"), values={name: value})

    @rule(server_id=_TALKING, after_ms=_AFTER_MS)
    def tick(self, server_id: str, after_ms: int) -> None:
        self.log.tick(after_ms, self.origin(server_id))
        self.record_event("tick", self.origin(server_id))

    @rule(
        ms=st.sampled_from((1_300, 2_500, 4_000, 7_600)),
        server_ids=st.lists(_TALKING, min_size=1, max_size=2, unique=True),
    )
    def wait(self, ms: int, server_ids: Iterable[str]) -> None:
        for left in range(ms, 0, -SETTINGS.max_gap_ms):
            after_ms = min(left, SETTINGS.max_gap_ms)
            for server_id in server_ids:
                self.tick(server_id, after_ms)
                after_ms = 0

    @rule()
    def deliver_again(self) -> None:
        for record in self.log.records[-3:]:
            self.log.redeliver(record)

    @rule()
    def restart(self) -> None:
        """A job without its checkpoint continues with only the stored state and the rows."""
        table = RouteTable()
        apply(table, self.restarted_output.changes)
        self.restarted_state = decode_state(encode_state(self.restarted_state))
        self.restarted_groups = GroupDict(table.groups)
        assert table.held == {key: lease.hold for key, lease in self.restarted_state.leases.items() if lease.hold}

    @invariant()
    def fold_equals_oracle(self) -> None:
        expected = {
            addr: ({s: c for s, (_, c) in broker.leases.items()}, broker.kept, broker.released)
            for addr, broker in self.oracle.replay().items()
        }
        found = {
            key.live_key.broker_addr: (
                {s: tuple(h.holder) for s, h in lease.holders.items()},
                (lease.hold.goes_with, lease.hold.server_id) if lease.hold else None,
                lease.released,
            )
            for key, lease in self.log.state.leases.items()
        }
        assert found == expected
        assert self.log.alive() == expected.keys()
        routes = {n: dict(g.broker_addrs) for n, g in self.log.groups.groups.items() if g.broker_addrs}
        assert routes == {name: {0: addr} for name, addr in self.oracle.masters.items()}
        assert not self.log.dead_letters

    @invariant()
    def restart_changes_no_row(self) -> None:
        for record in self.log.records[self.restarted_state.next_offset :]:
            fold(self.restarted_state, self.restarted_groups, record, self.restarted_output)
        assert self.restarted_output == self.log.output
        assert encode_state(self.restarted_state) == encode_state(self.log.state)


TestGuard = GuardMachine.TestCase
TestGuard.settings = settings(max_examples=examples(20), stateful_step_count=30, deadline=None)
