"""The mass-expiry guard with closed connections and with silent servers."""

import pytest

from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.events import GuardReleased
from namesrv_stream.route.fold.state import decode_state, encode_state
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import Registration, decode_hold
from tests.support.builders import CLUSTER, DIRECT_ORIGIN, RW, S1, S2, Log, a_registration, a_server, of_kind
from tests.support.fold_scenarios import (
    TIMEOUT_MS,
    a_fleet,
    a_fleet_log,
    addrs,
    close_all,
    held_addrs,
    pass_time_with_heartbeats,
    removals,
)

# ---- closed connections ----


def test_single_close_takes_effect_at_once() -> None:
    fleet = a_fleet(10)
    log = a_fleet_log(fleet)

    assert removals(log.disconnect(fleet[0])) == [(fleet[0].broker_addr, "disconnected")]


def test_close_that_exceeds_the_share_restores_the_brokers_that_closed_before_it() -> None:
    fleet = a_fleet(9)
    log = a_fleet_log(fleet)
    before = dict(log.groups.groups)
    close_all(log, fleet[:4], every_ms=100)
    assert log.alive() == addrs(fleet[4:])

    rows = log.disconnect(fleet[4])

    assert held_addrs(log) == addrs(fleet[:5])
    assert log.groups.groups == before
    assert {(r.kind, r.cause) for r in rows if r.broker_name == fleet[0].broker_name} == {
        (kind, "guard_held") for kind in ("broker_data", "broker_live", "holder", "queue_data", "guard")
    }
    assert {decode_hold(r.value or "").goes_with for r in of_kind(rows, ChangeKind.GUARD)} == {"disconnected"}


@pytest.mark.parametrize(("every_ms", "is_mass"), [(500, True), (501, False)])
def test_closes_count_together_within_two_seconds_of_observed_time(every_ms: int, is_mass: bool) -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)

    close_all(log, fleet, every_ms)

    assert held_addrs(log) == (addrs(fleet) if is_mass else set())


# ---- brokers that have just come do not count ----

_KNOWN_AFTER_MS = 20_000


def _known_fleet(brokers: int) -> tuple[list[Registration], Log]:
    """Return a fleet that has just become known to the guard, and its log."""
    fleet = a_fleet(brokers)
    log = a_fleet_log(fleet, FoldSettings(guard_known_ms=_KNOWN_AFTER_MS))
    pass_time_with_heartbeats(log, _KNOWN_AFTER_MS, hearing=fleet)
    return fleet, log


def _strangers(log: Log, number: int) -> list[Registration]:
    strangers = [a_registration(f"9.9.9.{n}:1", broker_name=f"zz-{n}", timeout_ms=TIMEOUT_MS) for n in range(number)]
    for stranger in strangers:
        log.register(stranger)
    return strangers


def test_live_strangers_do_not_lower_the_share_of_failing_brokers() -> None:
    fleet, log = _known_fleet(6)
    _strangers(log, 7)

    close_all(log, fleet, every_ms=10)

    assert held_addrs(log) == addrs(fleet)


def test_strangers_that_go_do_not_keep_a_dead_broker() -> None:
    fleet, log = _known_fleet(6)
    strangers = _strangers(log, 8)

    close_all(log, [*strangers, fleet[0]], every_ms=10)

    assert (held_addrs(log), log.alive()) == (set(), addrs(fleet[1:]))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_known_broker_that_returns_counts_and_a_stranger_that_returns_does_not(is_restarted: bool) -> None:
    fleet, log = _known_fleet(6)
    strangers = _strangers(log, 7)
    for registration in (*fleet, *strangers):
        log.unregister(registration)
        log.pass_time(100)
        log.register(registration)
    if is_restarted:
        log.state = decode_state(encode_state(log.state))

    close_all(log, fleet, every_ms=10)

    assert held_addrs(log) == addrs(fleet)


def test_a_broker_that_closes_counts_only_if_it_is_known() -> None:
    fleet = a_fleet(8)
    log = a_fleet_log(fleet[:4], FoldSettings(guard_known_ms=_KNOWN_AFTER_MS))
    pass_time_with_heartbeats(log, _KNOWN_AFTER_MS, hearing=fleet[:4])
    for registration in fleet[4:]:
        log.register(registration)

    close_all(log, fleet, every_ms=10)

    assert held_addrs(log) == set()


def test_closes_at_two_servers_do_not_count_together() -> None:
    fleet = a_fleet(8)
    log = Log()
    for number, registration in enumerate(fleet):
        log.register(registration, (S1, S2)[number % 2])

    for number, registration in enumerate(fleet):
        log.disconnect(registration, (S1, S2)[number % 2])

    assert log.alive() == held_addrs(log) == set()


