"""The mass-expiry guard: who is held, since when, why, until when, and how each is released."""

from collections.abc import Callable, Iterable

import pytest

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.events import GuardReleased, SettingsChanged
from namesrv_stream.route.fold.derived_state import rebuilt_state
from namesrv_stream.route.fold.state import decode_state, encode_state
from namesrv_stream.route.fold.step import GroupDict
from namesrv_stream.route.liveness_settings import FoldSettings, SettingValue
from namesrv_stream.route.model import Hold, Registration, decode_hold, encode_hold
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from tests.support.builders import BEGIN_MS, CLUSTER, DIRECT_ORIGIN, RW, S1, S2, Log, a_registration, a_server, of_kind

TIMEOUT_MS = 10_000


def a_fleet(brokers: int, cluster: str = CLUSTER, timeout_ms: int = TIMEOUT_MS) -> list[Registration]:
    return [
        a_registration(f"10.0.0.{n}:1", broker_name=f"{cluster}-{n}", cluster=cluster, timeout_ms=timeout_ms)
        for n in range(brokers)
    ]


def a_log(fleet: Iterable[Registration], settings: FoldSettings | None = None, partitions: int = 1) -> Log:
    log = Log(settings or FoldSettings(), partitions=partitions)
    for registration in fleet:
        log.register(registration)
    return log


