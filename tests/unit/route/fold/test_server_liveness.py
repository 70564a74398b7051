"""Liveness with several servers: holders, silent and lost servers, restarts, and direct publishers."""

from collections.abc import Callable

import pytest

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from tests.support.builders import (
    DIRECT_ORIGIN,
    JOB_ORIGIN,
    S1,
    S2,
    Log,
    a_key,
    a_registration,
    a_server,
    of_kind,
)
from tests.support.fold_scenarios import (
    ADDR,
    TIMEOUT_MS,
    a_liveness_log,
    broker,
    hold_at_both,
    removal_causes,
)

# ---- two servers ----


def test_a_broker_with_two_holders_is_alive_while_one_hears_it() -> None:
    log = hold_at_both(a_liveness_log())
    for _ in range(8):
        log.pass_time(5_000, S1, S2)
        log.beat(broker, S2)

    assert ADDR in log.alive()
    assert set(log.group().live_brokers[a_key()].holders) == {"s2"}


def test_a_holder_that_expires_while_another_remains_writes_its_own_row() -> None:
    log = hold_at_both(a_liveness_log())
    log.pass_time(5_000, S1, S2)
    log.beat(broker, S2)

    rows = log.pass_time(5_001, S1)

    assert [(r.kind, r.gone, r.cause, r.server_id) for r in rows] == [("holder", True, "expired", "s1")]


def test_broker_is_removed_with_its_last_holder() -> None:
    log = hold_at_both(a_liveness_log())

    assert removal_causes(log.disconnect(broker, S1)) == []
    assert removal_causes(log.disconnect(broker, S2)) == [Cause.DISCONNECTED]
    assert log.alive() == set()


def test_each_server_ages_by_its_own_clock() -> None:
    log = hold_at_both(a_liveness_log())

    log.pass_time(TIMEOUT_MS + 1, S1)
    assert set(log.group().live_brokers[a_key()].holders) == {"s2"}
    log.pass_time(TIMEOUT_MS + 1, S2)

    assert log.alive() == set()


def test_a_shorter_timeout_received_by_one_server_applies_at_the_other_too() -> None:
    log = hold_at_both(a_liveness_log())
    log.pass_time(3_000, S1, S2)

    log.register(a_registration(timeout_ms=3_000), S1)
    rows = log.tick(1, S2)

    assert [(r.kind, r.gone, r.cause, r.server_id) for r in rows] == [("holder", True, "expired", "s2")]


# ---- silent and lost servers ----


@pytest.mark.parametrize(("quiet_ms", "silent"), [(14_999, False), (15_000, True)])
def test_a_server_is_silent_when_it_has_written_no_record_for_15_seconds(quiet_ms: int, silent: bool) -> None:
    log = a_liveness_log()
    log.tick(server=S2)

    rows = log.pass_time(quiet_ms)

    assert [(r.server_id, r.cause) for r in rows] == [("s2", "server_silent")] * silent


def test_silence_is_measured_in_observed_time() -> None:
    log = a_liveness_log()
    log.tick(server=S2)
    log.tick(server=S1)

    for _ in range(7):
        assert log.tick(3_600_000) == []
    assert [r.cause for r in log.tick(1_000)] == [Cause.SERVER_SILENT]


def test_silent_server_that_writes_again_is_no_longer_silent() -> None:
    log = a_liveness_log()
    log.tick(server=S2)
    log.pass_time(20_000)

    assert [(r.server_id, r.cause, r.value) for r in log.tick(server=S2)] == [("s2", "server_heard", "talking")]


def test_ticks_of_the_job_do_not_make_a_server_silent() -> None:
    log = a_liveness_log()
    log.register(broker)

    log.pass_time(120_000, JOB_ORIGIN)

    assert ADDR in log.alive()
    assert not log.state.servers["s1"].silent


def test_a_silent_server_does_not_keep_a_broker_that_another_server_heard_later() -> None:
    log = hold_at_both(a_liveness_log())
    log.beat(broker, S1, after_ms=500)
    for _ in range(6):
        log.beat(broker, S1, after_ms=2_000)
        log.tick(1_000)

    rows = log.disconnect(broker, S1)

    assert removal_causes(rows) == [Cause.DISCONNECTED]
    assert log.alive() == set()


