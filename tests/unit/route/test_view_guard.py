"""What a server shows of brokers that close at once: nothing hides a mass, neither before the commit nor after it."""

from collections.abc import Iterable, Mapping

import pytest

from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerDisconnected,
    BrokerRegistered,
    BrokerUnregistered,
    GuardReleased,
    SettingsChanged,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.hold import decode_hold
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import Registration
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.settings import FoldSettings, SettingValue
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view import Pending, RouteView
from tests.support.builders import BASE, CLUSTER, NAME, RW, S1, S2, Log, a_proof, a_registration, over

FLEET = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}") for n in range(8)]
NAMES = [registration.broker_name for registration in FLEET]
Settings = Mapping[str, SettingValue]
NO_SETTINGS: Settings = {}
KEYS = [LeaseKey(registration.broker_name, registration.live_key) for registration in FLEET]


def a_close(registration: Registration, connection: int = 1) -> BrokerDisconnected:
    return BrokerDisconnected(over(S1, connection), registration.broker_name, registration.live_key, "closed")


def a_goodbye(registration: Registration, connection: int = 1) -> BrokerUnregistered:
    return BrokerUnregistered(over(S1, connection), registration.broker_name, registration.live_key, 0)


class Server:
    """A view, the log that it writes, and the job's commits.

    Attributes:
        observed_ms: For how long the server could listen.
    """

    def __init__(self, settings: Settings = NO_SETTINGS, fleet: Iterable[Registration] = FLEET) -> None:
        self.log = Log()
        self.view = RouteView()
        self.observed_ms = 0
        self._committed = 0
        self.log.say(SettingsChanged(S1, "ada", tuple(settings.items())))
        for registration in fleet:
            self.log.register(registration)
        self.commit()

    def accept(self, *events: AcceptedEvent) -> list[Pending]:
        """Take events in, and log nothing of them."""
        return [self.view.accept(event, self.observed_ms)[0] for event in events]

    def say(self, *tickets: Pending, events: Iterable[AcceptedEvent]) -> None:
        for ticket, event in zip(tickets, events, strict=True):
            ticket.position = (0, len(self.log.records))
            self.log.say(event)

    def do(self, *events: AcceptedEvent) -> None:
        """Take events in, which reach the log at once."""
        self.say(*self.accept(*events), events=events)

    def close(self, *numbers: int, connection: int = 1) -> None:
        self.do(*(a_close(FLEET[n], connection) for n in numbers))

    def register(self, number: int, connection: int) -> None:
        self.do(BrokerRegistered(over(S1, connection), FLEET[number]))

    def pass_time(self, ms: int) -> None:
        self.observed_ms += ms
        self.log.pass_time(ms)

    def commit(self) -> None:
        rows = [row for row in self.log.output.changes if row.offset >= self._committed]
        self._committed = len(self.log.records)
        self.view.commit(rows, {0: self._committed})

    @property
    def missing(self) -> str:
        """The numbers of the fleet's brokers that are not shown."""
        shown = {group.broker_name for group in self.view.table.registered_groups()}
        return "".join(name[1:] for name in NAMES if name not in shown)

    def commit_as_told(self) -> str:
        """Commit; the brokers that are missing then, by the log and in the view alike."""
        self.commit()
        table = RouteTable()
        apply(table, self.log.output.changes)
        assert self.view.table.groups == table.groups
        assert self.view.table.held == table.held
        assert self.view.pending_count == 0
        return self.missing


def test_a_lone_close_shows_at_once() -> None:
    server = Server()
    server.close(3)
    assert server.missing == "3"
    assert server.commit_as_told() == "3"


def test_closes_show_until_they_are_a_mass_and_then_none_of_them() -> None:
    server = Server()
    missing = []
    for number in range(8):
        server.close(number)
        missing.append(server.missing)

    assert missing == ["0", "01", "012", "0123", "", "", "", ""]
    assert server.view.table.held == {}
    assert server.commit_as_told() == ""
    assert server.view.table.held.keys() == set(KEYS)


def test_the_topics_of_brokers_that_are_brought_back_are_told_to_have_changed() -> None:
    server = Server()
    server.close(0, 1, 2, 3)
    server.view.accept(a_close(FLEET[4]))


