"""Operators' changes are answered when they are in the log; otherwise they are refused, or their outcome is unknown."""

import asyncio
import logging
from dataclasses import replace

import orjson
import pytest

from namesrv_stream.processor.name_server import Accepted, Access, Options
from namesrv_stream.remoting.command import ONEWAY_FLAG, RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.events import Origin, TopicRegistered, partition_of
from namesrv_stream.route.model import QueueData
from tests.support.name_server import a_body, a_registration_request, a_route_request, a_topic
from tests.support.server_rig import MAX_GAP_MS, TICK_MS, MemoryTransport, Rig, turn

LOOPBACK = "127.0.0.1"
CLUSTER_INFO = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=99)


def a_put(key: str = "k", value: str = "v", opaque: int = 1, namespace: str = "n") -> RemotingCommand:
    fields = {"namespace": namespace, "key": key, "value": value}
    return RemotingCommand(RequestCode.PUT_KV_CONFIG, opaque=opaque, ext_fields=fields)


def a_delete(topic: str = "TopicTest", opaque: int = 1) -> RemotingCommand:
    return RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, opaque=opaque, ext_fields={"topic": topic})


def send(transport: MemoryTransport, *requests: RemotingCommand) -> None:
    transport.deliver(b"".join(map(encode_frame, requests)))


def a_talking_rig(partitions: int = 1, record_bytes: int = 1 << 20, queue_records: int = 10_000) -> Rig:
    rig = Rig(partitions=partitions, record_bytes=record_bytes, queue_records=queue_records)
    rig.talk()
    return rig


def recover(rig: Rig) -> None:
    """Make Kafka available again, and acknowledge everything that is published."""
    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack()


def deletions(rig: Rig) -> list[int]:
    """Partitions of the topic deletions in the log."""
    return [r.partition for r in rig.publisher.log if orjson.loads(r.value)["kind"] == "topic_deleted"]


async def a_rig_with_a_broker(partitions: int = 1) -> Rig:
    rig = a_talking_rig(partitions)
    rig.ask(rig.connect(), a_registration_request())
    await turn()
    rig.publisher.ack()
    return rig


# ---- answered after the log ----


async def test_a_change_is_in_the_view_at_once_and_is_answered_when_it_is_in_the_log() -> None:
    rig = a_talking_rig()
    operator = rig.connect(LOOPBACK)

    send(operator, a_put())
    await turn()
    assert rig.view.table.kv == {"n": {"k": "v"}}
    assert operator.answers() == []

    rig.publisher.ack()
    assert [a.code for a in operator.answers()] == [ResponseCode.SUCCESS]
    assert rig.publisher.kinds()[1:] == ["kv_put"]


async def test_other_answers_overtake_a_change_that_waits_for_the_log() -> None:
    rig = a_talking_rig()
    operator = rig.connect(LOOPBACK)

    send(operator, a_put(opaque=7), CLUSTER_INFO)
    await turn()
    rig.publisher.ack()

    assert [a.opaque for a in operator.answers()] == [CLUSTER_INFO.opaque, 7]


async def test_a_change_is_logged_after_the_events_before_it() -> None:
    rig = a_talking_rig()
    rig.ask(rig.connect(), a_registration_request())
    send(rig.connect(LOOPBACK), a_delete())
    await turn()
    rig.publisher.ack()

    assert rig.publisher.kinds()[1:] == ["broker_registered", "topic_deleted"]


async def test_a_deletion_is_answered_when_every_partition_has_it() -> None:
    rig = await a_rig_with_a_broker(partitions=3)
    operator = rig.connect(LOOPBACK)
    send(operator, a_delete())
    await turn()

    for partition in (2, 0):
        rig.publisher.ack(partition)
        assert operator.answers() == []
    rig.publisher.ack(1)

    assert [a.code for a in operator.answers()] == [ResponseCode.SUCCESS]
    assert sorted(deletions(rig)) == [0, 1, 2]
    assert "TopicTest" not in rig.view.table.group("broker-a").topics


async def test_a_deletion_leaves_nothing_pending_when_every_partition_has_committed_it() -> None:
    rig = await a_rig_with_a_broker(partitions=3)
    send(rig.connect(LOOPBACK), a_delete())
    await turn()
    rig.publisher.ack()
    assert rig.view.pending_count == 1 + 3  # the registration, and the deletion in each partition

    for partition, offset in rig.publisher.next_offsets.items():
        rig.served.committed([], {partition: offset})

    assert rig.view.pending_count == 0


