"""The gateway: which events are in the log, in which order, and what a blind server does not log."""

import logging

import orjson
import pytest

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.events import partition_of
from namesrv_stream.route.model import LeaseKey, LiveKey
from namesrv_stream.route.table import RouteTable
from tests.support.name_server import MASTER, SLAVE, a_body, a_broker_header, a_registration_request, a_topic
from tests.support.server_rig import MAX_GAP_MS, TICK_MS, MemoryTransport, Rig, turn

KEY = LeaseKey("broker-a", LiveKey("c0", MASTER))


def an_unregistration(addr: str = MASTER, **changes: str | None) -> RemotingCommand:
    return RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header(addr, **changes))


def a_heartbeat(addr: str = MASTER, **changes: str | None) -> RemotingCommand:
    return RemotingCommand(RequestCode.BROKER_HEARTBEAT, ext_fields=a_broker_header(addr, **changes))


def a_version_request() -> RemotingCommand:
    body = orjson.dumps({"counter": 1, "timestamp": 1_000, "stateVersion": 0})
    return RemotingCommand(RequestCode.QUERY_DATA_VERSION, ext_fields=a_broker_header(), body=body)


def a_changed_registration(topics: int) -> RemotingCommand:
    return a_registration_request(body=a_body({f"T{i}": a_topic() for i in range(topics + 2)}, counter=topics + 2))


def name_in(partition: int, partitions: int) -> str:
    return next(n for n in (f"b{i}" for i in range(1000)) if partition_of(n, partitions) == partition)


async def test_a_registration_is_logged_before_the_next_tick() -> None:
    rig = Rig()
    rig.talk()
    rig.ask(rig.connect(), a_registration_request())
    rig.beat()
    rig.publisher.ack()
    assert rig.publisher.kinds() == ["server_started", "broker_registered", "tick"]


async def test_heartbeats_between_two_ticks_share_a_record() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    await turn()
    rig.publisher.ack()
    for _ in range(3):
        rig.ask(broker, a_heartbeat())
        await turn()
    assert rig.publisher.queued_records == 0
    rig.beat()
    rig.publisher.ack()
    assert rig.publisher.kinds()[1:] == ["broker_registered", "broker_heartbeats", "tick"]
    assert len(orjson.loads(rig.publisher.log[-2].value)["items"]) == 3


async def test_many_heartbeats_do_not_wait_for_the_next_tick() -> None:
    rig = Rig(gather_items=3)
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    await turn()
    rig.publisher.ack()
    for _ in range(3):
        assert rig.publisher.queued_records == 0
        rig.ask(broker, a_heartbeat())
        await turn()
    rig.publisher.ack()
    assert rig.publisher.kinds()[1:] == ["broker_registered", "broker_heartbeats"]
    assert len(orjson.loads(rig.publisher.log[-1].value)["items"]) == 3


async def test_an_unchanged_registration_waits_for_the_next_tick() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    for _ in range(2):
        rig.ask(broker, a_registration_request())
        await turn()
    rig.publisher.ack()
    rig.ask(broker, a_registration_request())
    await turn()
    assert rig.publisher.queued_records == 0
    rig.beat()
    rig.publisher.ack()
    assert rig.publisher.kinds()[-2:] == ["broker_heartbeats", "tick"]


async def test_an_unregistration_is_logged_at_once_and_after_earlier_heartbeats() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    await turn()
    rig.ask(broker, a_heartbeat())
    await turn()
    rig.ask(broker, an_unregistration())
    await turn()
    rig.publisher.ack()
    assert rig.publisher.kinds()[1:] == ["broker_registered", "broker_heartbeats", "broker_unregistered"]


async def test_nothing_is_published_before_kafka_is_available() -> None:
    rig = Rig()
    rig.gateway.attach(rig.publisher.publisher_of)
    rig.ask(rig.connect(), a_registration_request())
    rig.beat(5)
    assert (rig.publisher.sessions, rig.publisher.queued_records) == (1, 0)


async def test_events_from_before_kafka_is_available_are_published_when_it_is() -> None:
    rig = Rig()
    rig.ask(rig.connect(), a_registration_request())
    rig.talk()
    assert rig.publisher.kinds() == ["server_started", "broker_registered"]


