"""The mass-expiry guard: which brokers it holds, what a hold contains, and how it ends."""

from collections.abc import Callable

import pytest

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.events import GuardReleased, SettingsChanged, partition_of
from namesrv_stream.route.fold.derived_state import rebuilt_state
from namesrv_stream.route.fold.state import decode_state, encode_state
from namesrv_stream.route.fold.step import GroupDict
from namesrv_stream.route.liveness_settings import FoldSettings, SettingValue
from namesrv_stream.route.model import Hold, decode_hold, encode_hold
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from tests.support.builders import BEGIN_MS, CLUSTER, S1, S2, Log, a_registration, of_kind
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

# ---- when brokers are held ----


@pytest.mark.parametrize(
    ("brokers", "silent", "is_mass"),
    [(10, 5, False), (10, 6, True), (9, 5, True), (5, 5, True), (4, 4, False), (20, 10, False), (1, 1, False)],
)
def test_brokers_are_held_above_the_share_and_the_minimum(brokers: int, silent: int, is_mass: bool) -> None:
    fleet = a_fleet(brokers)
    log = a_fleet_log(fleet)

    pass_time_with_heartbeats(log, TIMEOUT_MS + 1, hearing=fleet[silent:])

    assert held_addrs(log) == (addrs(fleet[:silent]) if is_mass else set())
    assert log.alive() == addrs(fleet if is_mass else fleet[silent:])


@pytest.mark.parametrize(
    ("share", "silent", "is_mass"), [(30, 4, True), (30, 3, False), (99, 10, True), (100, 10, False)]
)
def test_share_is_a_setting_and_100_percent_disables_the_guard(share: int, silent: int, is_mass: bool) -> None:
    fleet = a_fleet(10)
    log = a_fleet_log(fleet, FoldSettings(guard_known_ms=0, guard_share_percent=share, guard_min_brokers=2))

    pass_time_with_heartbeats(log, TIMEOUT_MS + 1, hearing=fleet[silent:])

    assert bool(held_addrs(log)) is is_mass


@pytest.mark.parametrize(("partitions", "least"), [(1, 5), (2, 3), (3, 2), (4, 2), (100, 2)])
def test_minimum_is_divided_among_the_partitions(partitions: int, least: int) -> None:
    assert FoldSettings().guard_min_brokers_of(partitions) == least


@pytest.mark.parametrize(("silent", "is_mass"), [(1, False), (2, True)])
def test_with_many_partitions_the_guard_holds_two_of_three_brokers_of_a_partition(silent: int, is_mass: bool) -> None:
    here = [r for r in a_fleet(60) if partition_of(r.broker_name, 4) == 0][:3]
    log = a_fleet_log(here, partitions=4)

    pass_time_with_heartbeats(log, TIMEOUT_MS + 1, hearing=here[silent:])

    assert not log.dead_letters
    assert bool(held_addrs(log)) is is_mass