async def test_a_oneway_change_is_logged_and_not_answered() -> None:
    rig = a_talking_rig()
    operator = rig.connect(LOOPBACK)
    send(operator, replace(a_put(), flag=ONEWAY_FLAG))
    await turn()
    rig.publisher.ack()

    assert operator.received == b""
    assert rig.publisher.kinds()[1:] == ["kv_put"]


async def test_a_change_is_logged_even_if_its_operator_disconnects() -> None:
    rig = a_talking_rig()
    operator = rig.connect(LOOPBACK)
    send(operator, a_put())
    operator.close()
    await turn()
    rig.publisher.ack()

    assert rig.publisher.kinds()[1:] == ["kv_put"]
    assert operator.received == b""


async def test_a_connection_that_the_server_closes_first_gets_its_waiting_answer() -> None:
    rig = a_talking_rig()
    operator = rig.connect(LOOPBACK)
    send(operator, a_put())
    connection = operator.protocol
    assert connection is not None
    connection.close("test")
    await turn()
    assert not operator.is_closing()

    rig.publisher.ack()

    assert [a.code for a in operator.answers()] == [ResponseCode.SUCCESS]
    assert operator.is_closing()


async def test_a_request_that_changes_nothing_is_answered_without_the_log() -> None:
    """Wiping the permissions of an unknown broker changes nothing."""
    rig = Rig()
    request = RemotingCommand(RequestCode.WIPE_WRITE_PERM_OF_BROKER, ext_fields={"brokerName": "nobody"})
    assert rig.ask(rig.connect(LOOPBACK), request).code == ResponseCode.SUCCESS


# ---- refused: nothing is changed ----


def assert_refused(rig: Rig, operator: MemoryTransport) -> None:
    answer = rig.ask(operator, a_put())
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "nothing was changed" in (answer.remark or "")
    assert rig.view.table.kv == {}
    assert rig.view.pending_count == 0


async def test_a_change_at_the_start_is_refused_at_once_if_kafka_is_known_to_be_unavailable() -> None:
    rig = Rig()
    rig.gateway.kafka_is_away("no broker answers")
    assert_refused(rig, rig.connect(LOOPBACK))


async def test_a_change_during_an_outage_of_kafka_is_refused_and_never_logged() -> None:
    rig = a_talking_rig()
    rig.publisher.fail()
    assert_refused(rig, rig.connect(LOOPBACK))
    recover(rig)
    assert rig.publisher.kinds() == ["server_started", "server_resumed"]


async def test_a_change_for_an_unavailable_partition_is_refused_and_others_are_accepted() -> None:
    rig = a_talking_rig(partitions=2)
    rig.publisher.fail(partition=partition_of("n", 2))
    assert_refused(rig, rig.connect(LOOPBACK))
    operator = rig.connect(LOOPBACK)
    other = next(name for name in "abcdefgh" if partition_of(name, 2) != partition_of("n", 2))
    send(operator, a_put(namespace=other))
    await turn()
    rig.publisher.ack()
    assert [a.code for a in operator.answers()] == [ResponseCode.SUCCESS]
    assert rig.ask(operator, a_delete()).code == ResponseCode.SYSTEM_BUSY


async def test_a_change_is_refused_if_the_publish_queue_is_full_and_the_session_continues() -> None:
    rig = a_talking_rig(queue_records=1)
    rig.beat()
    assert_refused(rig, rig.connect(LOOPBACK))
    assert rig.gateway.is_connected


async def test_events_of_brokers_leave_room_in_the_publish_queue_for_changes() -> None:
    rig = a_talking_rig(queue_records=4)
    for number in range(4):
        send(rig.connect(), a_registration_request(f"10.0.0.{number}:1"))
        await turn()
    operator = rig.connect(LOOPBACK)
    for i in range(6):
        send(operator, a_put(f"k{i}", opaque=i))
        await turn()
    assert [a.code for a in operator.answers()] == [ResponseCode.SYSTEM_BUSY] * 4
    assert rig.gateway.is_connected


async def test_a_change_at_a_stopping_server_is_refused() -> None:
    rig = a_talking_rig()
    rig.gateway.begin_stop()
    assert_refused(rig, rig.connect(LOOPBACK))


async def test_a_change_larger_than_a_record_is_refused() -> None:
    rig = a_talking_rig(record_bytes=2_000)
    operator = rig.connect(LOOPBACK)
    answer = rig.ask(operator, a_put(value="x" * 3_000))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "2000" in (answer.remark or "")
    assert rig.view.table.kv == {}
    assert rig.gateway.is_connected


# ---- waiting for Kafka ----