def test_a_silent_server_that_heard_a_broker_last_keeps_it() -> None:
    log = hold_at_both(a_liveness_log())
    log.beat(broker, S2, after_ms=500)
    log.tick()
    log.pass_time(9_000, S1)

    log.disconnect(broker, S1)
    log.pass_time(30_000, S1)

    assert log.state.servers["s2"].silent
    assert ADDR in log.alive()


def test_a_broker_is_removed_when_its_holder_falls_silent_after_a_later_end_at_another_server() -> None:
    log = hold_at_both(a_liveness_log())
    log.beat(broker, S1, after_ms=500)
    log.tick(server=S2)
    log.disconnect(broker, S1)
    assert ADDR in log.alive()

    rows = log.pass_time(15_500, S1)

    assert removal_causes(rows) == [Cause.SERVER_SILENT]
    assert log.alive() == set()


@pytest.mark.parametrize(("quiet_ms", "alive"), [(59_999, True), (60_000, False)])
def test_broker_heard_only_by_a_lost_server_is_removed(quiet_ms: int, alive: bool) -> None:
    log = a_liveness_log()
    log.register(broker, S2)

    rows = log.pass_time(quiet_ms, S1)

    assert (ADDR in log.alive()) is alive
    assert removal_causes(rows) == [Cause.SERVER_LOST] * (not alive)


def test_a_lost_server_stops_being_holder_once_and_other_holders_stay() -> None:
    log = hold_at_both(a_liveness_log())
    for _ in range(12):
        log.pass_time(5_000, S1)
        log.beat(broker, S1)

    assert [h.cause for h in of_kind(log.output.changes, ChangeKind.HOLDER) if h.gone] == [Cause.SERVER_LOST]
    assert set(log.group().live_brokers[a_key()].holders) == {"s1"}


def test_silent_server_keeps_brokers_that_a_lost_server_also_held() -> None:
    """A server that restarts for half a minute must not lose brokers of which a dead server was a holder too."""
    s3 = a_server("s3")
    log = hold_at_both(a_liveness_log())
    for _ in range(8):
        log.pass_time(5_000, S1, s3)
        log.beat(broker, S1)
    log.pass_time(25_000, s3)

    assert log.state.servers["s2"].lost
    assert log.state.servers["s1"].silent
    assert ADDR in log.alive()


def test_silent_server_does_not_keep_a_broker_that_one_of_two_former_holders_heard_later() -> None:
    log = a_liveness_log()
    s3 = a_server("s3")
    patient = a_registration(timeout_ms=60_000)
    for server in (S1, S2, s3):
        log.register(patient, server)
    log.beat(patient, s3, after_ms=500)
    log.beat(patient, S1, after_ms=500)
    log.pass_time(20_000, S1, S2)
    assert log.state.servers["s3"].silent

    assert removal_causes(log.disconnect(patient, S1)) == []
    assert removal_causes(log.disconnect(patient, S2)) == [Cause.DISCONNECTED]
    assert log.alive() == set()


@pytest.mark.parametrize(
    ("heard_ms", "alive"),
    [({"s1": 2, "s2": 0, "s3": 1}, False), ({"s1": 0, "s2": 1, "s3": 2}, True), ({"s1": 1, "s2": 0, "s3": 1}, False)],
)
def test_silent_server_keeps_a_broker_that_it_heard_later_than_all_former_holders(
    heard_ms: dict[str, int], alive: bool
) -> None:
    log = a_liveness_log()
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


def test_a_returned_server_becomes_holder_again_with_the_next_registration_and_not_before() -> None:
    log = a_liveness_log()
    log.register(broker, S2)
    log.pass_time(60_000, S1)

    log.beat(broker, S2)
    assert log.alive() == set()
    log.heard(broker, S2)

    assert ADDR in log.alive()


# ---- servers that start, resume and stop ----


