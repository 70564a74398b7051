"""Registrations of many topics take turns; whoever asks beside them does not wait for all."""

from collections.abc import Iterable
from dataclasses import replace

from namesrv_stream.remoting.codes import RequestCode, ResponseCode
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered
from namesrv_stream.server.connection import RemotingConnection
from namesrv_stream.server.long_frame import LongFrameProtocol
from namesrv_stream.server.turns import Turns
from namesrv_stream.settings import RemotingSettings
from tests.bench import frames
from tests.bench.shape import Shape
from tests.support.name_server import a_route_request
from tests.support.server_rig import MemoryTransport, Rig, turn

#: A body of more than a mebibyte, read in many steps.
LONG = next(iter(frames.registrations(Shape(topics=6_000, brokers=1, width=1))))[0]
SHAPE = Shape(topics=300, brokers=3, width=3)
REGISTRATIONS = [frame for frame, _ in frames.registrations(SHAPE)]
QUESTION = encode_frame(replace(a_route_request(), opaque=77, ext_fields={"topic": SHAPE.topic_names[0]}))


def a_rig() -> Rig:
    rig = Rig(queue_records=1_000)
    rig.talk()
    return rig


def receive(transport: MemoryTransport, *data: bytes) -> None:
    transport.deliver(b"".join(data))


def known_brokers(rig: Rig) -> int:
    return len(rig.view.table.groups)


def opaques(answers: Iterable[RemotingCommand]) -> list[int]:
    return [answer.opaque for answer in answers]


async def test_one_dear_request_is_answered_in_a_turn() -> None:
    rig = a_rig()
    brokers = [rig.connect() for _ in REGISTRATIONS]
    for broker, registration in zip(brokers, REGISTRATIONS, strict=True):
        receive(broker, registration)
    seen = [known_brokers(rig)]
    for _ in REGISTRATIONS:
        await turn()
        seen.append(known_brokers(rig))
    assert seen == [1, 2, 3, 3]
    assert [len(broker.answers()) for broker in brokers] == [1, 1, 1]


async def test_another_peer_is_answered_before_the_dear_requests_that_wait() -> None:
    rig = a_rig()
    for registration in REGISTRATIONS:
        receive(rig.connect(), registration)
    client = rig.connect()
    receive(client, QUESTION)
    assert known_brokers(rig) == 1
    assert opaques(client.answers()) == [77]


async def test_a_peer_is_answered_in_its_order_and_read_when_it_is() -> None:
    rig = a_rig()
    receive(rig.connect(), REGISTRATIONS[0])
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1], QUESTION, REGISTRATIONS[2], QUESTION)
    assert (peer.received, peer.is_reading_paused) == (b"", True)
    for _ in range(3):
        await turn()
    answers = peer.answers()
    assert len(answers) == 4
    assert [a.opaque == 77 for a in answers] == [False, True, False, True]
    assert not peer.is_reading_paused


async def test_a_dear_request_of_a_peer_that_went_is_dropped() -> None:
    rig = a_rig()
    receive(rig.connect(), REGISTRATIONS[0])
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1])
    peer.close()
    for _ in range(3):
        await turn()
    assert known_brokers(rig) == 1


async def test_a_registration_whose_peer_goes_in_the_middle_of_it_takes_no_further_turn_and_leaves_no_trace() -> None:
    rig = a_rig()
    peer = rig.connect()
    receive(peer, LONG)
    await turn()
    assert (known_brokers(rig), peer.received) == (0, b"")
    peer.close()
    await turn()
    await turn()
    next_in_turn = iter([None])
    rig.turns.add(next_in_turn)
    assert list(next_in_turn) == []
    assert known_brokers(rig) == 0
    assert not rig.server.memory.full_due_ms


async def test_a_connection_that_leaves_does_so_behind_the_dear_request_that_was_under_way() -> None:
    rig = a_rig()
    peer = rig.connect()
    receive(peer, LONG)
    for connection in rig.connections:
        connection.leave()
    while not peer.received:
        assert not peer.is_closing()
        await turn()
    assert (len(peer.answers()), peer.is_closing()) == (1, True)


async def test_while_too_much_waits_no_further_dear_request_is_read_and_its_peer_has_all_the_time() -> None:
    rig = Rig(queue_records=1_000, limits=RemotingSettings(frame_timeout_ms=1_000, idle_timeout_ms=2_000))
    rig.turns = Turns(max_bytes=1_000_000)
    rig.talk()
    receive(rig.connect(), LONG)
    peer = rig.connect()
    receive(peer, REGISTRATIONS[0][:20_000])
    client = rig.connect()
    receive(client, QUESTION)
    assert (peer.is_reading_paused, client.is_reading_paused) == (True, False)

    for _ in range(10):
        rig.beat()
        receive(client, QUESTION)
        rig.connections.beat(rig.gateway.observed_ms)
    assert not peer.is_closing()

    while peer.is_reading_paused:
        await turn()
    rig.connections.beat(rig.gateway.observed_ms)
    receive(peer, REGISTRATIONS[0][20_000:])
    await turn()
    assert len(peer.answers()) == 1