async def test_a_change_right_after_the_start_waits_for_kafka() -> None:
    rig = Rig()
    operator = rig.connect(LOOPBACK)
    send(operator, a_put(opaque=1), a_put("k2", opaque=2))
    rig.gateway.attach(rig.publisher.publisher_of)
    rig.publisher.open()
    await turn()
    assert (operator.answers(), rig.view.table.kv) == ([], {})

    rig.publisher.ack()
    await turn()
    rig.publisher.ack()
    assert [(a.code, a.opaque) for a in operator.answers()] == [(ResponseCode.SUCCESS, 1), (ResponseCode.SUCCESS, 2)]
    assert rig.view.table.kv == {"n": {"k": "v", "k2": "v"}}
    assert rig.publisher.kinds() == ["server_started", "kv_put", "kv_put"]


async def test_a_change_waits_while_a_session_is_resumed() -> None:
    rig = a_talking_rig()
    rig.publisher.fail()
    rig.beat(3)
    rig.publisher.open()
    operator = rig.connect(LOOPBACK)
    send(operator, a_put())
    assert operator.answers() == []
    rig.publisher.ack()
    await turn()
    rig.publisher.ack()
    assert [a.code for a in operator.answers()] == [ResponseCode.SUCCESS]
    assert rig.publisher.kinds()[1:] == ["server_resumed", "kv_put"]


