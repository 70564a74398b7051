"""Expiry of brokers with one holder: the timeout, observed time, and settings of the timeout."""

from collections.abc import Callable

import pytest

from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.liveness_settings import FoldSettings
from tests.support.builders import (
    S1,
    S2,
    Log,
    a_key,
    a_registration,
    of_kind,
)
from tests.support.fold_scenarios import (
    ADDR,
    SETTINGS,
    TIMEOUT_MS,
    a_liveness_log,
    broker,
    hold_at_both,
    removal_causes,
)

# ---- the timeout ----


@pytest.mark.parametrize(("age_ms", "alive"), [(TIMEOUT_MS - 1, True), (TIMEOUT_MS, True), (TIMEOUT_MS + 1, False)])
def test_a_broker_is_alive_at_exactly_its_timeout_and_not_after_it(age_ms: int, alive: bool) -> None:
    log = a_liveness_log()
    log.register(broker)

    log.pass_time(age_ms)

    assert (ADDR in log.alive()) is alive


def test_expiry_writes_all_removed_keys_with_cause_and_figures() -> None:
    log = a_liveness_log()
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
    log = a_liveness_log()
    log.register(broker)
    log.pass_time(TIMEOUT_MS)
    hear(log, broker)

    log.pass_time(TIMEOUT_MS)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_heartbeat_after_the_tick_that_expired_the_broker_restores_nothing() -> None:
    log = a_liveness_log()
    log.register(broker)
    log.pass_time(TIMEOUT_MS)
    assert removal_causes(log.tick(1)) == [Cause.EXPIRED]
    assert log.beat(broker) == []
    assert log.alive() == set()


def test_late_heartbeat_before_the_expiring_tick_keeps_the_broker() -> None:
    log = a_liveness_log()
    log.register(broker)
    log.pass_time(TIMEOUT_MS)
    assert log.beat(broker, after_ms=2_000) == []
    assert log.tick() == []


def test_brokers_due_at_once_expire_by_deadline() -> None:
    log = a_liveness_log()
    late, early = a_registration("10.0.0.8:1", 1, timeout_ms=3_000), a_registration("10.0.0.9:1", 0, timeout_ms=2_500)
    for registration in (late, early):
        log.register(registration)

    log.pass_time(2_400)
    rows = log.tick(1_000)

    assert [r.broker_addr for r in of_kind(rows, ChangeKind.BROKER_LIVE)] == ["10.0.0.9:1", "10.0.0.8:1"]


# ---- observed time ----


def test_a_gap_counts_as_at_most_max_gap() -> None:
    log = a_liveness_log()
    log.register(broker)

    for _ in range(5):
        log.tick(3_600_000)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_a_suspended_kafka_does_not_age_brokers() -> None:
    log = a_liveness_log()
    log.register(broker)
    log.pass_time(TIMEOUT_MS - 2_000)

    log.tick(after_ms=3 * 60_000)

    assert ADDR in log.alive()


def test_a_time_step_back_adds_no_age_and_the_next_step_counts_from_the_earlier_time_stamp() -> None:
    log = a_liveness_log()
    log.register(broker)
    log.tick(-300_000)

    log.pass_time(TIMEOUT_MS)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_at_ms_of_rows_never_decreases() -> None:
    log = a_liveness_log()
    log.register(broker)
    highest_ms = log.now_ms

    rows = log.register(a_registration("10.0.0.2:10911", 1), after_ms=-5_000)

    assert {row.at_ms for row in rows} == {highest_ms}


def test_jumping_timestamps_age_brokers_by_forward_steps_only() -> None:
    log = a_liveness_log()
    log.register(broker)

    for _ in range(10):
        log.tick(1_000)
        log.tick(-300_000)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_a_dead_server_does_not_age_its_brokers() -> None:
    log = a_liveness_log()
    log.register(broker)

    log.pass_time(SETTINGS.server_lost_ms - 1, S2)

    assert ADDR in log.alive()


def test_a_record_of_another_server_does_not_age_a_broker() -> None:
    log = a_liveness_log()
    log.register(broker)
    log.pass_time(TIMEOUT_MS - 1_000)

    log.pass_time(10_000, S2)

    assert ADDR in log.alive()