async def test_a_lost_record_is_published_again_after_server_resumed_and_before_any_tick() -> None:
    rig = Rig()
    rig.talk()
    rig.ask(rig.connect(), a_registration_request())
    rig.beat()
    rig.publisher.fail()
    rig.beat(3)
    rig.publisher.open()
    rig.beat()
    rig.publisher.ack()
    rig.beat()
    rig.publisher.ack()
    assert rig.publisher.kinds() == ["server_started", "server_resumed", "broker_registered", "tick"]


async def test_a_session_begins_only_when_the_previous_one_can_no_longer_reach_the_log() -> None:
    rig = Rig()
    rig.talk()
    rig.publisher.fail()
    rig.publisher.is_ending = True
    rig.beat(20)
    assert rig.publisher.sessions == 1
    rig.publisher.is_ending = False
    rig.beat()
    assert rig.publisher.sessions == 2


async def test_events_of_a_failed_session_are_published_by_the_next_one() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.publisher.fail()
    rig.ask(broker, a_registration_request())
    rig.beat(3)
    rig.publisher.open()
    rig.publisher.fail()
    rig.ask(broker, a_registration_request(SLAVE, 1))
    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack()
    kinds = rig.publisher.kinds()
    assert kinds == ["server_started", "server_resumed", "broker_registered", "broker_registered"]


async def test_events_that_arrive_while_a_session_opens_are_published_before_a_tick() -> None:
    rig = Rig()
    rig.talk()
    rig.publisher.fail()
    rig.beat(3)
    rig.publisher.open()
    rig.ask(rig.connect(), a_registration_request())
    rig.publisher.ack()
    rig.beat()
    rig.publisher.ack()
    assert rig.publisher.kinds()[1:] == ["server_resumed", "broker_registered", "tick"]


async def test_only_the_latest_events_of_a_broker_are_published_after_an_outage() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.publisher.fail()
    for topics in range(3):
        rig.ask(broker, a_changed_registration(topics))
    rig.ask(broker, an_unregistration())
    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack()
    assert rig.publisher.kinds()[1:] == ["server_resumed", "broker_registered", "broker_unregistered"]
    assert len(orjson.loads(rig.publisher.log[2].value)["topics"]) == 4


async def test_a_long_outage_leaves_one_pending_entry_per_broker() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.publisher.fail()
    for topics in range(50):
        rig.ask(broker, a_changed_registration(topics))
    assert rig.view.pending_count == 1
    assert len(rig.view.table.group("broker-a").topics) == 51


async def test_all_pending_entries_of_an_outage_are_settled_by_their_commit() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    for addr, broker_id in ((MASTER, 0), (SLAVE, 1)):
        rig.ask(broker, a_registration_request(addr, broker_id))
        rig.ask(broker, a_registration_request(addr, broker_id))
    rig.publisher.fail()
    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack()
    rig.served.committed([], rig.publisher.next_offsets)
    assert rig.view.pending_count == 0


async def test_a_pending_entry_is_settled_by_its_own_record_only() -> None:
    """Otherwise the record of another broker would settle it, and the broker would be missing until its own commit."""
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    rig.ask(broker, a_registration_request("10.0.0.3:1", brokerName="broker-b"))
    await turn()
    rig.publisher.fail()
    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack()
    records = [r for r in rig.publisher.log if r.items]
    assert [len(r.items) for r in records] == [1, 1]
    assert [i.pending.position for r in records for i in r.items if i.pending] == [(0, 2), (0, 3)]


async def test_an_acknowledgement_after_its_commit_settles_the_pending_entry() -> None:
    rig = Rig()
    rig.talk()
    rig.ask(rig.connect(), a_registration_request())
    await turn()
    rig.served.committed([], {0: 2})
    assert rig.view.pending_count == 1
    rig.publisher.ack()
    assert rig.view.pending_count == 0