async def test_a_change_that_waits_for_kafka_is_refused_at_its_timeout_and_never_logged() -> None:
    rig = Rig()
    operator = rig.connect(LOOPBACK)
    send(operator, a_put())
    rig.beat(4_000 // TICK_MS - 1)
    assert operator.answers() == []
    rig.beat()
    [answer] = operator.answers()
    assert (answer.code, "nothing was changed" in (answer.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)
    rig.talk()
    await turn()
    rig.publisher.ack()
    assert (rig.publisher.kinds(), rig.view.table.kv) == (["server_started"], {})


async def test_a_waiting_change_is_refused_when_kafka_turns_out_to_be_unavailable() -> None:
    rig = Rig()
    operator = rig.connect(LOOPBACK)
    send(operator, a_put())
    rig.gateway.attach(rig.publisher.publisher_of)
    rig.publisher.fail("no broker answers")
    [answer] = operator.answers()
    assert (answer.code, "nothing was changed" in (answer.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)


async def test_a_change_waits_while_kafka_is_slow() -> None:
    rig = a_talking_rig()
    rig.beat()
    rig.clock.advance(MAX_GAP_MS + 1)
    operator = rig.connect(LOOPBACK)
    send(operator, a_put())
    rig.beat()
    assert (operator.answers(), rig.view.table.kv) == ([], {})
    rig.publisher.ack()
    rig.beat()
    await turn()
    rig.publisher.ack()
    assert [a.code for a in operator.answers()] == [ResponseCode.SUCCESS]


# ---- unknown outcome ----


def assert_unknown(operator: MemoryTransport) -> None:
    [answer] = operator.answers()
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "unknown" in (answer.remark or "")


async def test_a_lost_change_is_undone_in_the_view_and_answered_once_as_unknown() -> None:
    rig = a_talking_rig()
    operator = rig.connect(LOOPBACK)
    send(operator, a_put())
    await turn()
    rig.publisher.fail()

    assert_unknown(operator)
    assert rig.view.table.kv == {}
    recover(rig)
    rig.beat(20)
    assert_unknown(operator)
    assert "kv_put" not in rig.publisher.kinds()


async def test_a_deletion_that_was_not_published_is_answered_as_unknown_and_logged_later() -> None:
    """With several partitions, others may contain the deletion already."""
    rig = a_talking_rig()
    operator = rig.connect(LOOPBACK)
    send(operator, a_delete())
    rig.publisher.fail()

    assert_unknown(operator)
    recover(rig)
    assert deletions(rig) == [0]


async def test_a_change_that_kafka_acknowledges_late_is_answered_as_unknown_and_takes_effect() -> None:
    rig = a_talking_rig()
    operator = rig.connect(LOOPBACK)
    send(operator, a_put())
    await turn()
    rig.beat(4_000 // TICK_MS - 1)
    assert operator.answers() == []
    rig.beat()

    assert_unknown(operator)
    rig.publisher.ack()
    assert "kv_put" in rig.publisher.kinds()
    assert rig.view.table.kv == {"n": {"k": "v"}}
    assert_unknown(operator)


async def test_a_deletion_is_published_again_to_the_partitions_that_lack_it() -> None:
    rig = await a_rig_with_a_broker(partitions=3)
    operator = rig.connect(LOOPBACK)
    send(operator, a_delete())
    await turn()
    rig.publisher.ack(1)
    rig.publisher.fail()

    assert_unknown(operator)
    assert "TopicTest" not in rig.view.table.group("broker-a").topics
    recover(rig)
    assert sorted(deletions(rig)) == [0, 1, 2]
    for partition, offset in rig.publisher.next_offsets.items():
        rig.served.committed([], {partition: offset})
    assert rig.view.pending_count == 0


async def test_a_deletion_is_published_until_every_partition_has_it_once() -> None:
    rig = await a_rig_with_a_broker(partitions=3)
    send(rig.connect(LOOPBACK), a_delete())
    await turn()
    rig.publisher.fail()
    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack(2)
    rig.publisher.fail()
    for _ in range(3):
        recover(rig)
        rig.publisher.fail()

    assert sorted(deletions(rig)) == [0, 1, 2]


async def test_a_registration_and_a_deletion_are_published_again_in_their_order() -> None:
    rig = a_talking_rig()
    broker, operator = rig.connect(), rig.connect(LOOPBACK)
    rig.ask(broker, a_registration_request())
    send(operator, a_delete())
    await turn()
    rig.publisher.fail()
    recover(rig)
    assert rig.publisher.kinds()[1:] == ["server_resumed", "broker_registered", "topic_deleted"]


async def test_a_registration_after_a_lost_deletion_is_published_after_it() -> None:
    rig = a_talking_rig()
    broker, operator = rig.connect(), rig.connect(LOOPBACK)
    rig.ask(broker, a_registration_request())
    send(operator, a_delete())
    await turn()
    rig.publisher.fail()
    rig.ask(broker, a_registration_request(body=a_body({"TopicTest": a_topic(), "b": a_topic()}, counter=2)))
    recover(rig)

    assert rig.publisher.kinds()[1:] == ["server_resumed", "topic_deleted", "broker_registered"]
    assert "TopicTest" in rig.view.table.group("broker-a").topics


async def test_every_unacknowledged_change_fails_when_the_session_fails() -> None:
    rig = a_talking_rig()
    operator = rig.connect(LOOPBACK)
    send(operator, *(a_put(f"k{i}", opaque=i) for i in range(3)))
    await turn()
    rig.publisher.fail()

    assert [(a.opaque, a.code) for a in operator.answers()] == [(i, ResponseCode.SYSTEM_BUSY) for i in range(3)]
    assert rig.view.pending_count == 0


# ---- stopping ----


async def test_a_stopping_server_answers_the_changes_that_its_last_flush_logs() -> None:
    rig = a_talking_rig()
    operator = rig.connect(LOOPBACK)
    send(operator, a_put())
    rig.gateway.begin_stop()
    await rig.connections.close_all(0)
    assert not operator.is_closing()

    await rig.gateway.stop(1)

    assert [a.code for a in operator.answers()] == [ResponseCode.SUCCESS]
    assert rig.publisher.kinds()[1:] == ["kv_put", "server_stopped"]
    assert operator.is_closing()


async def test_a_stopping_server_without_kafka_answers_that_the_outcome_is_unknown() -> None:
    rig = a_talking_rig()
    rig.publisher.acks_at_close = False
    operator = rig.connect(LOOPBACK)
    send(operator, a_put())
    rig.gateway.begin_stop()
    await rig.connections.close_all(0)

    await rig.gateway.stop(0.01)

    assert_unknown(operator)
    assert operator.is_closing()


async def test_a_stopping_server_logs_the_number_of_unpublished_changes(caplog: pytest.LogCaptureFixture) -> None:
    rig = await a_rig_with_a_broker(partitions=2)
    send(rig.connect(LOOPBACK), a_delete())
    await turn()
    rig.publisher.fail()
    with caplog.at_level(logging.WARNING):
        await rig.gateway.stop(0.01)
    assert "changes=2" in caplog.text


# ---- options ----


def an_update(text: str, opaque: int = 1) -> RemotingCommand:
    return RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, opaque=opaque, body=text.encode())


def a_configurable_rig() -> Rig:
    rig = Rig(access=Access(enable_config_update=True))
    rig.talk()
    return rig


async def test_options_apply_when_the_setting_in_the_same_request_is_in_the_log() -> None:
    rig = a_configurable_rig()
    operator = rig.connect(LOOPBACK)
    send(operator, an_update("deleteTopicWithBrokerRegistration=true\nenableTopicList=false"))
    assert rig.view.table.settings["effective", "delete_topic_with_broker_registration"] == "true"
    await turn()
    assert (operator.answers(), rig.server.options) == ([], Options())

    rig.publisher.ack()

    assert [a.code for a in operator.answers()] == [ResponseCode.SUCCESS]
    assert rig.server.options == Options(enable_topic_list=False)


async def test_a_waiting_change_of_options_does_not_undo_a_later_one() -> None:
    rig = a_configurable_rig()
    operator = rig.connect(LOOPBACK)
    send(
        operator,
        an_update("deleteTopicWithBrokerRegistration=true\nenableTopicList=false", opaque=1),
        an_update("orderMessageEnable=true", opaque=2),
    )
    await turn()
    rig.publisher.ack()

    assert [a.opaque for a in operator.answers()] == [2, 1]
    assert rig.server.options == Options(enable_topic_list=False, order_message_enable=True)


async def test_options_stay_unchanged_if_the_outcome_of_their_change_is_unknown() -> None:
    rig = a_configurable_rig()
    operator = rig.connect(LOOPBACK)
    send(operator, an_update("deleteTopicWithBrokerRegistration=true\nenableTopicList=false"))
    await turn()
    rig.beat(4_000 // TICK_MS)
    assert_unknown(operator)
    rig.publisher.ack()

    assert rig.server.options == Options()
    assert rig.server.drops_absent_topics


async def test_a_settled_registration_drops_absent_topics_after_the_setting_changes() -> None:
    rig = a_configurable_rig()
    broker = rig.connect()
    for _ in range(3):
        rig.ask(broker, a_registration_request(body=a_body({"a": a_topic(), "b": a_topic()})))
    event = TopicRegistered(Origin("s1", 7), "broker-a", "late", QueueData(1, 1, 6, 0))
    rig.gateway.accept([Accepted(event, event)])
    for _ in range(2):
        rig.ask(broker, a_registration_request(body=a_body({"a": a_topic(), "b": a_topic()})))
    assert set(rig.view.table.group("broker-a").topics) == {"a", "b", "late"}

    send(rig.connect(LOOPBACK), an_update("deleteTopicWithBrokerRegistration=true"))
    rig.ask(broker, a_registration_request(body=a_body({"a": a_topic(), "b": a_topic()})))

    assert set(rig.view.table.group("broker-a").topics) == {"a", "b"}


async def test_after_a_committed_setting_a_registration_deletes_absent_topics() -> None:
    rig = a_talking_rig()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    rig.server.view.accept(TopicRegistered(Origin("s1", 1), "broker-a", "other", QueueData(1, 1, 6, 0)))
    rig.ask(broker, a_registration_request())
    assert "other" in rig.view.table.group("broker-a").topics
    name = "delete_topic_with_broker_registration"
    setting = RouteChange(0, 0, 0, 0, ChangeKind.SETTING, False, "x", namespace="effective", key=name, value="true")
    rig.served.committed([setting], {0: 1})
    rig.ask(broker, a_registration_request())
    assert "other" not in rig.view.table.group("broker-a").topics


async def test_prepared_answers_follow_changed_options() -> None:
    rig = a_talking_rig()
    broker, client = rig.connect(), rig.connect()
    rig.ask(broker, a_registration_request())
    rig.ask(rig.connect(LOOPBACK), CLUSTER_INFO)
    send(rig.connect(LOOPBACK), a_put("TopicTest", "broker-a:4", namespace="ORDER_TOPIC_CONFIG"))
    for _ in range(2):
        assert b"broker-a:4" not in (rig.ask(client, a_route_request()).body or b"")

    rig.served.reconfigure({"order_message_enable": True})

    assert b"broker-a:4" in (rig.ask(client, a_route_request()).body or b"")


async def test_prepared_answers_follow_a_changed_order_configuration() -> None:
    rig = Rig(options=Options(order_message_enable=True))
    rig.talk()
    broker, client, operator = rig.connect(), rig.connect(), rig.connect(LOOPBACK)
    rig.ask(broker, a_registration_request())
    for value in ("broker-a:4", "broker-a:8"):
        send(operator, a_put("TopicTest", value, namespace="ORDER_TOPIC_CONFIG"))
        for _ in range(2):
            assert value.encode() in (rig.ask(client, a_route_request()).body or b"")
    await turn()
    rig.publisher.fail()  # undoes the changes
    assert b"orderTopicConf" not in (rig.ask(client, a_route_request()).body or b"")


async def test_other_requests_are_answered_while_changes_wait_for_the_log() -> None:
    """Waiting changes do not block the event loop."""
    rig = a_talking_rig()
    operator, client = rig.connect(LOOPBACK), rig.connect()
    send(operator, *(a_put(f"k{i}", opaque=i) for i in range(500)))
    assert rig.ask(client, CLUSTER_INFO).code == ResponseCode.SUCCESS
    await asyncio.sleep(0)
    rig.publisher.ack()
    assert len(operator.answers()) == 500
