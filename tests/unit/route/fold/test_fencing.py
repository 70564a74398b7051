"""Fencing: over which connection a broker can be removed, and which registration takes an address or a brokerId."""

from collections.abc import Callable

import pytest

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.model import DataVersion, Holder
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from tests.support.builders import (
    NAME,
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
    details,
    hold_at_both,
)


@pytest.mark.parametrize(
    ("leave", "cause"), [(Log.unregister, Cause.UNREGISTERED), (Log.disconnect, Cause.DISCONNECTED)]
)
def test_unregistration_or_close_over_a_superseded_connection_is_ignored_with_a_row(
    leave: Callable[..., list[RouteChange]], cause: Cause
) -> None:
    log = a_liveness_log()
    log.register(broker, connection=1)
    log.register(broker, connection=2)

    rows = leave(log, broker, connection=1)

    assert [(r.kind, r.cause, r.connection_id, r.server_id) for r in rows] == [("ignored", cause, 1, "s1")]
    assert "connection 1 of epoch 1" in (rows[0].detail or "")
    assert ADDR in log.alive()


@pytest.mark.parametrize("leave", [Log.unregister, Log.disconnect])
def test_unregistration_or_close_over_the_connection_of_the_holder_removes_the_broker(
    leave: Callable[..., object],
) -> None:
    log = a_liveness_log()
    log.register(broker, connection=1)
    log.register(broker, connection=2)

    leave(log, broker, connection=2)

    assert log.alive() == set()


@pytest.mark.parametrize("leave", [Log.unregister, Log.disconnect])
def test_unregistration_or_close_over_a_connection_of_an_earlier_epoch_is_ignored(leave: Callable[..., object]) -> None:
    log = a_liveness_log()
    log.register(broker, a_server("s1", 1), connection=7)
    log.register(broker, a_server("s1", 2), connection=1)

    leave(log, broker, a_server("s1", 1), connection=7)

    assert ADDR in log.alive()


def test_an_unregistration_over_a_later_connection_counts_but_the_close_of_one_does_not() -> None:
    log = a_liveness_log()
    log.register(broker, connection=1)

    log.disconnect(broker, connection=2)
    assert ADDR in log.alive()
    log.unregister(broker, connection=2)

    assert log.alive() == set()


@pytest.mark.parametrize("leave", [Log.unregister, Log.disconnect])
def test_unregistration_or_close_at_a_server_that_is_not_a_holder_is_ignored(
    leave: Callable[..., list[RouteChange]],
) -> None:
    log = a_liveness_log()
    log.register(broker, S1)

    rows = leave(log, broker, S2)

    assert [(r.kind, r.detail) for r in rows] == [("ignored", "not heard at s2")]
    assert ADDR in log.alive()


def test_a_closed_connection_of_an_unknown_broker_is_ignored_with_a_row() -> None:
    assert [r.kind for r in a_liveness_log().disconnect(broker)] == ["ignored"]


def test_an_unchanged_registration_over_another_connection_replaces_the_holder() -> None:
    log = a_liveness_log()
    log.register(broker, connection=1)

    rows = log.heard(broker, connection=2)

    assert [(r.kind, r.gone, r.connection_id) for r in rows] == [("holder", False, 2)]
    log.disconnect(broker, connection=1)
    assert ADDR in log.alive()


def test_an_unknown_hash_over_another_connection_replaces_the_holder_too() -> None:
    log = a_liveness_log()
    log.register(broker, connection=1)
    log.heard(broker, connection=2, registration_hash="other")

    log.disconnect(broker, connection=1)

    assert ADDR in log.alive()
    assert log.group(NAME).live_brokers[a_key()].holders == {"s1": Holder(1, 2)}


def test_unknown_hash_of_an_earlier_epoch_counts_as_heartbeat_and_keeps_the_connection() -> None:
    log = a_liveness_log()
    log.register(broker, a_server("s1", 2), connection=1)

    rows = log.heard(broker, a_server("s1", 1), connection=9, registration_hash="other")

    assert [(r.kind, r.cause, r.connection_id) for r in rows] == [
        ("ignored", "registered", 9),
        ("registration_wanted", "unknown_hash", None),
    ]
    assert log.group().live_brokers[a_key()].holders == {"s1": Holder(2, 1)}