@pytest.mark.parametrize("committed", range(1, 9))
def test_a_mass_stays_shown_wherever_a_commit_cuts_it(committed: int) -> None:
    server = Server()
    events = [a_close(registration) for registration in FLEET]
    tickets = server.accept(*events)
    server.say(*tickets[:committed], events=events[:committed])
    server.commit()
    assert server.missing == ""

    server.say(*tickets[committed:], events=events[committed:])
    assert server.commit_as_told() == ""


@pytest.mark.parametrize("committed", range(1, 9))
def test_a_mass_stays_shown_where_closes_are_committed_before_the_next_one_comes(committed: int) -> None:
    server = Server()
    server.close(*range(committed))
    server.commit()
    server.close(*range(committed, 8))
    assert server.missing == ""
    assert server.commit_as_told() == ""


def test_a_commit_that_comes_before_its_tickets_have_offsets_changes_nothing_of_a_mass() -> None:
    server = Server()
    events = [a_close(registration) for registration in FLEET]
    tickets = server.accept(*events)
    for event in events:
        server.log.say(event)
    server.commit()
    assert server.missing == ""

    for offset, ticket in enumerate(tickets, len(server.log.records) - len(tickets)):
        ticket.position = (0, offset)
    assert server.commit_as_told() == ""


def test_a_mass_is_shown_after_a_reload_too() -> None:
    server = Server()
    server.close(*range(6))
    table = RouteTable()
    apply(table, [row for row in server.log.output.changes if row.offset < len(server.log.records) - 3])

    server.view.reload(table, {0: len(server.log.records) - 3})

    assert server.missing == ""
    assert server.commit_as_told() == ""


@pytest.mark.parametrize(
    ("settings", "closes", "missing"),
    [
        pytest.param({"guard_min_brokers": 5}, 4, "0123", id="too few"),
        pytest.param({"guard_min_brokers": 5}, 5, "", id="just enough"),
        pytest.param({"guard_min_brokers": 2}, 4, "0123", id="half of them"),
        pytest.param({"guard_min_brokers": 2}, 5, "", id="more than half"),
        pytest.param({"guard_min_brokers": 2, "guard_share_percent": 25}, 3, "", id="another share"),
        pytest.param({"guard_share_percent": 100}, 8, "01234567", id="the guard is off"),
        pytest.param({"guard_off_clusters": (CLUSTER,)}, 8, "01234567", id="off for the cluster"),
        pytest.param({"guard_off_clusters": ("other",)}, 8, "", id="off for another cluster"),
    ],
)
def test_what_is_a_mass_is_said_by_the_settings(settings: Settings, closes: int, missing: str) -> None:
    server = Server(settings)
    server.close(*range(closes))
    assert server.missing == missing
    assert server.commit_as_told() == missing


@pytest.mark.parametrize(
    ("apart_ms", "missing"),
    [(0, ""), (2_000, ""), (4_000, ""), (4_001, "01234567")],
)
def test_closes_count_together_within_the_window_and_as_long_as_one_may_take_into_the_log(
    apart_ms: int, missing: str
) -> None:
    server = Server()
    server.accept(*(a_close(registration) for registration in FLEET[:4]))
    server.observed_ms += apart_ms
    server.accept(*(a_close(registration) for registration in FLEET[4:]))
    assert server.missing == missing


def test_deaths_one_after_another_while_the_job_is_down_are_no_mass() -> None:
    server = Server()
    for number in range(7):
        server.close(number)
        server.pass_time(4_500)
    assert server.missing == "0123456"
    assert server.commit_as_told() == "0123456"


def test_who_follows_a_mass_is_kept_however_late_and_however_long_the_job_is_down() -> None:
    server = Server()
    server.close(*range(5))
    server.pass_time(8_000)
    server.close(5, 6)
    assert server.missing == ""
    assert server.commit_as_told() == ""


def test_who_follows_a_mass_that_is_committed_is_kept_too() -> None:
    server = Server()
    server.close(*range(5))
    server.commit()
    server.pass_time(8_000)
    server.close(5)
    assert server.missing == ""
    assert server.commit_as_told() == ""


