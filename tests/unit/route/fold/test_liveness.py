"""Observed clocks and how brokers end: tables of boundary cases."""

from collections.abc import Callable

import pytest

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import DataVersion, Holder
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from tests.support.builders import (
    DIRECT_ORIGIN,
    JOB_ORIGIN,
    NAME,
    S1,
    S2,
    Log,
    a_key,
    a_registration,
    a_server,
    of_kind,
)

#: Timeout of the brokers here, ms; a tick comes each 500 ms and a record counts for 2,000 ms at most.
TIMEOUT_MS = 10_000
ADDR = "10.0.0.1:10911"
SETTINGS = FoldSettings(server_silent_ms=15_000, server_lost_ms=60_000)

broker = a_registration(timeout_ms=TIMEOUT_MS)


def a_log(settings: FoldSettings = SETTINGS) -> Log:
    return Log(settings)


def causes(rows: list[RouteChange], kind: ChangeKind = ChangeKind.BROKER_LIVE) -> list[str]:
    return [row.cause for row in of_kind(rows, kind) if row.gone]


# ---- the boundary ----


@pytest.mark.parametrize(("age_ms", "alive"), [(TIMEOUT_MS - 1, True), (TIMEOUT_MS, True), (TIMEOUT_MS + 1, False)])
def test_a_broker_lives_at_exactly_its_timeout_and_not_after(age_ms: int, alive: bool) -> None:
    log = a_log()
    log.register(broker)

    log.pass_time(age_ms)

    assert (ADDR in log.alive()) is alive


def test_expiry_writes_all_removed_keys_with_cause_and_figures() -> None:
    log = a_log()
    log.register(broker)

    rows = log.pass_time(TIMEOUT_MS + 1)

    assert [(r.kind, r.gone, r.cause) for r in rows] == [
        (kind, True, "expired") for kind in ("broker_data", "broker_live", "holder", "queue_data", "queue_data")
    ]
    assert [r.seq for r in rows] == [0, 1, 2, 3, 4]
    assert rows[0].detail == "not heard for 10001 ms of observed time at s1, timeout 10000 ms"
    assert rows[0].at_ms == log.now_ms


@pytest.mark.parametrize("hear", [Log.heard, Log.beat], ids=["registration", "heartbeat"])
def test_heartbeat_resets_the_age(hear: Callable[..., object]) -> None:
    log = a_log()
    log.register(broker)
    log.pass_time(TIMEOUT_MS)
    hear(log, broker)

    log.pass_time(TIMEOUT_MS)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_heartbeat_after_the_tick_that_expired_the_broker_restores_nothing() -> None:
    log = a_log()
    log.register(broker)
    log.pass_time(TIMEOUT_MS)
    assert causes(log.tick(1)) == [Cause.EXPIRED]
    assert log.beat(broker) == []
    assert log.alive() == set()


def test_late_heartbeat_before_the_expiring_tick_keeps_the_broker() -> None:
    log = a_log()
    log.register(broker)
    log.pass_time(TIMEOUT_MS)
    assert log.beat(broker, after_ms=2_000) == []
    assert log.tick() == []


def test_brokers_due_at_once_expire_by_deadline() -> None:
    log = a_log()
    late, early = a_registration("10.0.0.8:1", 1, timeout_ms=3_000), a_registration("10.0.0.9:1", 0, timeout_ms=2_500)
    for registration in (late, early):
        log.register(registration)

    log.pass_time(2_400)
    rows = log.tick(1_000)

    assert [r.broker_addr for r in of_kind(rows, ChangeKind.BROKER_LIVE)] == ["10.0.0.9:1", "10.0.0.8:1"]


# ---- the clock ----


def test_a_gap_counts_for_max_gap_at_most() -> None:
    log = a_log()
    log.register(broker)

    for _ in range(5):
        log.tick(3_600_000)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_a_frozen_kafka_ages_no_broker() -> None:
    log = a_log()
    log.register(broker)
    log.pass_time(TIMEOUT_MS - 2_000)

    log.tick(after_ms=3 * 60_000)

    assert ADDR in log.alive()


def test_a_stamp_that_goes_back_moves_no_clock_and_is_the_next_base() -> None:
    log = a_log()
    log.register(broker)
    log.tick(-300_000)

    log.pass_time(TIMEOUT_MS)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_at_ms_of_a_row_never_goes_back() -> None:
    log = a_log()
    log.register(broker)
    highest_ms = log.now_ms

    rows = log.register(a_registration("10.0.0.2:10911", 1), after_ms=-5_000)

    assert {row.at_ms for row in rows} == {highest_ms}