@pytest.mark.parametrize(("age_ms", "is_mass"), [(TIMEOUT_MS // 2, False), (TIMEOUT_MS // 2 + 1, True)])
def test_brokers_not_heard_for_half_their_timeout_count(age_ms: int, is_mass: bool) -> None:
    fleet = a_fleet(6)
    log = a_fleet_log(fleet)
    pass_time_with_heartbeats(log, TIMEOUT_MS + 1 - age_ms)
    for registration in fleet[1:]:
        log.beat(registration)

    pass_time_with_heartbeats(log, age_ms)

    assert held_addrs(log) == (addrs(fleet) if is_mass else set())
    assert log.alive() == addrs(fleet if is_mass else fleet[1:])


def test_every_broker_counts_by_its_own_timeout() -> None:
    slow = a_fleet(5, timeout_ms=3 * TIMEOUT_MS)
    quick = a_registration("10.0.1.1:1", broker_name="quick", timeout_ms=TIMEOUT_MS)
    log = a_fleet_log([*slow, quick])

    pass_time_with_heartbeats(log, TIMEOUT_MS + 1)

    assert held_addrs(log) == set()
    assert log.alive() == addrs(slow)


def test_clusters_are_counted_separately() -> None:
    dead, live = a_fleet(5, "c1"), a_fleet(20, "c2")
    log = a_fleet_log([*dead, *live])

    pass_time_with_heartbeats(log, TIMEOUT_MS + 1, hearing=live)

    assert held_addrs(log) == addrs(dead)


def test_a_broker_that_another_server_hears_is_not_counted() -> None:
    fleet = a_fleet(6)
    log = a_fleet_log(fleet)
    for registration in fleet[3:]:
        log.register(registration, S2)

    for _ in range(20):
        pass_time_with_heartbeats(log, 500)
        for registration in fleet[3:]:
            log.beat(registration, S2)
    rows = log.tick(1)

    assert held_addrs(log) == set()
    assert len(removals(rows)) == 3


# ---- what a hold contains ----


def test_hold_has_broker_start_cause_and_end() -> None:
    fleet = a_fleet(6)
    log = a_fleet_log(fleet)
    pass_time_with_heartbeats(log, 2_000)
    log.beat(fleet[5])

    rows = of_kind(pass_time_with_heartbeats(log, TIMEOUT_MS - 2_000 + 1), ChangeKind.GUARD)

    assert [(r.broker_addr, r.broker_name, r.cluster, r.gone, r.cause, r.server_id) for r in rows] == [
        (r.broker_addr, r.broker_name, CLUSTER, False, "guard_held", "s1") for r in fleet
    ]
    reason = "not heard for 10001 ms of observed time at s1, timeout 10000 ms"
    assert rows[0].detail == f"6 of 6 brokers of c0 seem to end at once: {reason}"
    assert decode_hold(rows[0].value or "") == Hold(
        "expired", reason, "s1", since_ms=log.now_ms, until_ms=BEGIN_MS + 3 * TIMEOUT_MS, ending=6, brokers=6
    )
    assert decode_hold(rows[5].value or "").until_ms == BEGIN_MS + 2_000 + 3 * TIMEOUT_MS


def test_a_hold_changes_no_route() -> None:
    log = a_fleet_log(a_fleet(5))

    rows = pass_time_with_heartbeats(log, TIMEOUT_MS + 1)

    assert {row.kind for row in rows} == {ChangeKind.GUARD}


def test_a_hold_is_read_as_it_was_written() -> None:
    hold = Hold("disconnected", "closed", "s1", 1, 2, 3, 4)

    assert decode_hold(encode_hold(hold)) == hold


# ---- how a hold ends ----


def test_held_broker_is_removed_strictly_after_its_hold_with_its_own_cause() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)

    pass_time_with_heartbeats(log, 3 * TIMEOUT_MS)
    assert log.alive() == held_addrs(log) == addrs(fleet)
    rows = log.tick(1)

    assert removals(rows) == [(r.broker_addr, "expired") for r in fleet]
    assert held_addrs(log) == log.alive() == set()
    assert [(r.gone, r.cause) for r in of_kind(rows, ChangeKind.GUARD)] == [(True, "expired")] * 5


@pytest.mark.parametrize("timeouts", [1, 5])
def test_how_long_a_hold_lasts_is_a_setting(timeouts: int) -> None:
    log = a_fleet_log(a_fleet(5), FoldSettings(guard_known_ms=0, guard_hold_timeouts=timeouts))

    pass_time_with_heartbeats(log, (1 + timeouts) * TIMEOUT_MS)
    assert len(log.alive()) == 5
    log.tick(1)

    assert log.alive() == set()


@pytest.mark.parametrize(("hear", "cause"), [(Log.beat, "heard"), (Log.heard, "heard"), (Log.register, "registered")])
def test_a_new_heartbeat_releases_a_broker_which_ages_again(hear: Callable[..., list[RouteChange]], cause: str) -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    log.heard(fleet[0])
    pass_time_with_heartbeats(log, TIMEOUT_MS + 1)

    rows = hear(log, fleet[0])

    assert [(r.kind, r.broker_addr, r.gone, r.cause, r.detail) for r in rows] == [
        ("guard", fleet[0].broker_addr, True, cause, "heard at s1")
    ]
    assert held_addrs(log) == addrs(fleet[1:])
    pass_time_with_heartbeats(log, TIMEOUT_MS)
    assert fleet[0].broker_addr in log.alive() - held_addrs(log)


def test_remaining_brokers_stay_held_when_most_are_heard_again() -> None:
    fleet = a_fleet(10)
    log = a_fleet_log(fleet)
    pass_time_with_heartbeats(log, TIMEOUT_MS + 1)
    for registration in fleet[3:]:
        log.beat(registration)

    pass_time_with_heartbeats(log, TIMEOUT_MS, hearing=fleet[3:])

    assert held_addrs(log) == addrs(fleet[:3])


def test_an_unregistration_ends_a_hold_at_once() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    pass_time_with_heartbeats(log, TIMEOUT_MS + 1)

    rows = log.unregister(fleet[0])

    assert removals(rows) == [(fleet[0].broker_addr, "unregistered")]
    assert held_addrs(log) == addrs(fleet[1:])


def test_unregistrations_are_not_a_mass_failure() -> None:
    fleet = a_fleet(10)
    log = a_fleet_log(fleet)

    for registration in fleet:
        log.unregister(registration)

    assert log.alive() == held_addrs(log) == set()


# ---- operators ----


def test_release_removes_expired_brokers_at_once() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    pass_time_with_heartbeats(log, TIMEOUT_MS + 1)

    rows = log.say(GuardReleased(S1, CLUSTER, "ada"))

    assert {(r.cause, r.detail) for r in of_kind(rows, ChangeKind.GUARD)} == {("guard_released", "by ada")}
    assert removals(rows) == [(r.broker_addr, "expired") for r in fleet]
    assert log.alive() == held_addrs(log) == set()


def test_release_removes_closed_brokers_at_once() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    close_all(log, fleet)

    rows = log.say(GuardReleased(S1, CLUSTER, "ada"))

    assert removals(rows) == [(r.broker_addr, "disconnected") for r in fleet]


def test_brokers_that_are_not_due_expire_at_their_own_time_after_a_release() -> None:
    fleet = a_fleet(10)
    log = a_fleet_log(fleet)
    pass_time_with_heartbeats(log, 4_000)
    for registration in fleet[4:]:
        log.beat(registration)
    pass_time_with_heartbeats(log, TIMEOUT_MS - 4_000 + 1)
    assert held_addrs(log) == addrs(fleet)

    log.say(GuardReleased(S1, CLUSTER, "ada"))
    assert log.alive() == addrs(fleet[4:])
    pass_time_with_heartbeats(log, 3_999)
    assert log.alive() == addrs(fleet[4:])
    log.tick(1)

    assert log.alive() == held_addrs(log) == set()


def test_a_broker_with_a_heartbeat_after_a_release_is_guarded_again() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    pass_time_with_heartbeats(log, 4_000)
    for registration in fleet[1:]:
        log.beat(registration)
    pass_time_with_heartbeats(log, TIMEOUT_MS - 4_000 + 1)
    log.say(GuardReleased(S1, CLUSTER, "ada"))
    for registration in fleet:
        log.register(registration)

    pass_time_with_heartbeats(log, TIMEOUT_MS + 1)

    assert held_addrs(log) == addrs(fleet)


def test_release_without_held_brokers_writes_a_row() -> None:
    rows = a_fleet_log(a_fleet(5)).say(GuardReleased(S1, CLUSTER, "ada"))

    assert [(r.kind, r.cause, r.cluster, r.detail) for r in rows] == [
        ("ignored", "guard_released", CLUSTER, "by ada: no broker of c0 is held")
    ]


def test_guard_can_be_disabled_for_a_cluster() -> None:
    left, guarded = a_fleet(5, "c1"), a_fleet(5, "c2")
    log = a_fleet_log([*left, *guarded], FoldSettings(guard_known_ms=0, guard_off_clusters=("c1",)))

    pass_time_with_heartbeats(log, TIMEOUT_MS + 1)

    assert log.alive() == held_addrs(log) == addrs(guarded)


@pytest.mark.parametrize("change", [{"guard_off_clusters": (CLUSTER,)}, {"guard_share_percent": 100}])
def test_disabled_guard_releases_all_brokers(change: dict[str, SettingValue]) -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    close_all(log, fleet)

    rows = log.say(SettingsChanged(S1, "ada", tuple(change.items())))

    assert removals(rows) == [(r.broker_addr, "disconnected") for r in fleet]
    assert {(r.cause, r.detail) for r in of_kind(rows, ChangeKind.GUARD)} == {("settings_changed", "by ada")}


# ---- restarts ----


@pytest.mark.parametrize("closed", [4, 5], ids=["before the limit is exceeded", "held"])
def test_a_restart_changes_nothing(closed: int) -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    close_all(log, fleet[:closed])
    restarted = Log()
    restarted.state, restarted.groups = decode_state(encode_state(log.state)), GroupDict(dict(log.groups.groups))
    restarted.records, restarted.now_ms = list(log.records), log.now_ms
    assert encode_state(restarted.state) == encode_state(log.state)

    for say in (
        lambda one: close_all(one, fleet[closed:]),
        lambda one: pass_time_with_heartbeats(one, 25_000),
        lambda one: one.beat(fleet[0]),
        lambda one: pass_time_with_heartbeats(one, 31_000),
    ):
        assert say(restarted) == say(log)
    assert log.alive() == set()


def test_state_rebuilt_from_the_tables_holds_brokers_with_age_zero() -> None:
    fleet = a_fleet(5)
    log = a_fleet_log(fleet)
    close_all(log, fleet)
    table = RouteTable()
    apply(table, log.output.changes)

    log.state = rebuilt_state(0, 1, len(log.records), log.now_ms, table)

    assert held_addrs(log) == addrs(fleet)
    log.tick(1)
    assert [(r.kind, r.cause) for r in log.beat(fleet[0])] == [("guard", Cause.HEARD)]
    pass_time_with_heartbeats(log, 3 * TIMEOUT_MS)
    assert log.alive() == addrs(fleet)
    log.tick(1)
    assert log.alive() == set()
