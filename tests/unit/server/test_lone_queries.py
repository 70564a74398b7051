"""A route query that is alone in its read takes a short path, with the same results."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from tests.support.name_server import a_body, a_registration_request, a_route_request, a_topic
from tests.support.server_rig import TICK_MS, MemoryTransport, Rig, turn

TOPICS = {"TopicTest": a_topic(), "Other": a_topic()}
QUERY = encode_frame(a_route_request())
#: Requests of every kind: queries that the short path answers, and requests that it must not answer.
ASKED = (
    QUERY,
    encode_frame(a_route_request("Other")),
    encode_frame(a_route_request("NoSuchTopic")),
    encode_frame(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=3)),
    encode_frame(a_route_request("TopicTest" + "x" * 20_000)),
    QUERY.replace(b"TopicTest", b'Topic"est'),
)


def a_rig(**changes: int) -> Rig:
    """A server that has answered such a query before."""
    rig = Rig(**changes)  # type: ignore[arg-type]  # numbers only
    rig.talk()
    rig.ask(rig.connect(), a_registration_request(body=a_body(TOPICS)))
    asking = rig.connect()
    for _ in range(2):
        assert rig.ask(asking, a_route_request()).code == ResponseCode.SUCCESS
    return rig


def receive(transport: MemoryTransport, data: bytes) -> None:
    if transport.protocol is not None:  # else it is closed
        transport.deliver(data)


def pass_time(rig: Rig, duration_ms: int) -> None:
    for _ in range(duration_ms // TICK_MS):
        rig.beat()
        rig.connections.beat(rig.gateway.observed_ms)


@given(st.lists(st.sampled_from(ASKED), max_size=8), st.lists(st.integers(1, 400), max_size=20))
def test_answers_do_not_depend_on_how_a_stream_is_split(asked: list[bytes], sizes: list[int]) -> None:
    async def compare() -> None:
        rig = a_rig()
        whole, cut, lone = rig.connect(), rig.connect(), rig.connect()
        stream = b"".join(asked)
        parts = []
        for size in sizes:
            parts.append(stream[:size])
            stream = stream[size:]
        parts.append(stream)
        for peer, brought in ((whole, [b"".join(asked)]), (cut, parts), (lone, asked)):
            for data in brought:
                if data:
                    receive(peer, data)
                for _ in range(len(asked)):  # a large request waits for its turn, and nothing is read meanwhile
                    await turn()
        assert whole.received == cut.received == lone.received

    asyncio.run(compare())


async def test_a_lone_query_is_counted_and_keeps_its_connection_open() -> None:
    rig = a_rig()
    peer = rig.connect()
    receive(peer, QUERY)
    counted = rig.request_metrics.count(ResponseCode.SUCCESS)
    pass_time(rig, 60_000)
    receive(peer, QUERY)
    assert rig.request_metrics.count(ResponseCode.SUCCESS) == counted + 1
    pass_time(rig, 100_000)
    assert not peer.is_closing()
    pass_time(rig, 60_000)
    assert peer.is_closing()


async def test_a_query_after_an_incomplete_frame_is_read_as_the_rest_of_that_frame() -> None:
    rig = a_rig()
    peer = rig.connect()
    receive(peer, QUERY)
    outer = encode_frame(a_registration_request("10.0.0.9:1", brokerName="b9", body=a_body(TOPICS)))
    receive(peer, outer[: -len(QUERY)])
    receive(peer, QUERY)  # now inside a body, which it makes unreadable
    assert [a.code for a in peer.answers()][1:] == [ResponseCode.SYSTEM_ERROR]


async def test_a_peer_that_does_not_read_gets_no_more_answers_until_it_does() -> None:
    rig = a_rig(write_buffer_bytes=4 * 1024)
    peer = rig.connect()
    receive(peer, QUERY)
    peer.is_stuck = True
    for _ in range(1_000):
        receive(peer, QUERY)  # as if the transport had read it already
    assert peer.is_reading_paused
    assert len(peer.buffered) < 8 * 1024
    while peer.buffered:
        peer.read_all()
    assert len(peer.answers()) == 1_001


async def test_a_connection_that_is_to_leave_is_closed_after_a_lone_query() -> None:
    rig = a_rig()
    peer = rig.connect()
    receive(peer, QUERY)
    for connection in rig.connections:
        connection.leave()
    receive(peer, QUERY)
    assert peer.is_closing()
    assert len(peer.answers()) == 2


@pytest.mark.parametrize("behind", [b"", QUERY], ids=["alone", "with a query"])
async def test_a_lone_query_after_a_preamble_is_answered(behind: bytes) -> None:
    rig = a_rig()
    peer = rig.connect()
    receive(peer, b"PROXY UNKNOWN\r\n" + behind)
    receive(peer, QUERY)
    assert len(peer.answers()) == 1 + bool(behind)


async def test_a_lone_query_returns_the_current_route() -> None:
    rig = a_rig()
    peer, broker = rig.connect(), rig.connect()
    receive(peer, QUERY)
    receive(peer, QUERY)
    other = a_registration_request("10.0.0.9:1", brokerName="b9", body=a_body(TOPICS))
    rig.ask(broker, other)
    receive(peer, QUERY)
    broker.close()
    await turn()
    rig.commit()
    receive(peer, QUERY)
    bodies = [a.body or b"" for a in peer.answers()]
    assert [b"10.0.0.9" in body for body in bodies] == [False, False, True, False]