def test_jumping_timestamps_age_brokers_by_forward_steps_only() -> None:
    log = a_log()
    log.register(broker)

    for _ in range(10):
        log.tick(1_000)
        log.tick(-300_000)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_a_dead_server_never_ages_its_brokers() -> None:
    log = a_log()
    log.register(broker)

    log.pass_time(SETTINGS.server_lost_ms - 1, S2)

    assert ADDR in log.alive()


def test_a_record_of_another_server_does_not_age_a_broker() -> None:
    log = a_log()
    log.register(broker)
    log.pass_time(TIMEOUT_MS - 1_000)

    log.pass_time(10_000, S2)

    assert ADDR in log.alive()


def test_the_first_record_of_a_server_begins_its_clock() -> None:
    log = a_log()
    log.tick(server=S2)
    log.register(broker, after_ms=2_000)

    assert log.state.servers["s1"].observed_ms == 0


def test_heartbeats_of_others_move_the_clock_as_ticks_do() -> None:
    log = a_log()
    other = a_registration("10.0.0.9:10911", 1)
    log.register(broker)
    log.register(other)

    for _ in range(10):
        log.beat(other, after_ms=1_000)
    log.beat(other, after_ms=1)
    assert ADDR in log.alive()
    log.tick(0)
    assert ADDR not in log.alive()


# ---- timeouts ----


@pytest.mark.parametrize(
    ("asked_ms", "timeout_ms"),
    [(None, 120_000), (0, 1_000), (-5, 1_000), (999, 1_000), (5_000, 5_000), (2**62, 3_600_000)],
)
def test_timeout_of_a_broker_is_limited_by_minimum_and_maximum(asked_ms: int | None, timeout_ms: int) -> None:
    log = a_log()
    log.register(a_registration(timeout_ms=asked_ms))

    log.pass_time(timeout_ms, step_ms=2_000)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_a_registration_with_a_shorter_timeout_counts_at_once() -> None:
    log = a_log()
    log.register(broker)
    log.register(a_registration(timeout_ms=2_000))

    log.pass_time(2_001)

    assert log.alive() == set()


def test_a_registration_with_a_longer_timeout_counts_at_once() -> None:
    log = a_log()
    log.register(a_registration(timeout_ms=2_000))
    log.register(broker)

    log.pass_time(TIMEOUT_MS)

    assert ADDR in log.alive()


@pytest.mark.parametrize(("default_ms", "alive"), [(8_000, False), (12_000, True)])
def test_a_changed_default_counts_from_the_next_record(default_ms: int, alive: bool) -> None:
    log = a_log(FoldSettings(default_timeout_ms=TIMEOUT_MS))
    log.register(a_registration())
    log.pass_time(9_000)

    log.change_settings(default_timeout_ms=default_ms)
    assert ADDR in log.alive()
    log.tick(1_500)

    assert (ADDR in log.alive()) is alive


def test_changed_default_does_not_affect_brokers_with_their_own_timeout() -> None:
    log = a_log()
    log.register(broker)
    log.change_settings(default_timeout_ms=2_000)

    log.pass_time(TIMEOUT_MS)

    assert ADDR in log.alive()


def test_changed_minimum_applies_to_brokers_with_a_shorter_timeout() -> None:
    log = a_log()
    log.register(a_registration(timeout_ms=2_000))
    log.change_settings(min_timeout_ms=5_000)

    log.pass_time(5_000)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


# ---- two servers ----


def both(log: Log) -> Log:
    log.register(broker, S1)
    log.register(broker, S2)
    return log


def test_a_broker_held_by_two_servers_lives_while_one_hears_it() -> None:
    log = both(a_log())
    for _ in range(8):
        log.pass_time(5_000, S1, S2)
        log.beat(broker, S2)

    assert ADDR in log.alive()
    assert set(log.group().lives[a_key()].holders) == {"s2"}


def test_expired_hold_beside_another_writes_its_own_row() -> None:
    log = both(a_log())
    log.pass_time(5_000, S1, S2)
    log.beat(broker, S2)

    rows = log.pass_time(5_001, S1)

    assert [(r.kind, r.gone, r.cause, r.server_id) for r in rows] == [("holder", True, "expired", "s1")]


