"""Whatever closes, comes back and is committed in whatever order: the view never hides whom the fold holds."""

from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from namesrv_stream.route.changes import Cause
from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerDisconnected,
    BrokerRegistered,
    BrokerUnregistered,
    SettingsChanged,
)
from namesrv_stream.route.fold_state import FoldState
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view import Pending, RouteView
from tests.support.builders import S1, S2, Log, a_proof, a_registration, over
from tests.support.examples import examples

#: Four masters, of which two have slaves.
FLEET = [a_registration(f"10.0.0.{n}:1", n // 4, broker_name=f"b{n % 4}") for n in range(6)]
#: No more time passes than this, so that nobody is silent and all that the fold holds, it holds by closes.
LONGEST_MS = 50_000


class Close(NamedTuple):
    broker: int


class Register(NamedTuple):
    """The broker comes over a new connection, with its registration or the word that it is as before."""

    broker: int
    is_in_full: bool


class Goodbye(NamedTuple):
    broker: int


class Pass(NamedTuple):
    """Time passes at the server."""

    ms: int


class Commit(NamedTuple):
    """The job commits up to ``records`` more records."""

    records: int


class Reload(NamedTuple):
    """The tables are opened anew."""


class Elsewhere(NamedTuple):
    """Another server hears a broker (True), or its connection there is closed."""

    broker: int
    is_open: bool


Step = Close | Register | Goodbye | Pass | Commit | Reload | Elsewhere

BROKERS = st.integers(0, len(FLEET) - 1)
CLOSES = st.builds(Close, BROKERS)
REGISTRATIONS = st.builds(Register, BROKERS, st.booleans())
GOODBYES = st.builds(Goodbye, BROKERS)
COMMITS = st.builds(Commit, st.integers(0, 12)) | st.builds(Reload)
TIME = st.builds(Pass, st.sampled_from((100, 1_000, 1_900, 2_100, 5_000)))
MOST = st.integers(2, 5)


class World:
    """One server that is asked by this, its log, the fold and the job's commits."""

    def __init__(self, guard_min_brokers: int) -> None:
        self.log = Log()
        self.view = RouteView()
        self._observed_ms = 0
        self._connections = [1] * len(FLEET)
        self._newest = 1
        self._tickets: dict[int, Pending] = {}
        self._committed = 0
        self._do(SettingsChanged(S1, "ada", (("guard_min_brokers", guard_min_brokers),)))
        for number, registration in enumerate(FLEET):
            self._do(BrokerRegistered(over(S1, 1 + number), registration))
            self._connections[number] = self._newest = 1 + number
        self.run(Commit(len(self.log.records)))

    @property
    def state(self) -> FoldState:
        return self.log.state

    def run(self, step: Step) -> None:
        match step:
            case Close(broker):
                r = FLEET[broker]
                self._do(BrokerDisconnected(over(S1, self._connections[broker]), r.broker_name, r.live_key, "closed"))
            case Register(broker, is_in_full):
                self._newest += 1
                self._connections[broker] = self._newest
                origin = over(S1, self._newest)
                r = FLEET[broker]
                self._do(BrokerRegistered(origin, r) if is_in_full else a_proof(r, S1, self._newest))
            case Goodbye(broker):
                r = FLEET[broker]
                self._do(BrokerUnregistered(over(S1, self._connections[broker]), r.broker_name, r.live_key, 0))
            case Pass(ms):
                if self._observed_ms + ms <= LONGEST_MS:
                    self._observed_ms += ms
                    self.log.pass_time(ms, S1, S2)
            case Commit(records):
                begin = self._committed
                end = self._committed = min(begin + records, len(self.log.records))
                self.view.commit([row for row in self.log.output.changes if begin <= row.offset < end], {0: end})
            case Reload():
                self.view.reload(self.table(self._committed), {0: self._committed})
            case Elsewhere(broker, is_open):
                if is_open:
                    self.log.register(FLEET[broker], S2)
                else:
                    self.log.disconnect(FLEET[broker], S2)

    def table(self, end: int) -> RouteTable:
        """The table of the rows before an offset, without any view."""
        table = RouteTable()
        apply(table, [row for row in self.log.output.changes if row.offset < end])
        return table

    def hidden(self) -> set[LeaseKey]:
        """Brokers that the fold holds and the view does not show."""
        held = {key for key, lease in self.state.leases.items() if lease.hold is not None}
        return {key for key in held if key.live_key not in self.view.table.group(key.broker_name).lives}

    def assert_converges(self) -> None:
        self.run(Commit(len(self.log.records)))
        told = self.table(len(self.log.records))
        assert self.view.table.groups == told.groups
        assert self.view.table.held == told.held
        assert self.view.table.clusters() == told.clusters()
        assert set(self.view.table.topics()) == set(told.topics())
        assert self.view.pending_count == 0
        assert self.log.dead_letters == []

    def _do(self, event: AcceptedEvent) -> None:
        ticket = self.view.accept(event, self._observed_ms)[0]
        ticket.position = (0, len(self.log.records))
        self.log.say(event)


@settings(max_examples=examples(100))
@given(MOST, st.lists(CLOSES | CLOSES | REGISTRATIONS | GOODBYES | COMMITS | TIME, max_size=30))
def test_whom_the_fold_holds_for_a_mass_of_closes_is_never_missing(guard_min_brokers: int, steps: list[Step]) -> None:
    world = World(guard_min_brokers)
    for step in steps:
        world.run(step)
        assert {lease.hold.goes_with for lease in world.state.leases.values() if lease.hold} <= {Cause.DISCONNECTED}
        assert world.hidden() == set(), step
    world.assert_converges()


# A goodbye to a broker that was kept: the next mass must not bring it back.
@example(2, [*map(Close, range(4)), Register(0, False), Goodbye(1), Commit(6), Close(0)])
# One held that was heard since, before its next close: it was not counted as held.
@example(2, [*map(Close, range(4)), Register(0, False), Commit(4), Register(1, False), Close(0), Close(1)])
@settings(max_examples=examples(100))
@given(MOST, st.lists(CLOSES | CLOSES | REGISTRATIONS | GOODBYES | COMMITS, max_size=30))
def test_while_no_time_passes_the_view_is_what_the_fold_will_say(guard_min_brokers: int, steps: list[Step]) -> None:
    # So nobody is shown too long either: a lone close hides its broker at once, a mass hides none.
    world = World(guard_min_brokers)
    for step in steps:
        world.run(step)
        assert world.view.table.groups == world.log.groups.groups, step
    world.assert_converges()


@settings(max_examples=examples(100))
@given(
    MOST,
    st.lists(
        CLOSES | REGISTRATIONS | GOODBYES | COMMITS | TIME | st.builds(Elsewhere, BROKERS, st.booleans()), max_size=30
    ),
)
def test_with_another_server_too_the_view_is_in_the_end_what_the_fold_says(
    guard_min_brokers: int, steps: list[Step]
) -> None:
    world = World(guard_min_brokers)
    for step in steps:
        world.run(step)
    world.assert_converges()
