import orjson
import pytest

from namesrv_stream.route.events import JOB, Origin
from namesrv_stream.route.fold.state import decode_state, encode_state
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.table_errors import StateFromNewerVersion
from tests.support.builders import DIRECT_ORIGIN, S1, S2, Log, a_registration


def a_log() -> Log:
    log = Log(FoldSettings(default_timeout_ms=9_000, server_silent_ms=3_000))
    log.register(a_registration())
    log.heard(a_registration(), S2)
    log.register(a_registration("10.0.0.2:1", 1, timeout_ms=2_000), S2)
    log.register(a_registration("10.0.0.3:1", 2), DIRECT_ORIGIN)
    log.register(a_registration("10.0.0.4:1", 3, timeout_ms=1_000))
    log.pass_time(4_000, S1)
    log.disconnect(a_registration(), S2)
    return log


def test_a_state_is_read_as_it_was_written() -> None:
    stored = encode_state(a_log().state)
    state = decode_state(stored)

    assert encode_state(state) == stored
    assert (state.servers, state.settings, state.gone) == (
        a_log().state.servers,
        a_log().state.settings,
        a_log().state.gone,
    )
    assert {len(lease.holders) for lease in state.leases.values()} == {1}
    assert state.gone


def test_a_state_of_another_version_is_refused() -> None:
    fields = orjson.loads(encode_state(a_log().state)) | {"state_version": 99}

    with pytest.raises(StateFromNewerVersion, match="99"):
        decode_state(orjson.dumps(fields))


def test_leases_are_found_by_broker_name() -> None:
    state = decode_state(encode_state(a_log().state))

    assert len(list(state.leases_of("broker-a"))) == len(state.leases)
    assert list(state.leases_of("nobody")) == []


def test_order_of_brokers_due_at_one_record_survives_a_restart() -> None:
    """The queue of a running fold is lazy, that of a restarted one is exact; the rows must be equal."""
    log = Log()
    early, late = a_registration("10.0.0.9:1", 0, timeout_ms=3_000), a_registration("10.0.0.8:1", 1, timeout_ms=2_900)
    log.register(early)
    log.register(late)
    log.beat(late, after_ms=1_000)
    restarted = Log()
    restarted.state, restarted.groups = decode_state(encode_state(log.state)), log.groups
    restarted.groups = type(log.groups)(dict(log.groups.groups))
    restarted.records, restarted.now_ms = list(log.records), log.now_ms

    for step_ms in (1_000, 1_000, 2_000):
        assert restarted.tick(step_ms) == log.tick(step_ms)
    assert log.alive() == set()


def test_a_broker_of_a_direct_publisher_needs_ticks_of_the_job_until_it_is_removed() -> None:
    log = Log()
    registration = a_registration()
    log.register(registration, S1)
    assert not log.state.has_direct
    log.register(registration, DIRECT_ORIGIN)
    assert log.state.has_direct
    log.unregister(registration, DIRECT_ORIGIN)
    assert not log.state.has_direct


def test_a_close_reported_by_a_direct_publisher_is_kept_until_it_is_old() -> None:
    log = Log()
    registrations = [a_registration(f"10.0.0.{n}:10911", n) for n in range(1, 8)]
    for registration in registrations:
        log.register(registration, DIRECT_ORIGIN)
    log.disconnect(registrations[0], DIRECT_ORIGIN)
    for registration in registrations[1:]:
        log.unregister(registration, DIRECT_ORIGIN)
    assert log.state.has_direct
    log.pass_time(10_000, Origin(JOB, 1))
    assert not log.state.has_direct