def test_broker_is_removed_with_its_last_holder() -> None:
    log = both(a_log())

    assert causes(log.disconnect(broker, S1)) == []
    assert causes(log.disconnect(broker, S2)) == [Cause.DISCONNECTED]
    assert log.alive() == set()


def test_each_server_ages_by_its_own_clock() -> None:
    log = both(a_log())

    log.pass_time(TIMEOUT_MS + 1, S1)
    assert set(log.group().lives[a_key()].holders) == {"s2"}
    log.pass_time(TIMEOUT_MS + 1, S2)

    assert log.alive() == set()


def test_a_shorter_timeout_heard_at_one_server_counts_at_the_other_too() -> None:
    log = both(a_log())
    log.pass_time(3_000, S1, S2)

    log.register(a_registration(timeout_ms=3_000), S1)
    rows = log.tick(1, S2)

    assert [(r.kind, r.gone, r.cause, r.server_id) for r in rows] == [("holder", True, "expired", "s2")]


# ---- silent and lost servers ----


@pytest.mark.parametrize(("quiet_ms", "silent"), [(14_999, False), (15_000, True)])
def test_a_server_is_silent_after_its_time(quiet_ms: int, silent: bool) -> None:
    log = a_log()
    log.tick(server=S2)

    rows = log.pass_time(quiet_ms)

    assert [(r.server_id, r.cause) for r in rows] == [("s2", "server_silent")] * silent


def test_silence_is_observed_time() -> None:
    log = a_log()
    log.tick(server=S2)
    log.tick(server=S1)

    for _ in range(7):
        assert log.tick(3_600_000) == []
    assert [r.cause for r in log.tick(1_000)] == [Cause.SERVER_SILENT]


def test_silent_server_that_writes_again_is_not_silent() -> None:
    log = a_log()
    log.tick(server=S2)
    log.pass_time(20_000)

    assert [(r.server_id, r.cause, r.value) for r in log.tick(server=S2)] == [("s2", "server_heard", "talking")]


def test_ticks_of_the_job_make_no_server_silent() -> None:
    log = a_log()
    log.register(broker)

    log.pass_time(120_000, JOB_ORIGIN)

    assert ADDR in log.alive()
    assert not log.state.servers["s1"].silent


def test_a_silent_server_cannot_vouch_for_a_broker_heard_later_elsewhere() -> None:
    log = both(a_log())
    log.beat(broker, S1, after_ms=500)
    for _ in range(6):
        log.beat(broker, S1, after_ms=2_000)
        log.tick(1_000)

    rows = log.disconnect(broker, S1)

    assert causes(rows) == [Cause.DISCONNECTED]
    assert log.alive() == set()


def test_a_silent_server_that_heard_a_broker_last_keeps_it() -> None:
    log = both(a_log())
    log.beat(broker, S2, after_ms=500)
    log.tick()
    log.pass_time(9_000, S1)

    log.disconnect(broker, S1)
    log.pass_time(30_000, S1)

    assert log.state.servers["s2"].silent
    assert ADDR in log.alive()


def test_server_that_falls_silent_after_a_later_end_elsewhere_removes_the_broker() -> None:
    log = both(a_log())
    log.beat(broker, S1, after_ms=500)
    log.tick(server=S2)
    log.disconnect(broker, S1)
    assert ADDR in log.alive()

    rows = log.pass_time(15_500, S1)

    assert causes(rows) == [Cause.SERVER_SILENT]
    assert log.alive() == set()


@pytest.mark.parametrize(("quiet_ms", "alive"), [(59_999, True), (60_000, False)])
def test_broker_heard_only_by_a_lost_server_is_removed(quiet_ms: int, alive: bool) -> None:
    log = a_log()
    log.register(broker, S2)

    rows = log.pass_time(quiet_ms, S1)

    assert (ADDR in log.alive()) is alive
    assert causes(rows) == [Cause.SERVER_LOST] * (not alive)


def test_a_lost_server_ends_its_holds_once_and_others_stay() -> None:
    log = both(a_log())
    for _ in range(12):
        log.pass_time(5_000, S1)
        log.beat(broker, S1)

    assert [h.cause for h in of_kind(log.output.changes, ChangeKind.HOLDER) if h.gone] == [Cause.SERVER_LOST]
    assert set(log.group().lives[a_key()].holders) == {"s1"}


