"""A peer that fills the publish queue waits for room in it; other peers, ticks and the session do not suffer."""

from collections.abc import Iterator

import orjson
import pytest

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from tests.support.name_server import a_broker_header, a_registration_request, a_route_request
from tests.support.server_rig import MAX_GAP_MS, MemoryTransport, Rig, turn

#: Half of the queue has room for three registrations.
QUEUE_RECORDS = 6


def a_registration(name: str) -> RemotingCommand:
    """Return a registration of a broker that is alone in its cluster, so the guard does not act."""
    return a_registration_request(brokerName=name, clusterName=f"c-{name}", heartbeatTimeoutMillis="10000")


def of_broker(code: RequestCode, name: str, **fields: str) -> RemotingCommand:
    return RemotingCommand(code, ext_fields=a_broker_header(brokerName=name, clusterName=f"c-{name}", **fields))


def send(peer: MemoryTransport, request: RemotingCommand) -> None:
    peer.deliver(encode_frame(request))


async def a_full_rig() -> tuple[Rig, MemoryTransport]:
    """Return a server, half of whose publish queue is used, and the connection of a broker "honest" in its log."""
    rig = Rig(queue_records=QUEUE_RECORDS)
    rig.talk()
    honest = rig.connect()
    for _ in range(2):
        rig.ask(honest, a_registration("honest"))
        await turn()
        rig.commit()
    flood = rig.connect("10.6.6.6")
    for number in range(QUEUE_RECORDS // 2):
        rig.ask(flood, a_registration(f"flood-{number}"))
    await turn()
    return rig, honest


def names(rig: Rig) -> Iterator[str]:
    for record in rig.publisher.log:
        fields = orjson.loads(record.value)
        yield from (item["broker_name"] for item in fields.get("items", [fields]) if "broker_name" in item)


async def work_off(rig: Rig) -> None:
    """Let Kafka accept what is published, until nothing is left."""
    while rig.publisher.queued_records or rig.gateway.backlog.waiting:
        rig.publisher.ack()
        await turn()
        await turn()


async def test_registrations_wait_in_order_until_the_publish_queue_has_room() -> None:
    rig, _ = await a_full_rig()
    peers, queued = [rig.connect() for _ in range(3)], rig.publisher.queued_records
    for number, peer in enumerate(peers):
        send(peer, a_registration(f"b{number}"))
    await turn()
    assert ([peer.received for peer in peers], rig.publisher.queued_records) == ([b""] * 3, queued)
    await work_off(rig)
    assert [[answer.code for answer in peer.answers()] for peer in peers] == [[ResponseCode.SUCCESS]] * 3
    assert list(names(rig))[-3:] == ["b0", "b1", "b2"]
    assert rig.gateway.status.lost_sessions == 0


@pytest.mark.parametrize("code", [RequestCode.UNREGISTER_BROKER, RequestCode.REGISTER_TOPIC_IN_NAMESRV])
async def test_events_that_a_stranger_can_repeat_wait_as_well(code: RequestCode) -> None:
    rig, _ = await a_full_rig()
    peer = rig.connect()
    send(peer, of_broker(code, "unknown", topic="T"))
    assert peer.received == b""
    await work_off(rig)
    assert [answer.code for answer in peer.answers()] == [ResponseCode.SUCCESS]


async def test_an_unregistration_over_an_earlier_connection_than_the_registration_waits() -> None:
    _, honest = await a_full_rig()
    before = len(honest.received)
    send(honest, of_broker(RequestCode.UNREGISTER_BROKER, "flood-0"))
    assert len(honest.received) == before


async def test_signs_of_life_goodbyes_and_queries_do_not_wait() -> None:
    rig, honest = await a_full_rig()
    peer = rig.connect()
    for request in (
        a_route_request(),
        of_broker(RequestCode.BROKER_HEARTBEAT, "honest"),
        of_broker(RequestCode.UNREGISTER_BROKER, "flood-0"),
    ):
        rig.ask(peer, request)
    rig.ask(honest, a_registration("honest"))
    honest.close()
    await turn()
    rig.publisher.ack()
    ends = ["broker_heartbeats", "broker_unregistered", "broker_heartbeats", "broker_disconnected"]
    assert rig.publisher.kinds()[-4:] == ends


async def test_more_brokers_than_the_queue_has_room_for_disconnect_at_once_and_nothing_is_lost() -> None:
    rig = Rig(queue_records=QUEUE_RECORDS)
    rig.talk()
    flood, brokers = rig.connect(), 5 * QUEUE_RECORDS
    for number in range(brokers):
        rig.ask(flood, a_registration(f"b{number}"))
        await turn()
        rig.publisher.ack()
    flood.close()
    await turn()
    honest = rig.connect()
    send(honest, a_registration("honest"))
    rig.beat()
    assert (rig.gateway.status.is_blind, rig.gateway.status.lost_sessions) == (False, 0)
    await work_off(rig)
    assert len(honest.answers()) == 1
    kinds = rig.publisher.kinds()
    assert (kinds.count("broker_disconnected"), kinds.count("server_resumed")) == (brokers, 0)


async def test_a_broker_whose_registration_waits_for_room_over_a_new_connection_does_not_expire() -> None:
    rig, _ = await a_full_rig()
    again = rig.connect()
    send(again, a_registration("honest"))
    assert again.received == b""
    for _ in range(30):
        rig.beat()
    assert [r.kind for r in rig.commit() if r.broker_name == "honest" and r.gone] == []
    assert rig.publisher.kinds().count("tick") == 30


async def test_a_registration_that_waits_for_room_is_in_the_view_when_kafka_is_gone() -> None:
    rig, _ = await a_full_rig()
    peer = rig.connect()
    send(peer, a_registration("b"))
    rig.publisher.fail()
    await turn()
    assert len(peer.answers()) == 1
    assert rig.view.table.group("b").is_registered


async def test_a_registration_that_waits_for_room_ends_with_its_connection() -> None:
    rig, _ = await a_full_rig()
    peer = rig.connect()
    send(peer, a_registration("b"))
    peer.close()
    await work_off(rig)
    assert "b" not in list(names(rig))


async def test_a_long_queue_is_not_blindness_while_kafka_accepts_records() -> None:
    rig = Rig()
    rig.talk()
    rig.beat(3 * MAX_GAP_MS // 500)
    assert rig.gateway.status.is_blind
    rig.publisher.ack(most=1)
    assert not rig.gateway.status.is_blind