def test_a_goodbye_is_never_guarded_and_ends_one_that_is_kept() -> None:
    server = Server()
    server.close(*range(6))
    server.do(a_goodbye(FLEET[2]), a_goodbye(FLEET[7]))
    assert server.missing == "27"
    assert server.commit_as_told() == "27"


def test_goodbyes_and_closes_of_those_that_said_it_are_not_counted() -> None:
    server = Server()
    server.close(0)
    server.do(a_goodbye(FLEET[0], connection=2))
    server.close(1, 2, 3, 4)
    assert server.missing == "01234"
    assert server.commit_as_told() == "01234"


def test_who_registers_again_before_the_mass_counts_no_more() -> None:
    server = Server()
    server.close(0, 1)
    server.register(0, 2)
    server.close(2, 3, 4)
    assert server.missing == "1234"
    server.close(5)
    assert server.missing == ""
    assert server.commit_as_told() == ""
    assert server.view.table.held.keys() == {KEYS[n] for n in (1, 2, 3, 4, 5)}


def test_who_registers_again_is_a_lone_broker_again_while_the_others_stay_kept() -> None:
    server = Server()
    server.close(*range(5))
    for number in range(5):
        server.register(number, 2)
    server.close(3, connection=2)
    assert server.missing == "3"
    assert server.commit_as_told() == "3"
    assert server.view.table.held == {}


def test_who_is_held_by_the_rows_and_has_registered_since_counts_no_more() -> None:
    server = Server()
    server.close(*range(5))
    server.commit()
    for number in range(5):
        server.register(number, 2)
    server.close(7)
    assert server.missing == "7"
    assert server.commit_as_told() == "7"


def test_an_unchanged_registration_over_a_new_connection_ends_the_hold() -> None:
    server = Server()
    server.close(*range(8))
    server.do(*(a_proof(registration, S1, 2) for registration in FLEET))
    assert server.missing == ""
    assert server.commit_as_told() == ""
    assert server.view.table.held == {}


def test_the_close_of_a_superseded_connection_is_not_counted() -> None:
    server = Server()
    for number in (0, 1):
        server.register(number, 2)
    server.close(*range(5))
    assert server.missing == "234"
    assert server.commit_as_told() == "234"


def test_one_close_told_twice_is_one() -> None:
    server = Server()
    server.close(0, 1, 2, 3, 3, 3)
    assert server.missing == "0123"
    server.close(4, 4)
    assert server.missing == ""
    assert server.commit_as_told() == ""


def test_an_operators_release_is_shown_with_its_commit() -> None:
    server = Server()
    server.close(*range(6))
    server.do(GuardReleased(S1, CLUSTER, "ada"))
    assert server.missing == ""
    assert server.commit_as_told() == "012345"
    server.pass_time(5_000)
    server.close(6)
    assert server.missing == "0123456"


def test_a_guard_that_is_switched_off_lets_go_with_its_commit() -> None:
    server = Server()
    server.close(*range(6))
    server.log.change_settings(guard_share_percent=100)
    assert server.commit_as_told() == "012345"


def test_another_cluster_is_another_count() -> None:
    other = [a_registration(f"10.0.1.{n}:1", broker_name=f"b{n + 4}", cluster="other") for n in range(4)]
    server = Server(fleet=[*FLEET[:4], *other])
    server.close(0, 1, 2, 3)
    server.do(*(a_close(registration) for registration in other))
    assert server.missing == "01234567"


def test_a_close_at_one_server_hides_nobody_whom_another_hears() -> None:
    server = Server()
    for registration in FLEET:
        server.log.register(registration, S2)
    server.commit()
    server.close(*range(8))
    assert server.missing == ""

    # All others of them were closed, too, and the job got half-way through.
    for registration in FLEET:
        server.log.disconnect(registration, S2)
    server.commit()
    assert server.missing == ""


def test_what_was_accepted_by_a_server_before_its_restart_is_counted_from_the_log() -> None:
    server = Server()
    for registration in FLEET[:6]:
        server.view.accept_at(a_close(registration), 0, len(server.log.records))
        server.log.say(a_close(registration))
    assert server.missing == ""
    assert server.commit_as_told() == ""