def test_a_server_that_is_merely_silent_keeps_what_a_lost_one_held_too() -> None:
    """A server restarting for half a minute must not cost the brokers that a dead server once held as well."""
    s3 = a_server("s3")
    log = both(a_log())
    for _ in range(8):
        log.pass_time(5_000, S1, s3)
        log.beat(broker, S1)
    log.pass_time(25_000, s3)

    assert log.state.servers["s2"].lost
    assert log.state.servers["s1"].silent
    assert ADDR in log.alive()


def test_of_three_servers_a_silent_one_cannot_vouch_when_the_first_of_two_that_saw_the_end_heard_later() -> None:
    log = a_log()
    s3 = a_server("s3")
    patient = a_registration(timeout_ms=60_000)
    for server in (S1, S2, s3):
        log.register(patient, server)
    log.beat(patient, s3, after_ms=500)
    log.beat(patient, S1, after_ms=500)
    log.pass_time(20_000, S1, S2)
    assert log.state.servers["s3"].silent

    assert causes(log.disconnect(patient, S1)) == []
    assert causes(log.disconnect(patient, S2)) == [Cause.DISCONNECTED]
    assert log.alive() == set()


@pytest.mark.parametrize(
    ("heard_ms", "alive"),
    [({"s1": 2, "s2": 0, "s3": 1}, False), ({"s1": 0, "s2": 1, "s3": 2}, True), ({"s1": 1, "s2": 0, "s3": 1}, False)],
)
def test_a_silent_server_vouches_where_it_heard_later_than_all_that_saw_the_end(
    heard_ms: dict[str, int], alive: bool
) -> None:
    log = a_log()
    servers = {server_id: a_server(server_id) for server_id in heard_ms}
    patient = a_registration(timeout_ms=60_000)
    for server in servers.values():
        log.register(patient, server)
    for moment_ms in range(3):
        log.tick(1, S1)
        for server_id in [s for s, at_ms in heard_ms.items() if at_ms == moment_ms]:
            log.beat(patient, servers[server_id])
    log.pass_time(20_000, S1, S2)

    log.disconnect(patient, S1)
    log.disconnect(patient, S2)

    assert bool(log.alive()) is alive


def test_a_lost_server_that_returns_hears_its_brokers_by_their_next_registration() -> None:
    log = a_log()
    log.register(broker, S2)
    log.pass_time(60_000, S1)

    log.beat(broker, S2)
    assert log.alive() == set()
    log.heard(broker, S2)

    assert ADDR in log.alive()


# ---- servers that start, resume and stop ----


def test_a_resumed_server_resets_the_ages_of_what_it_hears() -> None:
    log = a_log()
    log.register(broker)
    log.pass_time(9_000)

    log.resumed(S1)
    log.pass_time(TIMEOUT_MS)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_the_record_by_which_a_server_resumes_expires_no_broker() -> None:
    """It lost records: the broker may have been heard in one of them."""
    log = a_log()
    log.register(broker)
    log.pass_time(9_500)

    rows = log.resumed(S1, after_ms=180_000)

    assert causes(rows) == []
    assert ADDR in log.alive()


@pytest.mark.parametrize("came_back", [Log.started, Log.resumed])
def test_the_time_for_which_a_server_was_away_is_not_observed(came_back: Callable[..., list[RouteChange]]) -> None:
    log = Log()
    log.register(a_registration())
    log.pass_time(119_900)
    # Else the first fact behind it would end a broker whose own fact is the second.
    came_back(log, S1, after_ms=30_000)
    log.register(a_registration("10.0.0.9:1", broker_name="other"))
    assert log.heard(a_registration()) == []


def test_a_resumed_server_leaves_the_ages_of_others() -> None:
    log = a_log()
    log.register(broker, S2)
    log.pass_time(9_500, S1, S2)

    log.resumed(S1)
    log.tick(501, S2)

    assert log.alive() == set()


def test_a_started_server_keeps_ages_and_names_its_epoch() -> None:
    log = a_log()
    log.register(broker)
    log.pass_time(9_500)

    rows = log.started(a_server("s1", epoch=2))
    assert [(r.kind, r.server_id, r.server_epoch, r.cause) for r in rows] == [("server", "s1", 2, "server_started")]

    log.tick(501, a_server("s1", epoch=2))
    assert log.alive() == set()


