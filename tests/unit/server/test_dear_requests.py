"""Registrations of many topics take turns; whoever asks beside them does not wait for all."""

from collections.abc import Iterable
from dataclasses import replace

from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import encode_frame
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
    assert transport.protocol is not None
    transport.protocol.data_received(b"".join(data))


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