async def test_a_peer_whose_dear_request_waits_is_not_blamed_for_what_is_not_read() -> None:
    rig = Rig(queue_records=1_000, limits=RemotingSettings(frame_timeout_ms=1_000, idle_timeout_ms=2_000))
    rig.talk()
    receive(rig.connect(), LONG)
    peer = rig.connect()
    receive(peer, REGISTRATIONS[0], QUESTION[:20])
    for _ in range(10):
        rig.beat()
        rig.connections.beat(rig.gateway.observed_ms)
    while not peer.received:
        await turn()
    rig.connections.beat(rig.gateway.observed_ms)
    receive(peer, QUESTION[20:])
    assert len(peer.answers()) == 2


async def test_a_peer_that_breaks_the_protocol_behind_a_dear_request_is_answered_it_first() -> None:
    rig = a_rig()
    receive(rig.connect(), REGISTRATIONS[0])
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1], b"\x00\x00\x00\x01abcd")
    assert not peer.is_closing()
    await turn()
    await turn()
    assert (len(peer.answers()), peer.is_closing()) == (1, True)


async def test_a_dear_request_that_cannot_be_read_closes_its_connection() -> None:
    rig = a_rig()
    receive(rig.connect(), REGISTRATIONS[0])
    peer = rig.connect()
    receive(peer, (20_000).to_bytes(4, "big") + b"\x07" + bytes(19_999))
    await turn()
    assert (peer.received, peer.is_closing()) == (b"", True)


def parts_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


async def test_a_long_request_that_comes_in_parts_is_read_into_its_place_and_what_follows_is_answered() -> None:
    rig = a_rig()
    for size in (20_000, 70_000):
        peer = rig.connect()
        readers = set()
        for part in parts_of(LONG + QUESTION + LONG + QUESTION, size):
            peer.deliver(part)
            readers.add(type(peer.reader))
            while peer.is_reading_paused:
                await turn()
        assert readers == {RemotingConnection, LongFrameProtocol}
        assert peer.reader is peer.protocol
        assert [a.opaque == 77 for a in peer.answers()] == [False, True, False, True]
        assert {answer.code for answer in peer.answers()} <= {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}


async def test_a_connection_that_ends_amid_a_long_request_is_forgotten() -> None:
    rig = a_rig()
    peer = rig.connect()
    peer.deliver(LONG[:100_000])
    assert rig.connections.unfinished.size >= 100_000
    assert isinstance(peer.reader, LongFrameProtocol)
    peer.abort()
    assert (len(rig.connections), rig.connections.unfinished.size) == (0, 0)


async def test_a_registration_that_is_said_again_is_a_heartbeat_and_counted() -> None:
    rig = a_rig()
    before = rig.request_figures.count(ResponseCode.SUCCESS)
    peer = rig.connect()
    again = frames.registrations(SHAPE, stamps=range(1, 6))
    mine = [frame for frame, link in again if link == 1]
    for frame in mine:
        peer.deliver(frame)
        while peer.is_reading_paused:
            await turn()
    await turn()
    assert len(peer.answers()) == len(mine) == 5
    assert len({encode_frame(replace(answer, opaque=0)) for answer in peer.answers()}) == 1
    rig.gateway.beat()
    said = [item for record in rig.publisher.unacked for item in record.items]
    assert [type(item.event) for item in said] == [BrokerRegistered] + 4 * [BrokerHeartbeat]
    assert rig.request_figures.count(ResponseCode.SUCCESS) == before + 5


async def test_all_that_is_held_of_a_long_request_is_told_though_reading_asks_for_room_once_more() -> None:
    rig = a_rig()
    peer = rig.connect()
    peer.deliver(LONG[:100_000])
    reader = peer.reader
    assert isinstance(reader, LongFrameProtocol)
    come = 100_000
    for _ in range(4):
        with memoryview(reader.get_buffer(-1)) as room:
            size = len(room)
            room[:] = LONG[come : come + size]
        come += size
        reader.buffer_updated(size)
        told = rig.connections.unfinished.size
        missing = len(LONG) - come
        # As libuv does before it finds that nothing more has come.
        assert 0 < len(reader.get_buffer(-1)) <= missing
        assert rig.connections.unfinished.size == told
        assert told >= come + min(len(reader.get_buffer(-1)), missing)


async def test_what_comes_of_a_long_request_while_the_connection_ends_is_dropped() -> None:
    rig = a_rig()
    peer = rig.connect("127.0.0.1")
    fields = {"namespace": "n", "key": "k", "value": "v"}
    peer.deliver(encode_frame(RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=fields)))
    peer.deliver(LONG[:100_000])
    assert peer.protocol is not None
    peer.protocol.close("a reason")
    assert not peer.is_closing()  # the change is not in the log yet
    for part in parts_of(LONG[100_000:], 50_000):
        peer.deliver(part)
    assert peer.reader is peer.protocol
    await turn()
    rig.publisher.ack()
    assert (peer.is_closing(), [answer.code for answer in peer.answers()]) == (True, [ResponseCode.SUCCESS])
    assert known_brokers(rig) == 0