def test_a_stopped_server_ends_nothing() -> None:
    log = a_log()
    log.register(broker)

    rows = log.stopped(S1)

    assert [(r.kind, r.cause, r.value) for r in rows] == [("server", "server_stopped", "stopped")]
    assert ADDR in log.alive()


# ---- direct producers ----


def test_direct_producers_age_by_ticks_of_the_job_only() -> None:
    log = a_log()
    log.register(broker, DIRECT_ORIGIN)

    log.pass_time(TIMEOUT_MS, JOB_ORIGIN)
    assert ADDR in log.alive()
    log.tick(1, JOB_ORIGIN)
    assert ADDR not in log.alive()


def test_a_direct_producer_heard_between_two_ticks_of_the_job_is_not_expired_early() -> None:
    log = a_log()
    log.tick(0, JOB_ORIGIN)
    log.register(broker, DIRECT_ORIGIN, after_ms=400)

    log.tick(100, JOB_ORIGIN)
    log.pass_time(TIMEOUT_MS - 100, JOB_ORIGIN)
    assert ADDR in log.alive()
    log.tick(1, JOB_ORIGIN)
    assert ADDR not in log.alive()


def test_a_direct_producer_heard_while_the_job_did_not_tick_ages_from_its_next_tick() -> None:
    log = a_log()
    log.tick(0, JOB_ORIGIN)
    log.pass_time(60_000, S1)
    log.register(broker, DIRECT_ORIGIN)

    log.tick(700, JOB_ORIGIN)
    log.pass_time(TIMEOUT_MS, JOB_ORIGIN)
    assert ADDR in log.alive()
    log.tick(1, JOB_ORIGIN)
    assert ADDR not in log.alive()


def test_ticks_of_servers_do_not_age_direct_producers() -> None:
    log = a_log()
    log.register(broker, DIRECT_ORIGIN)

    log.pass_time(60_000, S1)

    assert ADDR in log.alive()


def test_records_of_direct_producers_age_no_broker() -> None:
    log = a_log()
    log.register(broker, DIRECT_ORIGIN)
    log.register(a_registration("10.0.0.2:10911", 1, timeout_ms=TIMEOUT_MS), S1)

    for _ in range(30):
        log.heard(a_registration("10.0.0.3:10911", 2), DIRECT_ORIGIN, after_ms=2_000)

    assert log.alive() == {ADDR, "10.0.0.2:10911"}


def test_ticks_of_the_job_move_no_server_and_not_the_partition() -> None:
    log = a_log()
    log.register(broker, S1)
    observed_ms = log.state.observed_ms

    log.pass_time(60_000, JOB_ORIGIN)

    assert log.state.observed_ms == observed_ms
    assert ADDR in log.alive()


# ---- fencing ----


@pytest.mark.parametrize(
    ("leave", "cause"), [(Log.unregister, Cause.UNREGISTERED), (Log.disconnect, Cause.DISCONNECTED)]
)
def test_leaving_over_a_superseded_connection_is_ignored_with_a_row(
    leave: Callable[..., list[RouteChange]], cause: Cause
) -> None:
    log = a_log()
    log.register(broker, connection=1)
    log.register(broker, connection=2)

    rows = leave(log, broker, connection=1)

    assert [(r.kind, r.cause, r.connection_id, r.server_id) for r in rows] == [("ignored", cause, 1, "s1")]
    assert "connection 1 of epoch 1" in (rows[0].detail or "")
    assert ADDR in log.alive()


@pytest.mark.parametrize("leave", [Log.unregister, Log.disconnect])
def test_leaving_over_the_holding_connection_ends_the_broker(leave: Callable[..., object]) -> None:
    log = a_log()
    log.register(broker, connection=1)
    log.register(broker, connection=2)

    leave(log, broker, connection=2)

    assert log.alive() == set()


@pytest.mark.parametrize("leave", [Log.unregister, Log.disconnect])
def test_leaving_over_a_connection_of_an_earlier_epoch_is_ignored(leave: Callable[..., object]) -> None:
    log = a_log()
    log.register(broker, a_server("s1", 1), connection=7)
    log.register(broker, a_server("s1", 2), connection=1)

    leave(log, broker, a_server("s1", 1), connection=7)

    assert ADDR in log.alive()