def test_brokers_with_another_holder_do_not_count_as_closed() -> None:
    fleet = a_fleet(8)
    log = a_fleet_log(fleet)
    for registration in fleet:
        log.register(registration, S2)

    close_all(log, fleet)

    assert held_addrs(log) == set()
    assert log.alive() == addrs(fleet)


def test_closes_and_brokers_not_heard_count_together() -> None:
    fleet = a_fleet(6)
    log = a_fleet_log(fleet)
    pass_time_with_heartbeats(log, TIMEOUT_MS // 2 + 1, hearing=fleet[2:])

    log.disconnect(fleet[5])
    log.disconnect(fleet[4])
    assert held_addrs(log) == set()
    log.disconnect(fleet[3])

    assert held_addrs(log) == addrs(fleet) - {fleet[2].broker_addr}


def test_brokers_held_for_closes_are_removed_as_disconnected_after_the_hold() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    close_all(log, fleet)

    pass_time_with_heartbeats(log, 3 * TIMEOUT_MS)
    assert log.alive() == addrs(fleet)
    rows = log.tick(1)

    assert removals(rows) == [(r.broker_addr, "disconnected") for r in fleet]
    assert rows[0].detail == "closed by peer; the guard held it until now"


def test_restored_broker_is_removed_on_time_despite_older_deadlines() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    pass_time_with_heartbeats(log, TIMEOUT_MS - 1_000)
    for registration in fleet:
        log.beat(registration)
    log.disconnect(fleet[0])
    log.tick(1_500)
    close_all(log, fleet[1:])
    assert held_addrs(log) == addrs(fleet)

    pass_time_with_heartbeats(log, 3 * TIMEOUT_MS - 1_500)
    assert log.alive() == addrs(fleet)
    log.tick(1)

    assert log.alive() == set()


def test_a_close_reported_twice_changes_nothing_of_a_held_broker() -> None:
    fleet = a_fleet(6)
    log = a_fleet_log(fleet)
    close_all(log, fleet)
    for registration in fleet[1:]:
        log.register(registration, connection=2)

    rows = log.disconnect(fleet[0])

    assert [(r.kind, r.detail) for r in rows] == [("ignored", "closed already: the guard holds the broker")]
    assert held_addrs(log) == {fleet[0].broker_addr}


def test_held_broker_whose_connection_closes_alone_is_removed_at_once() -> None:
    fleet = a_fleet(10)
    log = a_fleet_log(fleet)
    pass_time_with_heartbeats(log, TIMEOUT_MS + 1)
    for registration in fleet[2:]:
        log.beat(registration)

    rows = log.disconnect(fleet[0])

    assert removals(rows) == [(fleet[0].broker_addr, "disconnected")]
    assert held_addrs(log) == {fleet[1].broker_addr}


def test_broker_that_registered_again_is_not_restored_again() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    close_all(log, fleet[:4])
    log.register(fleet[0], connection=2)

    log.disconnect(fleet[4])

    assert held_addrs(log) == set()
    assert log.alive() == {fleet[0].broker_addr}


def test_a_broker_that_unregisters_after_its_close_is_not_restored() -> None:
    fleet = a_fleet(6)
    log = a_fleet_log(fleet)
    close_all(log, fleet[:4])
    log.unregister(fleet[0], connection=2)

    close_all(log, fleet[4:])

    assert held_addrs(log) == log.alive() == addrs(fleet[1:])


def test_broker_whose_id_was_taken_is_not_restored_and_a_row_says_why() -> None:
    fleet = a_fleet(7)
    log = a_fleet_log(fleet)
    log.disconnect(fleet[0])
    log.register(a_registration("10.9.9.9:1", broker_name=fleet[0].broker_name, timeout_ms=TIMEOUT_MS))

    rows = close_all(log, fleet[1:5])

    assert held_addrs(log) == addrs(fleet[1:5])
    assert [(r.broker_addr, r.cause, r.detail) for r in of_kind(rows, ChangeKind.IGNORED)] == [
        (fleet[0].broker_addr, "guard_held", "not brought back: brokerId 0 is 10.9.9.9:1 now")
    ]


def test_master_and_slave_are_restored_with_the_masters_topics() -> None:
    pairs = [
        a_registration(f"10.0.{n}.{i}:1", i, broker_name=f"b{n}", topics={"a": RW, f"of {i}": RW})
        for n in range(3)
        for i in (0, 1)
    ]
    log = a_fleet_log(pairs)
    before = dict(log.groups.groups)

    close_all(log, reversed(pairs))

    assert held_addrs(log) == addrs(pairs)
    assert log.groups.groups == before


def test_closed_broker_that_another_server_hears_belongs_to_that_server() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    close_all(log, fleet)

    for registration in fleet:
        log.register(registration, S2)

    assert set(log.group(fleet[0].broker_name).live_brokers[fleet[0].live_key].holders) == {"s2"}
    assert removals(log.disconnect(fleet[0], S2)) == [(fleet[0].broker_addr, "disconnected")]


def test_brokers_of_direct_publishers_are_guarded_too() -> None:
    log = Log(FoldSettings(guard_known_ms=0))
    for registration in a_fleet(5):
        log.register(registration, DIRECT_ORIGIN)

    for registration in a_fleet(5):
        log.disconnect(registration, DIRECT_ORIGIN)

    assert len(held_addrs(log)) == 5


# ---- silent servers ----


def test_guard_holds_brokers_whose_only_holder_is_a_silent_server() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    for registration in fleet:
        log.register(registration, S2)
        log.beat(registration, S1, after_ms=1)
    close_all(log, fleet)
    assert log.alive() == addrs(fleet)
    assert held_addrs(log) == set()

    rows = log.pass_time(16_000, S1)

    assert log.state.servers["s2"].silent
    assert log.alive() == held_addrs(log) == addrs(fleet)
    assert {decode_hold(r.value or "").goes_with for r in of_kind(rows, ChangeKind.GUARD)} == {"server_silent"}
    assert removals(log.say(GuardReleased(S1, CLUSTER, "ada"))) == [(r.broker_addr, "server_silent") for r in fleet]


def test_earlier_heartbeats_at_a_silent_server_do_not_hide_a_mass_failure() -> None:
    fleet = a_fleet(6)
    log = a_fleet_log(fleet)
    for registration in fleet:
        log.register(registration, S2)
    pass_time_with_heartbeats(log, 20_000, hearing=fleet)
    assert log.state.servers["s2"].silent

    pass_time_with_heartbeats(log, TIMEOUT_MS + 1)

    assert held_addrs(log) == addrs(fleet)


def test_heartbeats_at_a_silent_server_at_the_same_time_do_not_hide_a_mass_failure() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet, FoldSettings(guard_known_ms=0, server_silent_ms=6_000))
    for registration in fleet:
        log.register(registration, S2)

    pass_time_with_heartbeats(log, TIMEOUT_MS + 1)

    assert log.state.servers["s2"].silent
    assert held_addrs(log) == addrs(fleet)