def pass_time(log: Log, ms: int, hearing: Iterable[Registration] = ()) -> list[RouteChange]:
    """The server ticks each half second; the brokers in ``hearing`` send a heartbeat each time."""
    rows: list[RouteChange] = []
    for step in [500] * (ms // 500) + [ms % 500] * (ms % 500 > 0):
        rows += log.tick(step)
        for registration in hearing:
            rows += log.beat(registration)
    return rows


def held(log: Log) -> set[str]:
    """Addresses of those held, by the fold; the rows must say the same."""
    table = RouteTable()
    apply(table, log.output.changes)
    assert table.held == {key: lease.hold for key, lease in log.state.leases.items() if lease.hold}
    return {key.live_key.broker_addr for key in table.held}


def addrs(fleet: Iterable[Registration]) -> set[str]:
    return {registration.broker_addr for registration in fleet}


def ends(rows: Iterable[RouteChange]) -> list[tuple[str, str]]:
    return [(row.broker_addr or "", row.cause) for row in of_kind(rows, ChangeKind.BROKER_LIVE) if row.gone]


# ---- how many are too many ----


@pytest.mark.parametrize(
    ("brokers", "silent", "is_mass"),
    [(10, 5, False), (10, 6, True), (9, 5, True), (5, 5, True), (4, 4, False), (20, 10, False), (1, 1, False)],
)
def test_brokers_are_held_above_the_share_and_the_minimum(brokers: int, silent: int, is_mass: bool) -> None:
    fleet = a_fleet(brokers)
    log = a_log(fleet)

    pass_time(log, TIMEOUT_MS + 1, hearing=fleet[silent:])

    assert held(log) == (addrs(fleet[:silent]) if is_mass else set())
    assert log.alive() == addrs(fleet if is_mass else fleet[silent:])


@pytest.mark.parametrize(
    ("share", "silent", "is_mass"), [(30, 4, True), (30, 3, False), (99, 10, True), (100, 10, False)]
)
def test_share_is_a_setting_and_100_percent_disables_the_guard(share: int, silent: int, is_mass: bool) -> None:
    fleet = a_fleet(10)
    log = a_log(fleet, FoldSettings(guard_share_percent=share, guard_min_brokers=2))

    pass_time(log, TIMEOUT_MS + 1, hearing=fleet[silent:])

    assert bool(held(log)) is is_mass


@pytest.mark.parametrize(("partitions", "least"), [(1, 5), (2, 3), (3, 2), (4, 2), (100, 2)])
def test_minimum_is_divided_among_the_partitions(partitions: int, least: int) -> None:
    assert FoldSettings().guard_min_brokers_of(partitions) == least


@pytest.mark.parametrize(("silent", "is_mass"), [(1, False), (2, True)])
def test_with_many_partitions_two_of_three_in_one_are_enough(silent: int, is_mass: bool) -> None:
    here = [r for r in a_fleet(60) if partition_of(r.broker_name, 4) == 0][:3]
    log = a_log(here, partitions=4)

    pass_time(log, TIMEOUT_MS + 1, hearing=here[silent:])

    assert not log.dead_letters
    assert bool(held(log)) is is_mass


@pytest.mark.parametrize(("age_ms", "is_mass"), [(TIMEOUT_MS // 2, False), (TIMEOUT_MS // 2 + 1, True)])
def test_brokers_not_heard_for_half_their_timeout_count(age_ms: int, is_mass: bool) -> None:
    fleet = a_fleet(6)
    log = a_log(fleet)
    pass_time(log, TIMEOUT_MS + 1 - age_ms)
    for registration in fleet[1:]:
        log.beat(registration)

    pass_time(log, age_ms)

    assert held(log) == (addrs(fleet) if is_mass else set())
    assert log.alive() == addrs(fleet if is_mass else fleet[1:])


def test_every_broker_counts_by_its_own_timeout() -> None:
    slow = a_fleet(5, timeout_ms=3 * TIMEOUT_MS)
    quick = a_registration("10.0.1.1:1", broker_name="quick", timeout_ms=TIMEOUT_MS)
    log = a_log([*slow, quick])

    pass_time(log, TIMEOUT_MS + 1)

    assert held(log) == set()
    assert log.alive() == addrs(slow)


def test_clusters_are_counted_separately() -> None:
    dead, live = a_fleet(5, "c1"), a_fleet(20, "c2")
    log = a_log([*dead, *live])

    pass_time(log, TIMEOUT_MS + 1, hearing=live)

    assert held(log) == addrs(dead)


def test_a_broker_that_another_server_hears_is_not_counted() -> None:
    fleet = a_fleet(6)
    log = a_log(fleet)
    for registration in fleet[3:]:
        log.register(registration, S2)

    for _ in range(20):
        pass_time(log, 500)
        for registration in fleet[3:]:
            log.beat(registration, S2)
    rows = log.tick(1)

    assert held(log) == set()
    assert len(ends(rows)) == 3


# ---- what a hold says ----


def test_hold_has_broker_begin_cause_and_end() -> None:
    fleet = a_fleet(6)
    log = a_log(fleet)
    pass_time(log, 2_000)
    log.beat(fleet[5])

    rows = of_kind(pass_time(log, TIMEOUT_MS - 2_000 + 1), ChangeKind.GUARD)

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
    log = a_log(a_fleet(5))

    rows = pass_time(log, TIMEOUT_MS + 1)

    assert {row.kind for row in rows} == {ChangeKind.GUARD}


def test_a_hold_is_read_as_it_was_written() -> None:
    hold = Hold("disconnected", "closed", "s1", 1, 2, 3, 4)

    assert decode_hold(encode_hold(hold)) == hold


# ---- how a hold ends ----


def test_held_broker_is_removed_strictly_after_its_hold_with_its_own_cause() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)

    pass_time(log, 3 * TIMEOUT_MS)
    assert log.alive() == held(log) == addrs(fleet)
    rows = log.tick(1)

    assert ends(rows) == [(r.broker_addr, "expired") for r in fleet]
    assert held(log) == log.alive() == set()
    assert [(r.gone, r.cause) for r in of_kind(rows, ChangeKind.GUARD)] == [(True, "expired")] * 5


@pytest.mark.parametrize("timeouts", [1, 5])
def test_how_long_a_hold_lasts_is_a_setting(timeouts: int) -> None:
    log = a_log(a_fleet(5), FoldSettings(guard_hold_timeouts=timeouts))

    pass_time(log, (1 + timeouts) * TIMEOUT_MS)
    assert len(log.alive()) == 5
    log.tick(1)

    assert log.alive() == set()


@pytest.mark.parametrize(("hear", "cause"), [(Log.beat, "heard"), (Log.heard, "heard"), (Log.register, "registered")])
def test_a_new_heartbeat_releases_a_broker_which_ages_again(hear: Callable[..., list[RouteChange]], cause: str) -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    log.heard(fleet[0])
    pass_time(log, TIMEOUT_MS + 1)

    rows = hear(log, fleet[0])

    assert [(r.kind, r.broker_addr, r.gone, r.cause, r.detail) for r in rows] == [
        ("guard", fleet[0].broker_addr, True, cause, "heard at s1")
    ]
    assert held(log) == addrs(fleet[1:])
    pass_time(log, TIMEOUT_MS)
    assert fleet[0].broker_addr in log.alive() - held(log)


def test_remaining_brokers_stay_held_when_most_are_heard_again() -> None:
    fleet = a_fleet(10)
    log = a_log(fleet)
    pass_time(log, TIMEOUT_MS + 1)
    for registration in fleet[3:]:
        log.beat(registration)

    pass_time(log, TIMEOUT_MS, hearing=fleet[3:])

    assert held(log) == addrs(fleet[:3])


def test_an_unregistration_ends_a_hold_at_once() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    pass_time(log, TIMEOUT_MS + 1)

    rows = log.unregister(fleet[0])

    assert ends(rows) == [(fleet[0].broker_addr, "unregistered")]
    assert held(log) == addrs(fleet[1:])


def test_unregistrations_are_no_mass_failure() -> None:
    fleet = a_fleet(10)
    log = a_log(fleet)

    for registration in fleet:
        log.unregister(registration)

    assert log.alive() == held(log) == set()


def test_a_server_that_lost_records_releases_what_it_holds() -> None:
    log = a_log(a_fleet(5))
    pass_time(log, TIMEOUT_MS + 1)

    rows = log.resumed(S1)

    assert [(r.cause, r.detail) for r in of_kind(rows, ChangeKind.GUARD)] == [("server_resumed", "s1 lost records")] * 5
    assert held(log) == set()
    assert len(log.alive()) == 5


# ---- closed connections ----


def close_all(log: Log, fleet: Iterable[Registration], every_ms: int = 0) -> list[RouteChange]:
    rows: list[RouteChange] = []
    for registration in fleet:
        rows += log.tick(every_ms)
        rows += log.disconnect(registration)
    return rows


def test_single_close_takes_effect_at_once() -> None:
    fleet = a_fleet(10)
    log = a_log(fleet)

    assert ends(log.disconnect(fleet[0])) == [(fleet[0].broker_addr, "disconnected")]


def test_close_that_exceeds_the_share_restores_the_earlier_ones() -> None:
    fleet = a_fleet(9)
    log = a_log(fleet)
    before = dict(log.groups.groups)
    close_all(log, fleet[:4], every_ms=100)
    assert log.alive() == addrs(fleet[4:])

    rows = log.disconnect(fleet[4])

    assert held(log) == addrs(fleet[:5])
    assert log.groups.groups == before
    assert {(r.kind, r.cause) for r in rows if r.broker_name == fleet[0].broker_name} == {
        (kind, "guard_held") for kind in ("broker_data", "broker_live", "holder", "queue_data", "guard")
    }
    assert {decode_hold(r.value or "").goes_with for r in of_kind(rows, ChangeKind.GUARD)} == {"disconnected"}


@pytest.mark.parametrize(("every_ms", "is_mass"), [(500, True), (501, False)])
def test_closes_count_together_within_two_seconds_of_observed_time(every_ms: int, is_mass: bool) -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)

    close_all(log, fleet, every_ms)

    assert held(log) == (addrs(fleet) if is_mass else set())


def test_closes_at_two_servers_do_not_count_together() -> None:
    fleet = a_fleet(8)
    log = Log()
    for number, registration in enumerate(fleet):
        log.register(registration, (S1, S2)[number % 2])

    for number, registration in enumerate(fleet):
        log.disconnect(registration, (S1, S2)[number % 2])

    assert log.alive() == held(log) == set()


def test_brokers_that_another_server_holds_are_no_part_of_a_mass_of_closes() -> None:
    fleet = a_fleet(8)
    log = a_log(fleet)
    for registration in fleet:
        log.register(registration, S2)

    close_all(log, fleet)

    assert held(log) == set()
    assert log.alive() == addrs(fleet)


def test_closes_and_brokers_not_heard_count_together() -> None:
    fleet = a_fleet(6)
    log = a_log(fleet)
    pass_time(log, TIMEOUT_MS // 2 + 1, hearing=fleet[2:])

    log.disconnect(fleet[5])
    log.disconnect(fleet[4])
    assert held(log) == set()
    log.disconnect(fleet[3])

    assert held(log) == addrs(fleet) - {fleet[2].broker_addr}


def test_brokers_held_for_closes_are_removed_as_disconnected_after_the_hold() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    close_all(log, fleet)

    pass_time(log, 3 * TIMEOUT_MS)
    assert log.alive() == addrs(fleet)
    rows = log.tick(1)

    assert ends(rows) == [(r.broker_addr, "disconnected") for r in fleet]
    assert rows[0].detail == "closed by peer; the guard held it until now"


def test_restored_broker_is_removed_on_time_despite_older_deadlines() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    pass_time(log, TIMEOUT_MS - 1_000)
    for registration in fleet:
        log.beat(registration)
    log.disconnect(fleet[0])
    log.tick(1_500)
    close_all(log, fleet[1:])
    assert held(log) == addrs(fleet)

    pass_time(log, 3 * TIMEOUT_MS - 1_500)
    assert log.alive() == addrs(fleet)
    log.tick(1)

    assert log.alive() == set()


def test_a_close_reported_twice_changes_nothing_of_a_held_broker() -> None:
    fleet = a_fleet(6)
    log = a_log(fleet)
    close_all(log, fleet)
    for registration in fleet[1:]:
        log.register(registration, connection=2)

    rows = log.disconnect(fleet[0])

    assert [(r.kind, r.detail) for r in rows] == [("ignored", "closed already: the guard holds the broker")]
    assert held(log) == {fleet[0].broker_addr}


def test_held_broker_whose_connection_closes_alone_is_removed_at_once() -> None:
    fleet = a_fleet(10)
    log = a_log(fleet)
    pass_time(log, TIMEOUT_MS + 1)
    for registration in fleet[2:]:
        log.beat(registration)

    rows = log.disconnect(fleet[0])

    assert ends(rows) == [(fleet[0].broker_addr, "disconnected")]
    assert held(log) == {fleet[1].broker_addr}


def test_broker_that_registered_again_is_not_restored_again() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    close_all(log, fleet[:4])
    log.register(fleet[0], connection=2)

    log.disconnect(fleet[4])

    assert held(log) == set()
    assert log.alive() == {fleet[0].broker_addr}


def test_a_broker_that_unregisters_after_its_close_is_not_restored() -> None:
    fleet = a_fleet(6)
    log = a_log(fleet)
    close_all(log, fleet[:4])
    log.unregister(fleet[0], connection=2)

    close_all(log, fleet[4:])

    assert held(log) == log.alive() == addrs(fleet[1:])


def test_broker_whose_id_was_taken_is_not_restored_and_a_row_says_why() -> None:
    fleet = a_fleet(7)
    log = a_log(fleet)
    log.disconnect(fleet[0])
    log.register(a_registration("10.9.9.9:1", broker_name=fleet[0].broker_name, timeout_ms=TIMEOUT_MS))

    rows = close_all(log, fleet[1:5])

    assert held(log) == addrs(fleet[1:5])
    assert [(r.broker_addr, r.cause, r.detail) for r in of_kind(rows, ChangeKind.IGNORED)] == [
        (fleet[0].broker_addr, "guard_held", "not brought back: brokerId 0 is 10.9.9.9:1 now")
    ]


def test_master_and_slave_are_restored_with_the_masters_topics() -> None:
    pairs = [
        a_registration(f"10.0.{n}.{i}:1", i, broker_name=f"b{n}", topics={"a": RW, f"of {i}": RW})
        for n in range(3)
        for i in (0, 1)
    ]
    log = a_log(pairs)
    before = dict(log.groups.groups)

    close_all(log, reversed(pairs))

    assert held(log) == addrs(pairs)
    assert log.groups.groups == before


def test_closed_broker_that_another_server_hears_belongs_to_that_server() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    close_all(log, fleet)

    for registration in fleet:
        log.register(registration, S2)

    assert set(log.group(fleet[0].broker_name).lives[fleet[0].live_key].holders) == {"s2"}
    assert ends(log.disconnect(fleet[0], S2)) == [(fleet[0].broker_addr, "disconnected")]


def test_brokers_of_direct_producers_are_guarded_too() -> None:
    log = Log()
    for registration in a_fleet(5):
        log.register(registration, DIRECT_ORIGIN)

    for registration in a_fleet(5):
        log.disconnect(registration, DIRECT_ORIGIN)

    assert len(held(log)) == 5


# ---- silent servers ----


def test_brokers_that_a_silent_server_alone_still_holds_are_held_when_too_many() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    for registration in fleet:
        log.register(registration, S2)
        log.beat(registration, S1, after_ms=1)
    close_all(log, fleet)
    assert log.alive() == addrs(fleet)
    assert held(log) == set()

    rows = log.pass_time(16_000, S1)

    assert log.state.servers["s2"].silent
    assert log.alive() == held(log) == addrs(fleet)
    assert {decode_hold(r.value or "").goes_with for r in of_kind(rows, ChangeKind.GUARD)} == {"server_silent"}
    assert ends(log.say(GuardReleased(S1, CLUSTER, "ada"))) == [(r.broker_addr, "server_silent") for r in fleet]


def test_what_a_silent_server_heard_earlier_does_not_hide_a_mass_at_the_one_that_talks() -> None:
    fleet = a_fleet(6)
    log = a_log(fleet)
    for registration in fleet:
        log.register(registration, S2)
    pass_time(log, 20_000, hearing=fleet)
    assert log.state.servers["s2"].silent

    pass_time(log, TIMEOUT_MS + 1)

    assert held(log) == addrs(fleet)


def test_what_a_silent_server_heard_at_the_same_moment_does_not_hide_a_mass_either() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet, FoldSettings(server_silent_ms=6_000))
    for registration in fleet:
        log.register(registration, S2)

    pass_time(log, TIMEOUT_MS + 1)

    assert log.state.servers["s2"].silent
    assert held(log) == addrs(fleet)


def test_a_hold_stays_what_it_is_when_the_server_that_heard_the_broker_falls_silent() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    for registration in fleet:
        log.register(registration, S2)
        log.beat(registration, S1, after_ms=1)
    close_all(log, fleet)
    log.pass_time(TIMEOUT_MS + 1, S2)
    assert held(log) == addrs(fleet)

    log.pass_time(16_000, S1)

    assert log.state.servers["s2"].silent
    assert held(log) == addrs(fleet)
    assert {lease.hold.goes_with for lease in log.state.leases.values() if lease.hold} == {"expired"}


def test_what_a_silent_server_heard_last_is_no_part_of_a_mass() -> None:
    fleet = a_fleet(10)
    log = a_log(fleet)
    for registration in fleet[4:]:
        log.register(registration, S2, after_ms=1)

    pass_time(log, 20_000)

    assert held(log) == set()
    assert log.alive() == addrs(fleet[4:])


def test_brokers_without_a_holder_are_held_at_the_server_that_still_hears_them() -> None:
    """Two servers fall silent by one record; the first one's brokers make the mass, and the other's are part of it."""
    fleet, s3 = a_fleet(6, timeout_ms=30_000), a_server("s3")
    log = a_log(fleet)
    silent = {r.broker_name: (S2, s3)[number % 2] for number, r in enumerate(fleet)}
    for registration in fleet:
        log.register(registration, silent[registration.broker_name])
    for registration in fleet:
        log.beat(registration, S1, after_ms=1)
    log.tick(0, S2)
    log.tick(0, s3)
    close_all(log, fleet)

    log.pass_time(16_000, S1)

    assert held(log) == log.alive() == addrs(fleet)
    holds = {key.broker_name: lease.hold.server_id for key, lease in log.state.leases.items() if lease.hold}
    assert holds == {name: server.server_id for name, server in silent.items()}


def test_brokers_of_a_lost_server_are_removed_with_it() -> None:
    fleet = a_fleet(5)
    log = Log(FoldSettings(server_lost_ms=60_000))
    for registration in fleet:
        log.register(registration, S2)

    rows = log.pass_time(60_000, S1)

    assert ends(rows) == [(r.broker_addr, "server_lost") for r in fleet]


# ---- operators ----


def test_release_removes_expired_brokers_at_once() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    pass_time(log, TIMEOUT_MS + 1)

    rows = log.say(GuardReleased(S1, CLUSTER, "ada"))

    assert {(r.cause, r.detail) for r in of_kind(rows, ChangeKind.GUARD)} == {("guard_released", "by ada")}
    assert ends(rows) == [(r.broker_addr, "expired") for r in fleet]
    assert log.alive() == held(log) == set()


def test_release_removes_closed_brokers_at_once() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    close_all(log, fleet)

    rows = log.say(GuardReleased(S1, CLUSTER, "ada"))

    assert ends(rows) == [(r.broker_addr, "disconnected") for r in fleet]


def test_those_not_due_yet_expire_at_their_own_time_after_a_release() -> None:
    fleet = a_fleet(10)
    log = a_log(fleet)
    pass_time(log, 4_000)
    for registration in fleet[4:]:
        log.beat(registration)
    pass_time(log, TIMEOUT_MS - 4_000 + 1)
    assert held(log) == addrs(fleet)

    log.say(GuardReleased(S1, CLUSTER, "ada"))
    assert log.alive() == addrs(fleet[4:])
    pass_time(log, 3_999)
    assert log.alive() == addrs(fleet[4:])
    log.tick(1)

    assert log.alive() == held(log) == set()


def test_a_broker_with_a_heartbeat_after_a_release_is_guarded_again() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    pass_time(log, 4_000)
    for registration in fleet[1:]:
        log.beat(registration)
    pass_time(log, TIMEOUT_MS - 4_000 + 1)
    log.say(GuardReleased(S1, CLUSTER, "ada"))
    for registration in fleet:
        log.register(registration)

    pass_time(log, TIMEOUT_MS + 1)

    assert held(log) == addrs(fleet)


def test_release_without_held_brokers_writes_a_row() -> None:
    rows = a_log(a_fleet(5)).say(GuardReleased(S1, CLUSTER, "ada"))

    assert [(r.kind, r.cause, r.cluster, r.detail) for r in rows] == [
        ("ignored", "guard_released", CLUSTER, "by ada: no broker of c0 is held")
    ]


def test_guard_can_be_disabled_for_a_cluster() -> None:
    left, guarded = a_fleet(5, "c1"), a_fleet(5, "c2")
    log = a_log([*left, *guarded], FoldSettings(guard_off_clusters=("c1",)))

    pass_time(log, TIMEOUT_MS + 1)

    assert log.alive() == held(log) == addrs(guarded)


@pytest.mark.parametrize("change", [{"guard_off_clusters": (CLUSTER,)}, {"guard_share_percent": 100}])
def test_disabled_guard_releases_all_brokers(change: dict[str, SettingValue]) -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    close_all(log, fleet)

    rows = log.say(SettingsChanged(S1, "ada", tuple(change.items())))

    assert ends(rows) == [(r.broker_addr, "disconnected") for r in fleet]
    assert {(r.cause, r.detail) for r in of_kind(rows, ChangeKind.GUARD)} == {("settings_changed", "by ada")}


# ---- restarts ----


@pytest.mark.parametrize("closed", [4, 5], ids=["before they are too many", "held"])
def test_a_restart_changes_nothing(closed: int) -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    close_all(log, fleet[:closed])
    restarted = Log()
    restarted.state, restarted.groups = decode_state(encode_state(log.state)), GroupDict(dict(log.groups.groups))
    restarted.records, restarted.now_ms = list(log.records), log.now_ms
    assert encode_state(restarted.state) == encode_state(log.state)

    for say in (
        lambda one: close_all(one, fleet[closed:]),
        lambda one: pass_time(one, 25_000),
        lambda one: one.beat(fleet[0]),
        lambda one: pass_time(one, 31_000),
    ):
        assert say(restarted) == say(log)
    assert log.alive() == set()


def test_a_state_made_from_the_tables_alone_holds_what_they_say_from_age_zero() -> None:
    fleet = a_fleet(5)
    log = a_log(fleet)
    close_all(log, fleet)
    table = RouteTable()
    apply(table, log.output.changes)

    log.state = rebuilt_state(0, 1, len(log.records), log.now_ms, table)

    assert held(log) == addrs(fleet)
    log.tick(1)
    assert [(r.kind, r.cause) for r in log.beat(fleet[0])] == [("guard", Cause.HEARD)]
    pass_time(log, 3 * TIMEOUT_MS)
    assert log.alive() == addrs(fleet)
    log.tick(1)
    assert log.alive() == set()