def test_an_unregistration_over_a_later_connection_counts_and_its_close_does_not() -> None:
    log = a_log()
    log.register(broker, connection=1)

    log.disconnect(broker, connection=2)
    assert ADDR in log.alive()
    log.unregister(broker, connection=2)

    assert log.alive() == set()


@pytest.mark.parametrize("leave", [Log.unregister, Log.disconnect])
def test_leaving_at_a_server_that_does_not_hold_the_broker_is_ignored(leave: Callable[..., list[RouteChange]]) -> None:
    log = a_log()
    log.register(broker, S1)

    rows = leave(log, broker, S2)

    assert [(r.kind, r.detail) for r in rows] == [("ignored", "not heard at s2")]
    assert ADDR in log.alive()


def test_leaving_of_an_unknown_broker_is_ignored_with_a_row() -> None:
    assert [r.kind for r in a_log().disconnect(broker)] == ["ignored"]


def test_an_unchanged_registration_over_another_connection_replaces_the_holder() -> None:
    log = a_log()
    log.register(broker, connection=1)

    rows = log.heard(broker, connection=2)

    assert [(r.kind, r.gone, r.connection_id) for r in rows] == [("holder", False, 2)]
    log.disconnect(broker, connection=1)
    assert ADDR in log.alive()


def test_an_unknown_hash_over_another_connection_replaces_the_holder_too() -> None:
    log = a_log()
    log.register(broker, connection=1)
    log.heard(broker, connection=2, registration_hash="other")

    log.disconnect(broker, connection=1)

    assert ADDR in log.alive()
    assert log.group(NAME).lives[a_key()].holders == {"s1": Holder(1, 2)}


def test_unknown_hash_of_an_earlier_epoch_counts_as_heartbeat_and_keeps_the_connection() -> None:
    log = a_log()
    log.register(broker, a_server("s1", 2), connection=1)

    rows = log.heard(broker, a_server("s1", 1), connection=9, registration_hash="other")

    assert [(r.kind, r.cause, r.connection_id) for r in rows] == [
        ("ignored", "registered", 9),
        ("registration_wanted", "unknown_hash", None),
    ]
    assert log.group().lives[a_key()].holders == {"s1": Holder(2, 1)}


def test_heartbeat_without_registration_does_not_change_the_connection() -> None:
    log = a_log()
    log.register(broker, connection=5)

    log.beat(broker)

    assert log.group().lives[a_key()].holders == {"s1": Holder(1, 5)}


def test_a_broker_restarted_at_another_address_takes_its_id_and_the_old_close_comes_late() -> None:
    log = a_log()
    moved = a_registration("10.0.0.7:10911", timeout_ms=TIMEOUT_MS)
    log.register(broker, connection=1)
    log.register(moved, connection=2)

    log.disconnect(broker, connection=1)

    assert log.group().broker_addrs == {0: "10.0.0.7:10911"}
    assert log.alive() == {"10.0.0.7:10911"}


def test_a_broker_restarted_under_another_id_is_one_process() -> None:
    log = a_log()
    log.register(broker, connection=1)
    log.register(a_registration(broker_id=1, timeout_ms=TIMEOUT_MS), connection=2)

    log.disconnect(broker, connection=1)

    assert log.group().broker_addrs == {1: ADDR}


def said(rows: list[RouteChange], kind: ChangeKind = ChangeKind.BROKER_DATA) -> list[str | None]:
    return [row.detail for row in of_kind(rows, kind)]


def test_a_registration_says_whose_id_it_took() -> None:
    log = a_log()
    log.register(broker)

    rows = log.register(a_registration("10.0.0.7:10911"), connection=2)

    assert said(rows) == ["brokerId 0 was 10.0.0.1:10911"]


def test_a_registration_says_under_which_id_its_address_was() -> None:
    log = a_log()
    log.register(broker)

    rows = log.register(a_registration(broker_id=1), connection=2)

    assert said(rows) == ["10.0.0.1:10911 was brokerId 0"]


def test_brokers_that_claim_one_address_alternate_and_every_change_writes_a_row() -> None:
    log = a_log()
    master, slave = a_registration(registration_hash="m"), a_registration(broker_id=1, registration_hash="s")
    log.register(master, connection=1)

    turns = [log.register(slave, connection=2), log.register(master, connection=1)]

    assert [said(rows) for rows in turns] == [[f"{ADDR} was brokerId 0"], [f"{ADDR} was brokerId 1"]]
    assert [r.broker_addrs for rows in turns for r in of_kind(rows, ChangeKind.BROKER_DATA)] == [
        ((1, ADDR),),
        ((0, ADDR),),
    ]
    assert log.alive() == {ADDR}


