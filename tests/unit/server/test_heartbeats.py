"""Repeated heartbeats of a connection: every one is answered, counted and logged."""

from dataclasses import replace

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import BrokerHeartbeat
from namesrv_stream.route.model import LeaseKey
from tests.support.name_server import a_body, a_broker_header, a_registration_request, a_topic
from tests.support.server_rig import MemoryTransport, Rig, turn

REGISTRATION = a_registration_request(body=a_body({"TopicTest": a_topic(), "Other": a_topic()}))
HEARTBEAT = RemotingCommand(RequestCode.BROKER_HEARTBEAT, ext_fields=a_broker_header())


def a_rig() -> tuple[Rig, MemoryTransport]:
    rig = Rig()
    rig.talk()
    broker = rig.connect()
    rig.ask(broker, REGISTRATION)
    return rig, broker


def heartbeats_in_the_log(rig: Rig) -> int:
    events = [event for record in rig.publisher.log for event in decode_record(record.value)]
    return sum(isinstance(event, BrokerHeartbeat) for event in events)


async def test_every_heartbeat_is_answered_with_its_own_opaque_and_counted() -> None:
    rig, broker = a_rig()
    before = rig.request_metrics.count(ResponseCode.SUCCESS)
    for opaque in range(100, 110):
        assert rig.ask(broker, replace(HEARTBEAT, opaque=opaque)).opaque == opaque
    assert rig.request_metrics.count(ResponseCode.SUCCESS) == before + 10


async def test_heartbeats_are_logged_until_their_broker_unregisters() -> None:
    rig, broker = a_rig()
    for _ in range(3):
        rig.beat()
        rig.ask(broker, HEARTBEAT)
        await turn()
        rig.publisher.ack()
    (group,) = rig.view.table.groups.values()
    key = LeaseKey(group.broker_name, next(iter(group.live_brokers)))
    assert rig.gateway.last_heartbeats.age_ms(key, rig.gateway.observed_ms) == 0
    rig.beat()
    rig.publisher.ack()
    logged = heartbeats_in_the_log(rig)
    rig.ask(broker, RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header()))
    assert rig.ask(broker, HEARTBEAT).code == ResponseCode.SUCCESS
    rig.beat()
    rig.publisher.ack()
    assert logged == 3
    assert heartbeats_in_the_log(rig) == logged


async def test_answers_to_heartbeats_and_other_requests_in_one_read_keep_their_order() -> None:
    rig, broker = a_rig()
    rig.ask(broker, HEARTBEAT)
    before = len(broker.answers())
    asked = [replace(HEARTBEAT, opaque=1), replace(REGISTRATION, opaque=2), replace(HEARTBEAT, opaque=3)]
    assert broker.protocol is not None
    broker.deliver(b"".join(map(encode_frame, asked)))
    assert [answer.opaque for answer in broker.answers()[before:]] == [1, 2, 3]
