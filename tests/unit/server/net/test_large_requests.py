"""Large requests are read and answered one after another, and other peers are answered in between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered
from namesrv_stream.server.net.large_requests import LargeRequests
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
    rig = Rig(queue_records=1_000, limits=RemotingSettings(frame_timeout_ms=1_000, idle_timeout_ms=2_000))
    rig.talk()
    yield rig
    rig.large_requests.stop()


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


async def test_one_large_request_is_answered_per_iteration_of_the_event_loop(rig: Rig) -> None:
    brokers = [rig.connect() for _ in REGISTRATIONS]
    for broker, registration in zip(brokers, REGISTRATIONS, strict=True):
        receive(broker, registration)
    seen = [known_brokers(rig)]
    for _ in REGISTRATIONS:
        await turn()
        seen.append(known_brokers(rig))
    assert seen == [0, 1, 2, 3]
    assert [len(broker.answers()) for broker in brokers] == [1, 1, 1]


async def test_another_peer_is_answered_before_waiting_large_requests(rig: Rig) -> None:
    for registration in REGISTRATIONS:
        receive(rig.connect(), registration)
    await turn()
    client = rig.connect()
    receive(client, QUERY)
    assert known_brokers(rig) == 1
    assert opaques(client.answers()) == [77]


async def test_requests_of_a_peer_are_answered_in_order_and_the_peer_is_read_again(rig: Rig) -> None:
    receive(rig.connect(), REGISTRATIONS[0])
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1], QUERY, REGISTRATIONS[2], QUERY)
    assert (peer.received, peer.is_reading_paused) == (b"", True)
    for _ in range(3):
        await turn()
    assert [a.opaque == 77 for a in peer.answers()] == [False, True, False, True]
    assert not peer.is_reading_paused


async def test_a_large_request_of_a_disconnected_peer_is_dropped(rig: Rig) -> None:
    receive(rig.connect(), REGISTRATIONS[0])
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1])
    peer.close()
    for _ in range(3):
        await turn()
    assert known_brokers(rig) == 1


async def test_a_leaving_connection_is_closed_after_the_answer_to_its_large_request(rig: Rig) -> None:
    peer = rig.connect()
    receive(peer, REGISTRATIONS[0])
    for connection in rig.connections:
        connection.leave()
    assert not peer.is_closing()
    await turn()
    assert (len(peer.answers()), peer.is_closing()) == (1, True)


async def test_a_peer_whose_large_request_waits_is_not_closed_by_the_frame_timeout(rig: Rig) -> None:
    peer = rig.connect()
    receive(peer, REGISTRATIONS[0], QUERY[:20])
    for _ in range(10):
        rig.beat()
        rig.connections.beat(rig.gateway.observed_ms)
    await turn()
    rig.connections.beat(rig.gateway.observed_ms)
    receive(peer, QUERY[20:])
    assert len(peer.answers()) == 2


async def test_a_large_request_is_answered_before_its_connection_is_closed_for_invalid_bytes(rig: Rig) -> None:
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1], b"\x00\x00\x00\x01abcd")
    assert not peer.is_closing()
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
    rig = Rig(large_requests=LargeRequests(turn_bytes=1_000))
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


# ---- reading ----


class Peer:
    """A peer that records whether its reading is paused."""

    def __init__(self) -> None:
        self.is_held = False
        self.held = 0

    def hold_reading(self, *, is_held: bool) -> None:
        assert is_held is not self.is_held, "called twice with the same value"
        self.is_held = is_held
        self.held += is_held


def a_reader_queue() -> LargeRequests:
    return LargeRequests(turn_bytes=100, min_resumed=2)


async def test_peers_in_large_frames_are_paused_after_the_share_of_an_iteration_and_resume_in_order() -> None:
    requests = a_reader_queue()
    peers = [Peer() for _ in range(6)]
    for peer in peers[:5]:
        requests.read(peer, 25, is_partial=True)
    assert [peer.is_held for peer in peers] == [True, True, True, True, True, False]
    await turn()
    assert [peer.is_held for peer in peers] == [False, False, True, True, True, False]
    requests.read(peers[0], 60, is_partial=True)
    await turn()
    assert [peer.is_held for peer in peers] == [False] * 4 + [True, False]
    await turn()
    assert not any(peer.is_held for peer in peers)


async def test_every_iteration_of_the_event_loop_has_a_new_share() -> None:
    requests, peer = a_reader_queue(), Peer()
    for _ in range(10):
        requests.read(peer, 90, is_partial=True)
        await turn()
    assert peer.held == 0


async def test_peers_that_have_sent_all_or_are_forgotten_are_not_paused() -> None:
    requests = a_reader_queue()
    done, gone, other = Peer(), Peer(), Peer()
    requests.read(done, 20, is_partial=True)
    requests.read(done, 20, is_partial=False)
    requests.read(gone, 20, is_partial=True)
    requests.forget(gone)
    requests.read(other, 40, is_partial=True)
    assert [done.is_held, gone.is_held, other.is_held] == [False, False, True]
    requests.forget(other)
    await turn()
    assert other.is_held, "a forgotten connection is not resumed"


async def test_an_iteration_reads_its_share_however_many_peers_send() -> None:
    requests = a_reader_queue()
    left = {Peer(): 1_000 for _ in range(100)}
    reads = []
    while any(left.values()):
        read = 0
        for peer in [peer for peer, size in left.items() if size]:
            if not peer.is_held:  # the event loop handles all reads of one poll before the next iteration
                left[peer] -= 20
                read += 20
                requests.read(peer, 20, is_partial=left[peer] > 0)
        reads.append(read)
        await turn()
    # The first read of every peer cannot be prevented.
    assert max(reads[1:]) <= 120 < reads[0] == 2_000
    assert len(reads) < 2_500, "not much less than the share"


async def test_many_peers_that_send_little_do_not_keep_another_from_being_read() -> None:
    requests = a_reader_queue()
    little, busy = [Peer() for _ in range(500)], Peer()
    reads = 0
    for _ in range(200):
        for peer in little:
            if not peer.is_held:
                requests.read(peer, 0, is_partial=True)
        if not busy.is_held:
            reads += 1
            requests.read(busy, 100, is_partial=True)
        await turn()
    assert reads > 15


async def test_a_peer_that_fails_does_not_keep_others_paused() -> None:
    class Failing(Peer):
        def hold_reading(self, *, is_held: bool) -> None:
            super().hold_reading(is_held=is_held)
            if not is_held:
                raise RuntimeError("a bug")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
    requests = a_reader_queue()
    peers = [Failing(), *(Peer() for _ in range(4))]
    for peer in peers:
        requests.read(peer, 25, is_partial=True)
    for _ in range(3):
        await turn()
    assert not any(peer.is_held for peer in peers)


async def test_large_requests_are_not_read_and_do_not_time_out_while_too_many_bytes_wait() -> None:
    rig = Rig(
        queue_records=1_000,
        limits=RemotingSettings(frame_timeout_ms=1_000, idle_timeout_ms=2_000),
        large_requests=LargeRequests(queue_bytes=10_000),
    )
    rig.talk()
    receive(rig.connect(), REGISTRATIONS[0])
    peer = rig.connect()
    receive(peer, REGISTRATIONS[1][:20_000])
    client = rig.connect()
    receive(client, QUERY)
    assert (peer.is_reading_paused, client.is_reading_paused) == (True, False)

    for _ in range(10):
        rig.beat()
        receive(client, QUERY)
        rig.connections.beat(rig.gateway.observed_ms)
    assert not peer.is_closing()

    while peer.is_reading_paused:
        await turn()
    rig.connections.beat(rig.gateway.observed_ms)
    receive(peer, REGISTRATIONS[1][20_000:])
    await turn()
    assert len(peer.answers()) == 1


async def test_brokers_that_register_at_once_are_read_alternately_and_all_answered() -> None:
    rig = Rig(large_requests=LargeRequests(turn_bytes=3 * CHUNK, min_resumed=1))
    rig.talk()
    registrations = [
        encode_frame(a_registration_request(f"10.0.0.{number}:1", brokerName=f"b{number}", body=BODY))
        for number in range(10)
    ]
    senders = {rig.connect(): frame for frame in registrations}
    client = rig.connect()
    rounds = []
    while any(senders.values()):
        brought = 0
        for peer, left in senders.items():
            if left and not peer.is_reading_paused:
                receive(peer, left[:CHUNK])
                brought += len(left[:CHUNK])
                senders[peer] = left[CHUNK:]
        rounds.append(brought)
        assert not client.is_reading_paused
        receive(client, encode_frame(a_route_request("topic-7")))
        await turn()
    for _ in range(20):
        await turn()
    assert all(len(peer.answers()) == 1 for peer in senders)
    # A peer counts only after the first part of its large frame.
    assert max(rounds[1:]) <= 4 * CHUNK < rounds[0] == 10 * CHUNK


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