def test_masters_and_slaves_of_one_name_return_as_they_were() -> None:
    tables = [{f"T{number}": RW, **BASE} for number in range(3)]
    group = [a_registration(f"10.0.0.{n}:1", n, enable_acting_master=True, topics=tables[n]) for n in range(3)]
    server = Server({"guard_min_brokers": 2}, group)
    before = server.view.table.group(NAME)
    told: list[tuple[int | None, int | None]] = []

    def tell(old: BrokerGroup, new: BrokerGroup) -> None:
        told.append((old.min_broker_id(), new.min_broker_id()))

    server.view.on_group_changed = tell
    server.do(a_close(group[0]))
    server.do(a_close(group[1]))

    assert server.view.table.group(NAME).broker_addrs == before.broker_addrs
    assert told == [(0, 1), (1, 0)]
    server.commit()
    assert server.view.table.group(NAME) == server.log.group(NAME)
    assert told == [(0, 1), (1, 0)]


def test_whose_place_another_has_taken_does_not_return() -> None:
    server = Server({"guard_min_brokers": 3})
    server.close(0, 1, 2, 3)
    server.do(BrokerRegistered(over(S1, 9), a_registration("10.0.9.9:1", broker_name="b0")))
    server.close(4)
    assert server.missing == ""
    assert server.view.table.group("b0").broker_addrs == {0: "10.0.9.9:1"}
    assert server.commit_as_told() == ""


def test_each_partition_counts_for_itself() -> None:
    view, partitions = RouteView(partitions=2), 2
    fleet = [[r for r in FLEET if partition_of(r.broker_name, partitions) == p] for p in range(partitions)]
    assert min(len(of_partition) for of_partition in fleet) >= 3
    for registration in FLEET:
        view.accept(BrokerRegistered(over(S1, 1), registration))

    for registration in [*fleet[0][:2], *fleet[1]]:
        view.accept(a_close(registration))

    shown = {group.broker_name for group in view.table.registered_groups()}
    assert shown == set(NAMES) - {r.broker_name for r in fleet[0][:2]}


def test_the_mass_stays_shown_when_closes_that_never_get_into_the_log_are_dropped() -> None:
    server = Server()
    tickets = server.accept(*(a_close(registration) for registration in FLEET))
    for number, ticket in enumerate(tickets[:7]):
        # While the log is away, a broker's registration takes the place of its close.
        server.accept(BrokerRegistered(over(S1, 2), FLEET[number]))
        server.view.drop(ticket)
        assert server.missing == ""

    server.view.drop(tickets[7])
    assert server.missing == ""
    assert server.view.pending_count == 7


def test_brokers_that_are_kept_leave_nothing_pending_behind() -> None:
    server = Server()
    tickets = server.accept(*(a_close(registration) for registration in FLEET))
    for ticket in reversed(tickets):
        server.view.drop(ticket)
    assert server.view.pending_count == 0
    assert server.missing == ""


def test_who_is_held_is_known_after_a_reload_too() -> None:
    log, view = Log(FoldSettings()), RouteView()
    for registration in FLEET:
        log.register(registration)
    for registration in FLEET:
        log.disconnect(registration)
    table = RouteTable()
    apply(table, log.output.changes)

    view.reload(table, {0: len(log.records)})

    assert {hold.goes_with for hold in view.table.held.values()} == {"disconnected"}


def test_a_hold_in_the_table_is_the_newest_row_of_its_broker() -> None:
    log = Log(FoldSettings())
    for registration in FLEET:
        log.register(registration)
    log.pass_time(120_001)
    log.beat(FLEET[0])
    table = RouteTable()

    apply(table, log.output.changes)

    assert table.held.keys() == set(KEYS[1:])
    guard_rows = [row for row in log.output.changes if row.kind == "guard" and not row.gone]
    assert [decode_hold(row.value or "") for row in guard_rows[1:]] == [table.held[key] for key in KEYS[1:]]


def test_an_operators_release_shows_when_the_fold_has_it_in_every_partition() -> None:
    view = RouteView(partitions=2)

    tickets = view.accept(GuardReleased(S1, CLUSTER, "ada"))

    assert len(tickets) == view.pending_count == 2
    for partition, ticket in enumerate(tickets):
        ticket.position = (partition, 7)
    view.commit((), {0: 8, 1: 8})
    assert view.pending_count == 0