def test_the_close_of_one_that_shares_its_address_leaves_the_other() -> None:
    log = a_log()
    log.register(a_registration(registration_hash="m"), connection=1)
    log.register(a_registration(broker_id=1, registration_hash="s"), connection=2)

    rows = log.disconnect(broker, connection=1)

    assert [(r.kind, r.cause) for r in rows] == [("ignored", "disconnected")]
    assert log.group().broker_addrs == {1: ADDR}


def test_registration_of_an_earlier_epoch_counts_as_heartbeat_and_keeps_the_connection() -> None:
    log = a_log()
    log.register(broker, a_server("s1", 2), connection=1)
    log.pass_time(9_000, a_server("s1", 2))

    rows = log.register(broker, a_server("s1", 1), connection=9)

    assert [(r.kind, r.cause, r.server_epoch, r.connection_id) for r in rows] == [("ignored", "registered", 1, 9)]
    assert "held over 1 of epoch 2" in (rows[0].detail or "")
    log.pass_time(TIMEOUT_MS, a_server("s1", 2))
    assert ADDR in log.alive()
    log.disconnect(broker, a_server("s1", 2), connection=1)
    assert log.alive() == set()


def test_a_hold_that_ends_beside_another_names_the_remaining_holder() -> None:
    log = both(a_log())

    rows = log.disconnect(broker, S1)

    assert [(r.kind, r.gone, r.cause, r.server_id, r.detail) for r in rows] == [
        ("holder", True, "disconnected", "s1", "closed by peer; still held by s2")
    ]


def test_an_older_state_version_of_another_address_is_ignored_with_the_reason() -> None:
    log = a_log()
    log.register(a_registration(data_version=DataVersion(1, 1, 5), timeout_ms=TIMEOUT_MS))

    rows = log.register(a_registration("10.0.0.7:10911", data_version=DataVersion(1, 1, 4)), connection=2)

    assert [(r.kind, r.cause, r.detail) for r in rows] == [
        (
            "ignored",
            "registered",
            "brokerId 0 is held by 10.0.0.1:10911 with a higher stateVersion 5 > 4",
        )
    ]
    assert log.alive() == {ADDR}


@pytest.mark.parametrize("leave", [Log.unregister, Log.disconnect])
def test_ignored_events_change_no_table(leave: Callable[..., list[RouteChange]]) -> None:
    log = both(a_log())
    log.register(broker, connection=2)
    before, after = RouteTable(), RouteTable()
    apply(before, log.output.changes)

    rows = leave(log, broker, connection=1)

    apply(after, log.output.changes)
    assert {row.kind for row in rows} == {ChangeKind.IGNORED}
    assert (before.groups, before.held, before.servers) == (after.groups, after.held, after.servers)


# ---- the clocks of several servers ----


@pytest.mark.parametrize(
    ("steps_ms", "alive"),
    [
        ((2_000,) * 5, True),
        ((2_000,) * 5 + (1,), False),
        ((2_001,) * 5, True),  # each counts as 2,000
        ((2_001,) * 5 + (1,), False),
        ((86_400_000,) * 5, True),
        ((86_400_000,) * 5 + (0,), True),
        ((-86_400_000, 86_400_000) * 5, True),  # back, then forward: 2,000 each time
        ((-86_400_000, 86_400_000) * 5 + (-1,), True),
        ((-86_400_000, 86_400_000) * 5 + (1,), False),
        ((10_000, -10_000, 0, 500) * 4, True),  # 2,000 and 500 each
        ((10_000, -10_000, 0, 500) * 4 + (1,), False),
    ],
)
def test_age_is_the_sum_of_the_limited_forward_steps(steps_ms: tuple[int, ...], alive: bool) -> None:
    log = a_log()
    log.register(broker)

    for step_ms in steps_ms:
        log.tick(step_ms)

    assert (ADDR in log.alive()) is alive


def test_a_server_whose_records_come_rarely_ages_its_brokers_slowly() -> None:
    log = both(a_log())

    for _ in range(5):
        log.pass_time(4_000, S1)
        log.tick(0, S2)
    assert set(log.group().lives[a_key()].holders) == {"s2"}
    log.tick(1, S2)

    assert log.alive() == set()
