"""What a server shows of brokers that the guard keeps: its own word until the fold's is there, then the fold's."""

from namesrv_stream.route.events import BrokerDisconnected, GuardReleased
from namesrv_stream.route.hold import decode_hold
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view import RouteView
from tests.support.builders import CLUSTER, S1, Log, a_registration, over

FLEET = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}", timeout_ms=10_000) for n in range(5)]
KEYS = [LeaseKey(registration.broker_name, registration.live_key) for registration in FLEET]


def a_log() -> Log:
    log = Log(FoldSettings())
    for registration in FLEET:
        log.register(registration)
    return log


def commit(view: RouteView, log: Log, since: int = 0) -> set[str]:
    """The rows of the records from offset ``since`` on."""
    return view.commit([row for row in log.output.changes if row.offset >= since], {0: len(log.records)})


def shown(view: RouteView) -> set[str]:
    return {group.broker_name for group in view.table.registered_groups()}


def names() -> set[str]:
    return {registration.broker_name for registration in FLEET}


def test_a_mass_of_closes_hides_brokers_until_the_fold_brings_them_back() -> None:
    log, view = a_log(), RouteView()
    commit(view, log)
    closes = [BrokerDisconnected(over(S1, 1), r.broker_name, r.live_key, "closed") for r in FLEET]
    tickets = [view.accept(event)[0][0] for event in closes]
    assert shown(view) == set()
    since = len(log.records)

    for event, ticket in zip(closes[:3], tickets[:3], strict=True):
        ticket.position = (0, len(log.records))
        log.say(event)
    commit(view, log, since)
    assert shown(view) == set()
    assert view.table.held == {}

    since = len(log.records)
    for event, ticket in zip(closes[3:], tickets[3:], strict=True):
        ticket.position = (0, len(log.records))
        log.say(event)
    touched = commit(view, log, since)

    assert shown(view) == names()
    assert touched == {"TopicTest", "baseTopic"}
    assert view.pending_count == 0
    assert view.table.held.keys() == set(KEYS)


def test_who_is_held_is_known_after_a_reload_too() -> None:
    log, view = a_log(), RouteView()
    for registration in FLEET:
        log.disconnect(registration)
    table = RouteTable()
    apply(table, log.output.changes)

    view.reload(table, {0: len(log.records)})

    assert {hold.goes_with for hold in view.table.held.values()} == {"disconnected"}


def test_a_hold_in_the_table_is_the_newest_row_of_its_broker() -> None:
    log = a_log()
    log.pass_time(10_001)
    log.beat(FLEET[0])
    table = RouteTable()

    apply(table, log.output.changes)

    assert table.held.keys() == set(KEYS[1:])
    guard_rows = [row for row in log.output.changes if row.kind == "guard" and not row.gone]
    assert [decode_hold(row.value or "") for row in guard_rows[1:]] == [table.held[key] for key in KEYS[1:]]


def test_an_operators_release_shows_when_the_fold_has_it_in_every_partition() -> None:
    view = RouteView(partitions=2)

    tickets, touched = view.accept(GuardReleased(S1, CLUSTER, "ada"))

    assert len(tickets) == view.pending_count == 2
    assert touched == set()
    for partition, ticket in enumerate(tickets):
        ticket.position = (partition, 7)
    view.commit((), {0: 8, 1: 8})
    assert view.pending_count == 0