async def test_a_registration_too_large_for_kafka_is_dropped_and_others_are_published(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise it would fail every session, and nothing would be logged any more."""
    rig = Rig(record_bytes=2_000)
    rig.talk()
    broker = rig.connect()
    broker.deliver(encode_frame(a_changed_registration(200)))
    await turn()
    rig.ask(broker, a_registration_request("10.0.0.3:1", brokerName="broker-b"))
    with caplog.at_level(logging.ERROR):
        await turn()
    rig.publisher.ack()
    assert rig.publisher.kinds() == ["server_started", "broker_registered"]
    assert rig.gateway.is_connected
    assert "broker-a" not in rig.view.table.groups
    assert rig.view.pending_count == 1  # broker-b's, until it is committed
    assert "cannot be logged" in caplog.text


async def test_events_that_are_not_flushed_when_a_session_fails_are_published_later() -> None:
    rig = Rig()
    rig.talk()
    rig.ask(rig.connect(), a_registration_request())
    rig.publisher.fail("test")
    await turn()
    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack()
    assert rig.publisher.kinds() == ["server_started", "server_resumed", "broker_registered"]


async def test_a_closed_connection_removes_its_broker_with_the_commit_of_the_fold() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    broker.close()
    await turn()
    rig.publisher.ack()
    assert rig.publisher.kinds()[1:] == ["broker_registered", "broker_disconnected"]
    assert rig.view.table.group("broker-a").is_registered
    rig.commit()
    assert not rig.view.table.group("broker-a").is_registered


async def test_a_reconnected_broker_is_asked_to_register_before_the_fold_removes_it() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    asked = a_version_request()
    assert rig.ask(broker, asked).ext_fields == {"changed": "false"}
    broker.close()
    again = rig.connect()
    assert rig.ask(again, asked).ext_fields == {"changed": "true"}
    rig.ask(again, a_registration_request())
    assert rig.ask(again, asked).ext_fields == {"changed": "false"}
    await turn()
    rig.commit()
    assert rig.view.table.group("broker-a").is_registered


async def test_the_close_of_a_replaced_connection_is_logged_and_removes_no_broker() -> None:
    rig = Rig()
    rig.talk()
    old, new = rig.connect(), rig.connect()
    rig.ask(old, a_registration_request())
    rig.ask(new, a_registration_request())
    old.close()
    rig.beat()
    rig.publisher.ack()
    assert rig.view.table.group("broker-a").is_registered
    assert rig.publisher.kinds().count("broker_disconnected") == 1


async def test_the_close_after_an_unregistration_is_not_logged() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    rig.ask(broker, an_unregistration())
    broker.close()
    rig.beat()
    rig.publisher.ack()
    assert "broker_disconnected" not in rig.publisher.kinds()


async def test_a_close_that_is_found_after_a_stall_removes_no_broker() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    rig.clock.advance(MAX_GAP_MS + 1)
    broker.close()
    rig.beat()
    rig.publisher.ack()
    assert "broker_disconnected" not in rig.publisher.kinds()


async def test_a_close_that_is_found_after_the_machine_was_suspended_removes_no_broker() -> None:
    """The monotonic clock does not show the suspension."""
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    rig.beat()
    rig.publisher.ack()
    rig.clock.leap(3_600_000)
    assert rig.gateway.is_blind_for(0)
    rig.beat()
    rig.publisher.ack()
    broker.close()
    rig.beat()
    rig.publisher.ack()
    assert "broker_disconnected" not in rig.publisher.kinds()


async def test_a_server_is_blind_for_one_gap_after_a_stall() -> None:
    rig = Rig()
    rig.talk()
    rig.clock.advance(60_000)
    for _ in range(MAX_GAP_MS // TICK_MS + 1):
        rig.beat()
        rig.publisher.ack()
    assert not rig.gateway.is_blind_for(0)


def heard_in_two_partitions(rig: Rig) -> MemoryTransport:
    """Register one broker of each partition over one connection, and return it."""
    rig.talk()
    peer = rig.connect()
    for partition in (0, 1):
        rig.ask(peer, a_registration_request(f"10.0.0.{partition}:1", brokerName=name_in(partition, 2)))
    return peer


def closed_in_log(rig: Rig) -> list[int]:
    """The partitions in which a closed connection is logged."""
    return [r.partition for r in rig.publisher.log if orjson.loads(r.value)["kind"] == "broker_disconnected"]


async def test_a_stuck_partition_makes_the_server_blind_for_its_own_brokers_only() -> None:
    rig = Rig(partitions=2)
    peer = heard_in_two_partitions(rig)
    for _ in range(6):
        rig.beat()
        rig.publisher.ack(partition=0)
    assert [rig.gateway.is_blind_for(p) for p in (0, 1)] == [False, True]
    peer.close()
    await turn()
    rig.publisher.ack()
    assert closed_in_log(rig) == [0]


async def test_an_hour_without_one_partition_does_not_affect_the_other() -> None:
    """The other partition gets its ticks and closed connections, and nothing is resumed there."""
    rig = Rig(partitions=2)
    peer = heard_in_two_partitions(rig)
    await turn()
    rig.publisher.ack(partition=0)
    for beat in range(7_200):
        if beat == 60:
            peer.close()
        rig.beat()
        rig.publisher.ack(partition=0)
        if beat % 20 == 19:  # kafka.delivery_timeout_ms
            rig.publisher.fail("KafkaTimeoutError", partition=1)
            rig.beat(2)
            rig.publisher.open(partition=1)
    kinds = rig.publisher.kinds([r for r in rig.publisher.log if r.partition == 0])
    assert kinds.count("server_resumed") == 0
    assert kinds.count("tick") > 7_000
    assert closed_in_log(rig) == [0]
    standing = rig.gateway.status
    assert (standing.is_connected, standing.has_started, standing.away) == (False, True, (1,))
    rig.commit()
    shown = [group.broker_name for group in rig.view.table.registered_groups()]
    assert shown == [name_in(1, 2)]


async def test_a_partition_that_is_available_again_is_resumed_and_gets_its_missing_events() -> None:
    rig = Rig(partitions=2)
    heard_in_two_partitions(rig)
    await turn()
    rig.publisher.ack(partition=0)
    rig.publisher.fail(partition=1)
    rig.beat(3)
    rig.publisher.open(partition=1)
    rig.publisher.ack()
    kinds = [rig.publisher.kinds([r for r in rig.publisher.log if r.partition == p]) for p in (0, 1)]
    assert kinds[0][:3] == ["server_started", "broker_registered", "tick"]
    assert "server_resumed" not in kinds[0]
    assert kinds[1] == ["server_started", "server_resumed", "broker_registered"]
    assert rig.gateway.is_connected


async def test_a_stall_adds_one_gap_to_the_observed_time() -> None:
    rig = Rig()
    rig.beat(2)
    rig.clock.advance(60_000)
    rig.gateway.beat()
    assert rig.gateway.observed_ms == 2 * TICK_MS + MAX_GAP_MS


async def test_a_heartbeat_in_an_outage_does_not_replace_the_registration_before_it() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.publisher.fail()
    rig.ask(broker, a_registration_request())
    rig.ask(broker, a_heartbeat())
    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack()
    assert rig.publisher.kinds()[1:] == ["server_resumed", "broker_registered"]


async def test_a_broker_that_returns_in_an_outage_stays_registered() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    rig.ask(broker, an_unregistration())
    await turn()
    rig.publisher.ack()
    rig.publisher.fail()
    for _ in range(3):
        rig.ask(broker, a_registration_request())
        assert rig.view.table.group("broker-a").is_registered
    rig.ask(broker, a_heartbeat())
    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack()
    assert rig.view.table.group("broker-a").is_registered


async def test_a_broker_that_returned_and_left_while_kafka_failed_is_removed_when_kafka_is_back() -> None:
    rig = await _with_a_removed_broker()
    _register_and_close(rig)
    rig.publisher.fail()
    assert rig.view.table.group("broker-a").is_registered
    rig.beat(3)
    rig.publisher.open()
    rig.commit()
    assert not rig.view.table.group("broker-a").is_registered
    assert not rig.server.logged


async def _with_a_removed_broker() -> Rig:
    """A server that has the registration of a broker which disconnected."""
    rig = Rig()
    rig.talk()
    _register_and_close(rig)
    await turn()
    rig.commit()
    assert not rig.view.table.group("broker-a").is_registered
    return rig


def _register_and_close(rig: Rig) -> None:
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    broker.close()


async def test_stop_logs_server_stopped_after_all_events() -> None:
    rig = Rig()
    rig.talk()
    rig.ask(rig.connect(), a_registration_request())
    await rig.gateway.stop(1)
    assert rig.publisher.kinds() == ["server_started", "broker_registered", "server_stopped"]


async def test_connections_that_a_stopping_server_closes_are_not_logged() -> None:
    rig = Rig()
    rig.talk()
    rig.ask(rig.connect(), a_registration_request())
    rig.gateway.begin_stop()
    await rig.connections.close_all(0)
    await rig.gateway.stop(1)
    assert "broker_disconnected" not in rig.publisher.kinds()


async def test_stop_without_kafka_ends_and_reports_unpublished_brokers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    rig.talk()
    rig.publisher.fail()
    rig.ask(rig.connect(), a_registration_request())
    await rig.gateway.stop(0.01)
    assert "brokers=1" in caplog.text


async def test_stop_with_a_session_that_never_opens_ends_in_time() -> None:
    rig = Rig()
    rig.ask(rig.connect(), a_registration_request())
    rig.gateway.attach(rig.publisher.publisher_of)
    rig.publisher.open()
    await rig.gateway.stop(0.01)
    assert not rig.gateway.is_connected


async def test_stop_that_kafka_does_not_acknowledge_ends() -> None:
    rig = Rig()
    rig.talk()
    rig.publisher.acks_at_close = False
    await rig.gateway.stop(0.01)
    assert not rig.gateway.is_connected


def _wanted(*servers: tuple[str, str]) -> list[RouteChange]:
    return [
        RouteChange(0, 0, 0, 0, ChangeKind.REGISTRATION_WANTED, False, "x", None, "c0", name, MASTER, server_id=server)
        for name, server in servers
    ]


async def test_a_registration_that_the_fold_does_not_know_is_logged_in_full_again() -> None:
    rig = Rig()
    rig.talk()
    brokers = {name: rig.connect() for name in ("broker-a", "broker-b")}
    for _ in range(2):
        rig.served.committed(_wanted(("broker-a", "s1"), ("broker-b", "s2")), {0: 1})
        for name, broker in brokers.items():
            rig.ask(broker, a_registration_request(brokerName=name))
    await turn()
    rig.publisher.ack()
    full = [orjson.loads(record.value) for record in rig.publisher.log if b"broker_registered" in record.value]
    assert [each["broker_name"] for each in full] == ["broker-a", "broker-b", "broker-a"]


async def test_a_refused_registration_is_logged_in_full_only_once() -> None:
    rig = Rig()
    rig.talk()
    newer, older = ({"counter": 1, "stateVersion": state, "timestamp": 1} for state in (2, 1))
    rig.ask(rig.connect(), a_registration_request(body=a_body(dataVersion=newer)))
    stale = rig.connect()
    for _ in range(3):
        rig.ask(stale, a_registration_request("10.0.0.3:10911", body=a_body(dataVersion=older)))
        await turn()
    assert LiveKey("c0", "10.0.0.3:10911") not in rig.view.table.group("broker-a").live_brokers
    rig.beat()
    rig.publisher.ack()
    assert rig.publisher.kinds().count("broker_registered") == 2


async def test_a_reload_forgets_what_was_remembered_of_removed_brokers() -> None:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    for _ in range(3):
        assert rig.ask(broker, a_registration_request()).code == ResponseCode.SUCCESS
    assert rig.server.logged
    await turn()
    rig.publisher.ack()
    rig.served.reloaded(RouteTable(), {0: 99})
    assert not rig.server.logged


async def test_a_reload_keeps_uncommitted_registrations() -> None:
    rig = Rig()
    rig.talk()
    rig.ask(rig.connect(), a_registration_request())
    await turn()
    rig.publisher.ack()
    rig.served.reloaded(RouteTable(), {0: 1})
    assert rig.view.table.group("broker-a").is_registered