def test_heartbeat_without_registration_does_not_change_the_connection() -> None:
    log = a_liveness_log()
    log.register(broker, connection=5)

    log.beat(broker)

    assert log.group().live_brokers[a_key()].holders == {"s1": Holder(1, 5)}


def test_a_late_close_does_not_affect_a_broker_that_restarted_at_another_address() -> None:
    log = a_liveness_log()
    moved = a_registration("10.0.0.7:10911", timeout_ms=TIMEOUT_MS)
    log.register(broker, connection=1)
    log.register(moved, connection=2)

    log.disconnect(broker, connection=1)

    assert log.group().broker_addrs == {0: "10.0.0.7:10911"}
    assert log.alive() == {"10.0.0.7:10911"}


def test_a_late_close_does_not_affect_a_broker_that_restarted_with_another_id() -> None:
    log = a_liveness_log()
    log.register(broker, connection=1)
    log.register(a_registration(broker_id=1, timeout_ms=TIMEOUT_MS), connection=2)

    log.disconnect(broker, connection=1)

    assert log.group().broker_addrs == {1: ADDR}


def test_registration_row_names_the_former_owner_of_its_id() -> None:
    log = a_liveness_log()
    log.register(broker)

    rows = log.register(a_registration("10.0.0.7:10911"), connection=2)

    assert details(rows) == ["brokerId 0 was 10.0.0.1:10911"]


def test_registration_row_names_the_former_id_of_its_address() -> None:
    log = a_liveness_log()
    log.register(broker)

    rows = log.register(a_registration(broker_id=1), connection=2)

    assert details(rows) == ["10.0.0.1:10911 was brokerId 0"]


def test_brokers_that_claim_the_same_address_alternate_and_every_change_writes_a_row() -> None:
    log = a_liveness_log()
    master, slave = a_registration(registration_hash="m"), a_registration(broker_id=1, registration_hash="s")
    log.register(master, connection=1)

    turns = [log.register(slave, connection=2), log.register(master, connection=1)]

    assert [details(rows) for rows in turns] == [[f"{ADDR} was brokerId 0"], [f"{ADDR} was brokerId 1"]]
    assert [r.broker_addrs for rows in turns for r in of_kind(rows, ChangeKind.BROKER_DATA)] == [
        ((1, ADDR),),
        ((0, ADDR),),
    ]
    assert log.alive() == {ADDR}


def test_the_close_of_a_broker_keeps_the_other_broker_with_the_same_address() -> None:
    log = a_liveness_log()
    log.register(a_registration(registration_hash="m"), connection=1)
    log.register(a_registration(broker_id=1, registration_hash="s"), connection=2)

    rows = log.disconnect(broker, connection=1)

    assert [(r.kind, r.cause) for r in rows] == [("ignored", "disconnected")]
    assert log.group().broker_addrs == {1: ADDR}


def test_registration_of_an_earlier_epoch_counts_as_heartbeat_and_keeps_the_connection() -> None:
    log = a_liveness_log()
    log.register(broker, a_server("s1", 2), connection=1)
    log.pass_time(9_000, a_server("s1", 2))

    rows = log.register(broker, a_server("s1", 1), connection=9)

    assert [(r.kind, r.cause, r.server_epoch, r.connection_id) for r in rows] == [("ignored", "registered", 1, 9)]
    assert "held over 1 of epoch 2" in (rows[0].detail or "")
    log.pass_time(TIMEOUT_MS, a_server("s1", 2))
    assert ADDR in log.alive()
    log.disconnect(broker, a_server("s1", 2), connection=1)
    assert log.alive() == set()


def test_the_row_of_an_ended_holder_names_the_remaining_holder() -> None:
    log = hold_at_both(a_liveness_log())

    rows = log.disconnect(broker, S1)

    assert [(r.kind, r.gone, r.cause, r.server_id, r.detail) for r in rows] == [
        ("holder", True, "disconnected", "s1", "closed by peer; still held by s2")
    ]


def test_a_registration_with_an_older_state_version_is_ignored_with_the_reason() -> None:
    log = a_liveness_log()
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
    log = hold_at_both(a_liveness_log())
    log.register(broker, connection=2)
    before, after = RouteTable(), RouteTable()
    apply(before, log.output.changes)

    rows = leave(log, broker, connection=1)

    apply(after, log.output.changes)
    assert {row.kind for row in rows} == {ChangeKind.IGNORED}
    assert (before.groups, before.held, before.servers) == (after.groups, after.held, after.servers)