def test_a_server_that_loses_records_again_and_again_does_not_keep_a_silent_broker() -> None:
    """It logs itself which brokers it heard meanwhile."""
    log = a_liveness_log()
    log.register(broker)
    for _ in range(2):
        log.pass_time(TIMEOUT_MS // 2)
        log.resumed(S1)
    assert ADDR in log.alive()
    log.tick(1)
    assert ADDR not in log.alive()


def test_the_record_with_which_a_server_resumes_does_not_expire_brokers() -> None:
    """The server lost records, which may have contained heartbeats of the broker."""
    log = a_liveness_log()
    log.register(broker)
    log.pass_time(9_500)

    rows = log.resumed(S1, after_ms=180_000)

    assert removal_causes(rows) == []
    assert ADDR in log.alive()


@pytest.mark.parametrize("came_back", [Log.started, Log.resumed])
def test_the_time_before_a_server_starts_again_or_resumes_is_not_observed_time(
    came_back: Callable[..., list[RouteChange]],
) -> None:
    log = Log()
    log.register(a_registration())
    log.pass_time(119_900)
    # Otherwise the next event would expire a broker whose own heartbeat is the event after it.
    came_back(log, S1, after_ms=30_000)
    log.register(a_registration("10.0.0.9:1", broker_name="other"))
    assert log.heard(a_registration()) == []


def test_a_started_server_keeps_the_ages_and_writes_a_row_with_its_epoch() -> None:
    log = a_liveness_log()
    log.register(broker)
    log.pass_time(9_500)

    rows = log.started(a_server("s1", epoch=2))
    assert [(r.kind, r.server_id, r.server_epoch, r.cause) for r in rows] == [("server", "s1", 2, "server_started")]

    log.tick(501, a_server("s1", epoch=2))
    assert log.alive() == set()


def test_a_stopped_server_does_not_remove_its_brokers() -> None:
    log = a_liveness_log()
    log.register(broker)

    rows = log.stopped(S1)

    assert [(r.kind, r.cause, r.value) for r in rows] == [("server", "server_stopped", "stopped")]
    assert ADDR in log.alive()


# ---- direct publishers ----


def test_brokers_of_direct_publishers_age_only_by_ticks_of_the_job() -> None:
    log = a_liveness_log()
    log.register(broker, DIRECT_ORIGIN)

    log.pass_time(TIMEOUT_MS, JOB_ORIGIN)
    assert ADDR in log.alive()
    log.tick(1, JOB_ORIGIN)
    assert ADDR not in log.alive()


def test_a_broker_of_a_direct_publisher_heard_between_two_ticks_does_not_expire_early() -> None:
    log = a_liveness_log()
    log.tick(0, JOB_ORIGIN)
    log.register(broker, DIRECT_ORIGIN, after_ms=400)

    log.tick(100, JOB_ORIGIN)
    log.pass_time(TIMEOUT_MS - 100, JOB_ORIGIN)
    assert ADDR in log.alive()
    log.tick(1, JOB_ORIGIN)
    assert ADDR not in log.alive()


def test_a_broker_of_a_direct_publisher_heard_without_ticks_ages_from_the_next_tick() -> None:
    log = a_liveness_log()
    log.tick(0, JOB_ORIGIN)
    log.pass_time(60_000, S1)
    log.register(broker, DIRECT_ORIGIN)

    log.tick(700, JOB_ORIGIN)
    log.pass_time(TIMEOUT_MS, JOB_ORIGIN)
    assert ADDR in log.alive()
    log.tick(1, JOB_ORIGIN)
    assert ADDR not in log.alive()


def test_ticks_of_servers_do_not_age_brokers_of_direct_publishers() -> None:
    log = a_liveness_log()
    log.register(broker, DIRECT_ORIGIN)

    log.pass_time(60_000, S1)

    assert ADDR in log.alive()


def test_records_of_direct_publishers_do_not_age_brokers() -> None:
    log = a_liveness_log()
    log.register(broker, DIRECT_ORIGIN)
    log.register(a_registration("10.0.0.2:10911", 1, timeout_ms=TIMEOUT_MS), S1)

    for _ in range(30):
        log.heard(a_registration("10.0.0.3:10911", 2), DIRECT_ORIGIN, after_ms=2_000)

    assert log.alive() == {ADDR, "10.0.0.2:10911"}


def test_ticks_of_the_job_do_not_advance_the_observed_time_of_servers_or_of_the_partition() -> None:
    log = a_liveness_log()
    log.register(broker, S1)
    observed_ms = log.state.observed_ms

    log.pass_time(60_000, JOB_ORIGIN)

    assert log.state.observed_ms == observed_ms
    assert ADDR in log.alive()