def test_hold_does_not_change_when_the_server_of_the_broker_falls_silent() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    for registration in fleet:
        log.register(registration, S2)
        log.beat(registration, S1, after_ms=1)
    close_all(log, fleet)
    log.pass_time(TIMEOUT_MS + 1, S2)
    assert held_addrs(log) == addrs(fleet)

    log.pass_time(16_000, S1)

    assert log.state.servers["s2"].silent
    assert held_addrs(log) == addrs(fleet)
    assert {lease.hold.goes_with for lease in log.state.leases.values() if lease.hold} == {"expired"}


def test_brokers_heard_last_by_a_silent_server_do_not_count() -> None:
    fleet = a_fleet(10)
    log = a_fleet_log(fleet)
    for registration in fleet[4:]:
        log.register(registration, S2, after_ms=1)

    pass_time_with_heartbeats(log, 20_000)

    assert held_addrs(log) == set()
    assert log.alive() == addrs(fleet[4:])


def test_brokers_without_a_holder_are_held_at_the_server_that_still_hears_them() -> None:
    """One record makes two servers silent; the brokers of the first exceed the limit, and the other's are included."""
    fleet, s3 = a_fleet(6, timeout_ms=30_000), a_server("s3")
    log = a_fleet_log(fleet)
    silent = {r.broker_name: (S2, s3)[number % 2] for number, r in enumerate(fleet)}
    for registration in fleet:
        log.register(registration, silent[registration.broker_name])
    for registration in fleet:
        log.beat(registration, S1, after_ms=1)
    log.tick(0, S2)
    log.tick(0, s3)
    close_all(log, fleet)

    log.pass_time(16_000, S1)

    assert held_addrs(log) == log.alive() == addrs(fleet)
    holds = {key.broker_name: lease.hold.server_id for key, lease in log.state.leases.items() if lease.hold}
    assert holds == {name: server.server_id for name, server in silent.items()}


def test_brokers_of_a_lost_server_are_removed_with_it() -> None:
    fleet = a_fleet(5)
    log = Log(FoldSettings(guard_known_ms=0, server_lost_ms=60_000))
    for registration in fleet:
        log.register(registration, S2)

    rows = log.pass_time(60_000, S1)

    assert removals(rows) == [(r.broker_addr, "server_lost") for r in fleet]
