"""One connection: invalid bytes, slow readers, bugs in the server, and answers that must not be stale."""

import logging
import struct
from dataclasses import replace

import pytest

from namesrv_stream.remoting.command import ONEWAY_FLAG, RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.table import RouteTable
from tests.support.name_server import MASTER, a_broker_header, a_registration_request, a_route_request
from tests.support.server_rig import MemoryTransport, Rig, turn

CLUSTER_INFO = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=1)


def a_talking_rig(**changes: int) -> Rig:
    rig = Rig(**changes)  # type: ignore[arg-type]  # numbers only
    rig.talk()
    return rig


def receive(transport: MemoryTransport, data: bytes) -> None:
    transport.deliver(data)


@pytest.mark.parametrize(
    "first_bytes",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
        pytest.param(b"PROXY TCP4 10.0.0.1 10.0.0.2 1\r\n", id="malformed PROXY v1"),
        pytest.param(b"\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x0c", id="malformed PROXY v2"),
        pytest.param(b"PROXY UNKNOWN\r\n\x16\x03\x01", id="TLS behind a proxy"),
        pytest.param(b"PROXY UNKNOWN\r\nPROXY UNKNOWN\r\n", id="two preambles"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        pytest.param(struct.pack(">I", 3) + b"abc", id="no header word"),
    ],
)
async def test_a_connection_with_another_protocol_is_closed_with_one_log_line(
    first_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    receive(peer, first_bytes)
    assert peer.is_closing()
    assert (peer.received, len(rig.connections)) == (b"", 0)
    assert caplog.text.count("broke the protocol") == 1


async def test_valid_frames_before_garbage_are_answered() -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    receive(peer, encode_frame(CLUSTER_INFO) * 2 + b"\xff\xff\xff\xff" + encode_frame(CLUSTER_INFO))
    assert peer.is_closing()
    assert [a.code for a in peer.answers()] == [ResponseCode.SUCCESS] * 2


async def test_valid_frames_before_an_invalid_header_are_answered() -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    receive(peer, encode_frame(CLUSTER_INFO) + struct.pack(">II", 8, 4) + b"{x}}" + encode_frame(CLUSTER_INFO))
    assert peer.is_closing()
    assert len(peer.answers()) == 1


async def test_unread_answers_are_bounded() -> None:
    rig = a_talking_rig(write_buffer_bytes=256 * 1024, max_connections=1_000)
    for i in range(200):
        rig.ask(rig.connect(), a_registration_request(f"10.0.{i}.1:1", brokerName=f"b{i}"))
    size = len(encode_frame(rig.ask(rig.connect(), CLUSTER_INFO)))
    peer = rig.connect()
    peer.is_stuck = True
    receive(peer, encode_frame(CLUSTER_INFO) * 2_000)
    assert len(peer.buffered) < 256 * 1024 + 2 * 64 * 1024 + size
    assert peer.is_reading_paused


async def test_a_slow_reader_gets_all_answers_in_order() -> None:
    rig = a_talking_rig(write_buffer_bytes=64 * 1024)
    peer = rig.connect()
    peer.is_stuck = True
    receive(peer, b"".join(encode_frame(replace(CLUSTER_INFO, opaque=i)) for i in range(3_000)))
    assert peer.is_reading_paused
    while peer.buffered:
        peer.read_all()
    assert [a.opaque for a in peer.answers()] == list(range(3_000))
    assert not peer.is_reading_paused


async def test_garbage_closes_the_connection_after_its_earlier_answers_are_read() -> None:
    rig = a_talking_rig(write_buffer_bytes=64 * 1024)
    peer = rig.connect()
    peer.is_stuck = True
    receive(peer, encode_frame(CLUSTER_INFO) * 3_000 + b"\xff\xff\xff\xff")
    assert not peer.is_closing()
    while peer.buffered:
        peer.read_all()
    assert peer.is_closing()
    assert len(peer.answers()) == 3_000


async def test_the_configured_write_buffer_is_used() -> None:
    assert a_talking_rig(write_buffer_bytes=12_345).connect().high == 12_345


async def test_a_bug_in_the_server_is_answered_with_an_error_and_closes_no_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A close would count as the death of the brokers that registered over the connection."""
    rig = Rig()

    def fail(accepted: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(rig.gateway, "accept", fail)
    peer = rig.connect()
    with caplog.at_level(logging.ERROR):
        assert rig.ask(peer, a_registration_request()).code == ResponseCode.SYSTEM_ERROR
    assert rig.ask(peer, CLUSTER_INFO).code == ResponseCode.SUCCESS
    assert "unexpectedly" in caplog.text


async def test_a_bug_in_a_repeated_heartbeat_is_answered_and_closes_no_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    rig.ask(peer, a_registration_request())
    heartbeat = RemotingCommand(RequestCode.BROKER_HEARTBEAT, ext_fields=a_broker_header())
    for _ in range(2):
        assert rig.ask(peer, heartbeat).code == ResponseCode.SUCCESS

    def fail(accepted: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(rig.gateway, "accept_heartbeat", fail)
    with caplog.at_level(logging.ERROR):
        answer = rig.ask(peer, replace(heartbeat, opaque=77))
    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 77)
    assert rig.ask(peer, CLUSTER_INFO).code == ResponseCode.SUCCESS
    assert "unexpectedly" in caplog.text


async def test_oneway_requests_are_never_answered() -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    receive(peer, encode_frame(replace(CLUSTER_INFO, flag=ONEWAY_FLAG)))
    receive(peer, encode_frame(replace(a_registration_request(), flag=ONEWAY_FLAG)))
    assert peer.received == b""
    assert rig.view.table.group("broker-a").is_registered


async def test_an_unregistration_and_the_close_after_it_are_one_event() -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    rig.ask(peer, a_registration_request())
    rig.ask(peer, RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header()))
    peer.close()
    await turn()
    rig.publisher.ack()
    assert rig.publisher.kinds()[1:] == ["broker_registered", "broker_unregistered"]


async def test_all_brokers_of_a_closed_connection_are_removed_with_the_commit_of_the_fold() -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    for name in ("b1", "b2"):
        rig.ask(peer, a_registration_request(brokerName=name))
    peer.close()
    assert len(list(rig.view.table.registered_groups())) == 2
    await turn()
    rig.commit()
    assert not list(rig.view.table.registered_groups())


async def test_connections_above_the_limit_are_refused_until_another_closes(caplog: pytest.LogCaptureFixture) -> None:
    rig = a_talking_rig(max_connections=1)
    first, second = rig.connect(), rig.connect()
    assert (first.is_closing(), second.is_closing(), len(rig.connections)) == (False, True, 1)
    assert "too many" in caplog.text
    first.close()
    assert not rig.connect().is_closing()


async def test_a_broker_comes_back_although_others_fill_the_server() -> None:
    rig = a_talking_rig(max_connections=20)
    broker = rig.connect("10.1.1.1")
    rig.ask(broker, a_registration_request())
    others = [rig.connect(f"10.9.9.{number}") for number in range(30)]
    assert sum(not peer.is_closing() for peer in others) == 17
    broker.close()
    taken, back = rig.connect("10.9.9.31"), rig.connect("10.1.1.1")
    assert (taken.is_closing(), back.is_closing()) == (False, False)
    assert [rig.connect(host).is_closing() for host in ("10.9.9.32", "10.1.1.1")] == [True, False]


async def test_bytes_after_a_close_by_the_server_are_ignored() -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    connection = peer.protocol
    assert connection is not None
    connection.close("test")
    connection.data_received(encode_frame(a_registration_request()))
    assert not rig.view.table.group("broker-a").is_registered


async def test_idle_connections_are_closed_by_observed_time_only() -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    rig.clock.advance(3_600_000)
    rig.gateway.beat()
    rig.connections.beat(rig.gateway.observed_ms)
    assert not peer.is_closing()
    rig.beat(250)
    rig.connections.beat(rig.gateway.observed_ms)
    assert peer.is_closing()


async def test_the_connection_of_an_idle_peer_with_unread_answers_is_aborted() -> None:
    """A normal close would wait until the peer reads."""
    rig = a_talking_rig()
    peer = rig.connect()
    peer.is_stuck = True
    receive(peer, encode_frame(CLUSTER_INFO))
    rig.beat(250)
    rig.connections.beat(rig.gateway.observed_ms)
    assert (peer.is_aborted, len(rig.connections)) == (True, 0)


async def test_traffic_keeps_a_connection_open() -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    for _ in range(5):
        rig.beat(200)
        rig.ask(peer, CLUSTER_INFO)
        rig.connections.beat(rig.gateway.observed_ms)
    assert not peer.is_closing()


def a_queue_row(offset: int, queues: int) -> RouteChange:
    return RouteChange(
        0,
        offset,
        0,
        0,
        ChangeKind.QUEUE_DATA,
        False,
        "x",
        broker_name="broker-a",
        topic="TopicTest",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_sys_flag=0,
    )


async def settled_rig() -> tuple[Rig, MemoryTransport]:
    """Return a rig with a broker that is in the log but not committed, and a client that queried its route twice."""
    rig = a_talking_rig()
    broker, client = rig.connect(), rig.connect()
    rig.ask(broker, a_registration_request())
    for opaque in (1, 2):
        assert b'"readQueueNums":8' in (rig.ask(client, replace(a_route_request(), opaque=opaque)).body or b"")
    await turn()
    rig.publisher.ack()
    return rig, client


async def test_a_commit_changes_prepared_answers() -> None:
    rig, client = await settled_rig()
    group = rig.view.table.group("broker-a")
    table = RouteTable()
    table.replace_group(group)
    rig.served.reloaded(table, {0: 2})
    rig.ask(client, a_route_request())
    rig.served.committed([a_queue_row(2, 5)], {0: 3})
    assert b'"readQueueNums":5' in (rig.ask(client, a_route_request()).body or b"")


async def test_a_reload_changes_prepared_answers() -> None:
    rig, client = await settled_rig()
    rig.served.reloaded(RouteTable(), {0: 2})
    assert rig.ask(client, a_route_request()).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_disconnect_changes_prepared_answers() -> None:
    rig = a_talking_rig()
    broker, client = rig.connect(), rig.connect()
    rig.ask(broker, a_registration_request())
    for _ in range(2):
        assert rig.ask(client, a_route_request()).code == ResponseCode.SUCCESS
    broker.close()
    await turn()
    rig.commit()
    assert rig.ask(client, a_route_request()).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_dropped_event_changes_prepared_answers() -> None:
    rig = Rig(record_bytes=100)
    rig.talk()
    broker, client = rig.connect(), rig.connect()
    rig.ask(broker, a_registration_request())
    for _ in range(2):
        assert rig.ask(client, a_route_request()).code == ResponseCode.SUCCESS
    await turn()
    assert rig.ask(client, a_route_request()).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_reload_changes_the_cluster_info() -> None:
    rig, client = await settled_rig()
    assert MASTER.encode() in (rig.ask(client, CLUSTER_INFO).body or b"")
    rig.served.reloaded(RouteTable(), {0: 2})
    assert MASTER.encode() not in (rig.ask(client, CLUSTER_INFO).body or b"")


async def test_connection_ids_are_never_used_twice() -> None:
    rig = a_talking_rig()
    seen = set()
    for _ in range(3):
        peer = rig.connect()
        assert peer.protocol is not None
        seen.add(peer.protocol.connection_id)
        peer.close()
    assert len(seen) == 3


def test_a_connection_has_at_most_29_attributes() -> None:
    """For more attributes, Python makes a separate table, which costs 1.3 KB per connection."""
    rig = a_talking_rig()
    transport = rig.connect()
    receive(transport, encode_frame(CLUSTER_INFO))
    assert transport.protocol is not None
    assert len(vars(transport.protocol)) <= 29