def test_the_first_record_of_a_server_starts_its_clock() -> None:
    log = a_liveness_log()
    log.tick(server=S2)
    log.register(broker, after_ms=2_000)

    assert log.state.servers["s1"].observed_ms == 0


def test_heartbeats_of_other_brokers_advance_the_observed_time_as_ticks_do() -> None:
    log = a_liveness_log()
    other = a_registration("10.0.0.9:10911", 1)
    log.register(broker)
    log.register(other)

    for _ in range(10):
        log.beat(other, after_ms=1_000)
    log.beat(other, after_ms=1)
    assert ADDR in log.alive()
    log.tick(0)
    assert ADDR not in log.alive()


# ---- settings of the timeout ----


@pytest.mark.parametrize(
    ("asked_ms", "timeout_ms"),
    [(None, 120_000), (0, 1_000), (-5, 1_000), (999, 1_000), (5_000, 5_000), (2**62, 3_600_000)],
)
def test_timeout_of_a_broker_is_limited_by_minimum_and_maximum(asked_ms: int | None, timeout_ms: int) -> None:
    log = a_liveness_log()
    log.register(a_registration(timeout_ms=asked_ms))

    log.pass_time(timeout_ms, step_ms=2_000)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_a_shorter_timeout_in_a_registration_takes_effect_at_once() -> None:
    log = a_liveness_log()
    log.register(broker)
    log.register(a_registration(timeout_ms=2_000))

    log.pass_time(2_001)

    assert log.alive() == set()


def test_a_longer_timeout_in_a_registration_takes_effect_at_once() -> None:
    log = a_liveness_log()
    log.register(a_registration(timeout_ms=2_000))
    log.register(broker)

    log.pass_time(TIMEOUT_MS)

    assert ADDR in log.alive()


@pytest.mark.parametrize(("default_ms", "alive"), [(8_000, False), (12_000, True)])
def test_a_changed_default_timeout_takes_effect_with_the_next_record(default_ms: int, alive: bool) -> None:
    log = a_liveness_log(FoldSettings(default_timeout_ms=TIMEOUT_MS))
    log.register(a_registration())
    log.pass_time(9_000)

    log.change_settings(default_timeout_ms=default_ms)
    assert ADDR in log.alive()
    log.tick(1_500)

    assert (ADDR in log.alive()) is alive


def test_changed_default_does_not_affect_brokers_with_their_own_timeout() -> None:
    log = a_liveness_log()
    log.register(broker)
    log.change_settings(default_timeout_ms=2_000)

    log.pass_time(TIMEOUT_MS)

    assert ADDR in log.alive()


def test_changed_minimum_applies_to_brokers_with_a_shorter_timeout() -> None:
    log = a_liveness_log()
    log.register(a_registration(timeout_ms=2_000))
    log.change_settings(min_timeout_ms=5_000)

    log.pass_time(5_000)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


# ---- age is a sum of limited steps ----


@pytest.mark.parametrize(
    ("steps_ms", "alive"),
    [
        ((2_000,) * 5, True),
        ((2_000,) * 5 + (1,), False),
        ((2_001,) * 5, True),  # each counts as 2,000
        ((2_001,) * 5 + (1,), False),
        ((86_400_000,) * 5, True),
        ((86_400_000,) * 5 + (0,), True),
        (
            (-86_400_000, 86_400_000) * 5,
            True,
        ),  # each step back counts as 0, each step forward as 2,000
        ((-86_400_000, 86_400_000) * 5 + (-1,), True),
        ((-86_400_000, 86_400_000) * 5 + (1,), False),
        ((10_000, -10_000, 0, 500) * 4, True),  # every four steps count as 2,000 and 500
        ((10_000, -10_000, 0, 500) * 4 + (1,), False),
    ],
)
def test_age_is_the_sum_of_the_limited_forward_steps(steps_ms: tuple[int, ...], alive: bool) -> None:
    log = a_liveness_log()
    log.register(broker)

    for step_ms in steps_ms:
        log.tick(step_ms)

    assert (ADDR in log.alive()) is alive


def test_server_with_rare_records_ages_its_brokers_slowly() -> None:
    log = hold_at_both(a_liveness_log())

    for _ in range(5):
        log.pass_time(4_000, S1)
        log.tick(0, S2)
    assert set(log.group().live_brokers[a_key()].holders) == {"s2"}
    log.tick(1, S2)

    assert log.alive() == set()
