"""Large requests are read and answered one after another, and other peers are answered in between."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from namesrv_stream.processor import register_body
from namesrv_stream.processor.register_body import RegistrationBody, decode_register_body
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered
from namesrv_stream.server.net.decoder import OnDecoded, RegistrationDecoder
from namesrv_stream.server.turns import Turns
from namesrv_stream.settings import RemotingSettings
from tests.bench import frames
from tests.bench.shape import Shape
from tests.support.name_server import a_body, a_registration_request, a_route_request, a_topic
from tests.support.server_rig import MemoryTransport, Rig, turn

#: A body of more than a mebibyte, which another process decodes.
HUGE_SHAPE = Shape(topics=6_000, brokers=1, width=1)
HUGE = next(iter(frames.registrations(HUGE_SHAPE)))[0]
SHAPE = Shape(topics=300, brokers=3, width=3)
REGISTRATIONS = [frame for frame, _ in frames.registrations(SHAPE)]
QUERY = encode_frame(replace(a_route_request(), opaque=77, ext_fields={"topic": SHAPE.topic_names[0]}))
BODY = a_body({f"topic-{number}": a_topic() for number in range(1_000)})
CHUNK = 20_000
PATIENCE_S = 60.0


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    limits = RemotingSettings(frame_timeout_ms=1_000, idle_timeout_ms=2_000)
    rig = Rig(queue_records=1_000, limits=limits)
    rig.talk()
    yield rig
    rig.decoder.stop()


class ManualDecoder(RegistrationDecoder):
    """Decodes a registration only when a test says so."""

    def __init__(self) -> None:
        super().__init__(Turns())
        self.waiting: list[tuple[RegistrationBody, OnDecoded]] = []

    def decode(self, body: RegistrationBody, on_decoded: OnDecoded) -> Callable[[], object]:
        entry = body, on_decoded
        self.waiting.append(entry)
        return lambda: self.waiting.remove(entry)

    def release(self) -> None:
        """Decode the registration that has waited longest."""
        body, on_decoded = self.waiting.pop(0)
        on_decoded(decode_register_body(*body))


@pytest.fixture
def decoder(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> ManualDecoder:
    """Decode all registrations of the rig only when a test says so."""
    monkeypatch.setattr(register_body, "_INLINE_VALUES", 100)
    manual = ManualDecoder()
    services = rig.core.services
    object.__setattr__(services, "decoder", manual)
    return manual


def receive(transport: MemoryTransport, *data: bytes) -> None:
    transport.deliver(b"".join(data))


def known_brokers(rig: Rig) -> int:
    return len(rig.view.table.groups)


def opaques(answers: Iterable[RemotingCommand]) -> list[int]:
    return [answer.opaque for answer in answers]


async def answered(peer: MemoryTransport) -> None:
    """Wait for the answer to a request that another process decodes."""
    async with asyncio.timeout(PATIENCE_S):
        while not peer.received:  # noqa: ASYNC110 (a transport in memory has no event)
            await asyncio.sleep(0.001)


# ---- answering ----


async def test_one_piece_of_large_requests_and_one_of_queries_are_answered_per_iteration_of_the_event_loop() -> None:
    rig = Rig(queue_records=1_000, turns=Turns(0))
    rig.talk()
    brokers, client = [rig.connect() for _ in REGISTRATIONS], rig.connect()
    for broker, registration in zip(brokers, REGISTRATIONS, strict=True):
        receive(broker, registration)
    receive(client, QUERY, QUERY, QUERY)
    seen = []
    for _ in range(6):
        await turn()
        seen.append((known_brokers(rig), len(client.answers())))
    assert seen[:3] == [(1, 1), (2, 2), (3, 3)]
    assert [len(broker.answers()) for broker in brokers] == [1, 1, 1]


async def test_requests_of_a_peer_are_answered_in_order_and_the_peer_is_read_again(
    rig: Rig, decoder: ManualDecoder
) -> None:
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1], QUERY, REGISTRATIONS[2], QUERY)
    assert (peer.received, peer.is_reading_paused) == (b"", True)
    for _ in range(2):
        decoder.release()
        await turn()
    assert [a.opaque == 77 for a in peer.answers()] == [False, True, False, True]
    assert not peer.is_reading_paused


async def test_a_large_request_of_a_disconnected_peer_is_dropped(rig: Rig, decoder: ManualDecoder) -> None:
    receive(rig.connect(), REGISTRATIONS[0])
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1])
    peer.close()
    assert len(decoder.waiting) == 1
    decoder.release()
    await turn()
    assert known_brokers(rig) == 1


async def test_a_leaving_connection_is_closed_after_the_answer_to_its_large_request(
    rig: Rig, decoder: ManualDecoder
) -> None:
    peer = rig.connect()
    receive(peer, REGISTRATIONS[0])
    for connection in rig.connections:
        connection.leave()
    assert not peer.is_closing()
    decoder.release()
    await turn()
    assert (len(peer.answers()), peer.is_closing()) == (1, True)


async def test_a_peer_whose_large_request_waits_is_not_closed_by_the_frame_timeout(
    rig: Rig, decoder: ManualDecoder
) -> None:
    peer = rig.connect()
    receive(peer, REGISTRATIONS[0], QUERY[:20])
    for _ in range(10):
        rig.beat()
        rig.connections.beat(rig.gateway.observed_ms)
    decoder.release()
    await turn()
    rig.connections.beat(rig.gateway.observed_ms)
    receive(peer, QUERY[20:])
    assert len(peer.answers()) == 2


async def test_a_large_request_is_answered_before_its_connection_is_closed_for_invalid_bytes(
    rig: Rig, decoder: ManualDecoder
) -> None:
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1], b"\x00\x00\x00\x01abcd")
    assert not peer.is_closing()
    decoder.release()
    await turn()
    assert (len(peer.answers()), peer.is_closing()) == (1, True)


async def test_a_large_request_that_cannot_be_decoded_closes_its_connection(rig: Rig) -> None:
    peer = rig.connect()
    receive(peer, (20_000).to_bytes(4, "big") + b"\x07" + bytes(19_999))
    assert (peer.received, peer.is_closing()) == (b"", True)


async def test_an_unchanged_large_registration_is_a_heartbeat_and_counted(rig: Rig) -> None:
    before = rig.request_metrics.count(ResponseCode.SUCCESS)
    peer = rig.connect()
    again = frames.registrations(SHAPE, stamps=range(1, 6))
    for frame in (mine := [frame for frame, link in again if link == 1]):
        receive(peer, frame)
        await turn()
    assert len(peer.answers()) == len(mine) == 5
    assert len({encode_frame(replace(answer, opaque=0)) for answer in peer.answers()}) == 1
    rig.gateway.beat()
    logged = [item for record in rig.publisher.unacked for item in record.items]
    assert [type(item.event) for item in logged] == [BrokerRegistered] + 4 * [BrokerHeartbeat]
    assert rig.request_metrics.count(ResponseCode.SUCCESS) == before + 5


# ---- decoding in another process ----


async def test_other_peers_are_answered_while_another_process_decodes_a_huge_registration(rig: Rig) -> None:
    peer, client = rig.connect(), rig.connect()
    receive(peer, HUGE)
    receive(client, QUERY)
    assert (opaques(client.answers()), known_brokers(rig)) == ([77], 0)
    await answered(peer)
    assert peer.answers()[0].code == ResponseCode.SUCCESS
    assert set(rig.view.table.topics()) == set(HUGE_SHAPE.topic_names)


async def test_a_huge_body_that_cannot_be_decoded_is_refused_and_others_are_answered(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    peer, other = rig.connect(), rig.connect()
    receive(peer, encode_frame(a_registration_request(body=b"[" + b" " * (2 << 20))))
    receive(other, HUGE)
    await answered(peer)
    await answered(other)
    assert [p.answers()[0].code for p in (peer, other)] == [ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS]
    assert not peer.is_closing()
    assert "decoder failed" not in caplog.text


async def test_a_server_that_cannot_start_a_process_decodes_huge_bodies_itself(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", fail)
    peer = rig.connect()
    receive(peer, HUGE)
    await answered(peer)
    assert peer.answers()[0].code == ResponseCode.SUCCESS
    assert not peer.is_reading_paused


async def test_a_body_from_another_process_changes_only_topics_that_differ(rig: Rig) -> None:
    changed: list[set[str]] = []
    peer = rig.connect()
    receive(peer, HUGE)
    await answered(peer)
    rig.view.table.on_changed = lambda _, topics: changed.append(set(topics or ()))
    one_more = Shape(topics=6_001, brokers=1, width=1)
    other = rig.connect()
    receive(other, next(iter(frames.registrations(one_more)))[0])
    await answered(other)
    assert changed[0] == set(one_more.topic_names) - set(HUGE_SHAPE.topic_names)


async def test_a_peer_that_disconnects_while_its_registration_is_decoded_is_forgotten(rig: Rig) -> None:
    peer, other = rig.connect(), rig.connect()
    receive(peer, HUGE)
    peer.close()
    receive(other, HUGE)
    await answered(other)
    assert len(other.answers()) == 1
    assert [c.connection_id for c in rig.connections] == [2]


# ---- ticks ----


@pytest.mark.parametrize("size", [16_380, 17_000])
async def test_a_peer_that_was_paused_and_sends_no_large_request_delays_no_tick(size: int) -> None:
    rig = Rig(turns=Turns(0))
    rig.talk()
    peer = rig.connect()
    response = encode_frame(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, flag=1, body=bytes(size - 130)))
    receive(peer, response[:-1])
    rig.beat()
    await turn()
    receive(peer, response[-1:])
    await turn()
    rig.commit()
    before = rig.publisher.kinds().count("tick")
    for _ in range(3):
        rig.beat()
        await turn()
    rig.publisher.ack()
    assert rig.publisher.kinds().count("tick") >= before + 3


@pytest.mark.parametrize("is_reconnected", [False, True])
async def test_no_tick_waits_for_the_decoding_of_a_registration_and_its_broker_does_not_expire(
    rig: Rig, decoder: ManualDecoder, is_reconnected: bool
) -> None:
    peer = rig.connect()

    def a_registration(body: bytes | None = None) -> bytes:
        return encode_frame(a_registration_request(body=body, brokerName="b", heartbeatTimeoutMillis="5000"))

    receive(peer, a_registration())
    await turn()
    rig.commit()
    if is_reconnected:
        assert peer.protocol is not None
        peer.protocol.abort("a limit of the server")
        peer = rig.connect()
    receive(peer, a_registration(BODY))
    for number in range(20):
        rig.beat()
        assert (rig.publisher.kinds(rig.publisher.unacked)[-1], len(decoder.waiting)) == ("tick", 1)
        assert [(r.kind, r.cause) for r in rig.commit() if r.gone] == []
        assert rig.publisher.kinds().count("tick") == number + 1
    decoder.release()
    await turn()
    assert rig.view.table.group("b").is_registered
    rig.publisher.ack()
    kinds = rig.publisher.kinds()
    rig.beat(2)
    rig.publisher.ack()
    assert rig.publisher.kinds()[len(kinds) :].count("broker_heartbeats") == 0


async def test_a_tick_that_waits_for_a_turn_does_not_wait_for_the_decoding_that_follows(
    decoder: ManualDecoder, rig: Rig
) -> None:
    peer = rig.connect()
    rig.gateway.backlog.wait(peer.protocol)  # type: ignore[arg-type]
    rig.beat()
    assert rig.publisher.queued_records == 0
    receive(peer, REGISTRATIONS[0])
    assert (rig.publisher.kinds(rig.publisher.unacked)[-1:], len(decoder.waiting)) == (["tick"], 1)


# ---- reading ----


async def test_large_requests_are_not_read_and_do_not_time_out_while_too_many_bytes_wait() -> None:
    limits = RemotingSettings(
        frame_timeout_ms=1_000, idle_timeout_ms=2_000, partial_frames_bytes=100_000, max_frame_bytes=70_000
    )
    rig = Rig(queue_records=1_000, limits=limits, turns=Turns(0))
    rig.talk()
    receive(rig.connect(), REGISTRATIONS[0])
    await turn()
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1][:20_000])
    client = rig.connect()
    receive(client, QUERY)
    assert peer.is_reading_paused

    for _ in range(10):
        rig.beat()
        rig.connections.beat(rig.gateway.observed_ms)
    assert not peer.is_closing()

    while peer.is_reading_paused or client.is_reading_paused:
        await turn()
    rig.connections.beat(rig.gateway.observed_ms)
    receive(peer, REGISTRATIONS[1][20_000:])
    for _ in range(3):
        await turn()
    assert (len(peer.answers()), len(client.answers())) == (1, 1)


async def test_of_brokers_that_register_at_once_few_are_read_until_their_requests_are_complete() -> None:
    limits = RemotingSettings(frame_timeout_ms=10_000, max_frame_bytes=1 << 20, partial_frames_bytes=8 << 20)
    rig = Rig(turns=Turns(0), limits=limits)
    rig.talk()
    registrations = [
        encode_frame(a_registration_request(f"10.0.0.{number}:1", brokerName=f"b{number}", body=BODY))
        for number in range(100)
    ]
    senders = {rig.connect(): frame for frame in registrations}
    client = rig.connect()
    rounds, most_held = [], 0
    while any(senders.values()):
        brought = 0
        for peer, left in senders.items():
            if left and not peer.is_reading_paused:
                receive(peer, left[:CHUNK])
                brought += len(left[:CHUNK])
                senders[peer] = left[CHUNK:]
        rounds.append(brought)
        most_held = max(most_held, rig.connections.partial_frames.size)
        if not client.is_reading_paused:
            receive(client, encode_frame(a_route_request("topic-7")))
        await turn()
    for peer in senders:
        await answered(peer)
    rig.decoder.stop()
    assert all(len(peer.answers()) == 1 for peer in senders)
    assert len(client.answers()) > 100
    # The first read of every peer cannot be prevented.
    assert max(rounds[1:]) <= 10 * CHUNK < rounds[0] == 100 * CHUNK
    assert most_held < limits.partial_frames_bytes < sum(map(len, registrations))


async def test_requests_after_a_large_request_in_parts_are_answered(rig: Rig) -> None:
    for size in (10_000, 70_000):
        peer = rig.connect()
        data = REGISTRATIONS[0] + QUERY + REGISTRATIONS[0] + QUERY
        for begin in range(0, len(data), size):
            receive(peer, data[begin : begin + size])
            while peer.is_reading_paused:
                await turn()
        assert [a.opaque == 77 for a in peer.answers()] == [False, True, False, True]
        assert {answer.code for answer in peer.answers()} <= {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}


async def test_a_connection_that_ends_inside_a_large_request_is_forgotten(rig: Rig) -> None:
    peer = rig.connect()
    receive(peer, HUGE[:100_000])
    assert rig.connections.partial_frames.size >= 100_000
    peer.abort()
    assert (len(rig.connections), rig.connections.partial_frames.size) == (0, 0)


async def test_the_rest_of_a_large_request_on_a_closing_connection_is_dropped(rig: Rig) -> None:
    peer = rig.connect("127.0.0.1")
    fields = {"namespace": "n", "key": "k", "value": "v"}
    receive(peer, encode_frame(RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=fields)))
    receive(peer, REGISTRATIONS[0][:20_000])
    assert peer.protocol is not None
    peer.protocol.close("a reason")
    assert not peer.is_closing()  # the change is not in the log yet
    receive(peer, REGISTRATIONS[0][20_000:])
    await turn()
    rig.publisher.ack()
    assert (peer.is_closing(), [answer.code for answer in peer.answers()]) == (True, [ResponseCode.SUCCESS])
    assert known_brokers(rig) == 0
