"""Peers: trusted or not, directly or behind a proxy; and why the server closes the connection of a peer."""

import logging
import struct
from collections.abc import Callable

import pytest

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.events import Origin
from namesrv_stream.settings import RemotingSettings
from tests.support.builders import Log, a_registration
from tests.support.name_server import MASTER, a_broker_header, a_registration_request
from tests.support.server_rig import TICK_MS, MemoryTransport, Rig, turn

CLUSTER_INFO = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=1)
#: An untrusted peer may not send this request. It is not logged, because the broker is unknown.
WIPE = RemotingCommand(RequestCode.WIPE_WRITE_PERM_OF_BROKER, opaque=2, ext_fields={"brokerName": "nobody"})
V1 = b"PROXY TCP4 192.0.2.7 198.51.100.2 56324 9876\r\n"
V2 = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11" + struct.pack(">H", 12) + bytes([192, 0, 2, 7, 1, 2, 3, 4]) + b"\xdc\x04\x26\x94"
V2_LOCAL = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"


def a_talking_rig() -> Rig:
    rig = Rig()
    rig.talk()
    return rig


def receive(transport: MemoryTransport, data: bytes) -> None:
    transport.deliver(data)


def codes(transport: MemoryTransport) -> list[int]:
    return [a.code for a in transport.answers()]


# ---- peers ----


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
async def test_an_operator_on_the_same_machine_is_trusted(host: str) -> None:
    rig = a_talking_rig()
    assert rig.ask(rig.connect(host), WIPE).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("host", ["10.9.9.9", "::ffff:10.9.9.9", "2001:db8::1", ""])
async def test_an_operator_on_another_machine_is_not_trusted(host: str) -> None:
    rig = a_talking_rig()
    assert rig.ask(rig.connect(host), WIPE).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("preamble", [V1, V2, V2_LOCAL, b"PROXY UNKNOWN\r\n"])
async def test_a_peer_behind_a_proxy_is_not_trusted(preamble: bytes) -> None:
    rig = a_talking_rig()
    peer = rig.connect("127.0.0.1")
    receive(peer, preamble + encode_frame(CLUSTER_INFO) + encode_frame(WIPE))
    assert codes(peer) == [ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION]


@pytest.mark.parametrize("preamble", [V1, V2])
async def test_a_preamble_that_arrives_byte_by_byte_is_read(preamble: bytes) -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    for byte in preamble + encode_frame(CLUSTER_INFO):
        receive(peer, bytes([byte]))
    receive(peer, encode_frame(CLUSTER_INFO))
    assert codes(peer) == [ResponseCode.SUCCESS] * 2


async def test_a_preamble_after_the_first_frame_breaks_the_protocol() -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    receive(peer, encode_frame(CLUSTER_INFO) + V1)
    assert codes(peer) == [ResponseCode.SUCCESS]
    assert peer.is_closing()


@pytest.mark.parametrize("preamble", [V1, V2])
async def test_the_log_names_the_peer_behind_the_proxy(preamble: bytes, caplog: pytest.LogCaptureFixture) -> None:
    rig = a_talking_rig()
    peer = rig.connect()
    with caplog.at_level(logging.WARNING):
        receive(peer, preamble + b"\xff\xff\xff\xff")
    assert "peer=10.9.9.9:4711 for 192.0.2.7:56324" in caplog.text


async def test_the_log_says_that_tls_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    rig = a_talking_rig()
    with caplog.at_level(logging.WARNING):
        receive(rig.connect(), b"\x16\x03\x01")
    assert "this server has no TLS" in caplog.text


# ---- expired brokers ----


def an_expiry(offset: int, addr: str = MASTER, name: str = "broker-a", server: str = "s1") -> RouteChange:
    """Return the row that removes the last holder of a broker because the broker expired."""
    return RouteChange(
        0,
        offset,
        0,
        0,
        ChangeKind.HOLDER,
        True,
        Cause.EXPIRED,
        cluster="c0",
        broker_name=name,
        broker_addr=addr,
        server_id=server,
    )


async def a_rig_with_brokers(*names: str) -> tuple[Rig, MemoryTransport]:
    """Return a rig, and a connection over which brokers registered; everything is committed."""
    rig = a_talking_rig()
    broker = rig.connect()
    for name in names:
        rig.ask(broker, a_registration_request(brokerName=name))
    await turn()
    rig.publisher.ack()
    log = Log()
    rows = [row for record in rig.publisher.log for row in log.append(record.value)]
    rig.served.committed(rows, {0: len(log.records)})
    assert rig.view.pending_count == 0
    return rig, broker


async def test_the_connection_of_an_expired_broker_is_closed() -> None:
    rig, broker = await a_rig_with_brokers("broker-a")
    rig.served.committed(expiry_of(rig, "broker-a"), {0: 100})
    assert broker.is_closing()
    rig.beat()
    rig.publisher.ack()
    assert "broker_disconnected" not in rig.publisher.kinds()


async def test_a_connection_stays_open_until_all_its_brokers_have_expired() -> None:
    rig, container = await a_rig_with_brokers("broker-a", "broker-b")
    rig.served.committed(expiry_of(rig, "broker-a"), {0: 100})
    assert not container.is_closing()
    rig.served.committed(expiry_of(rig, "broker-b"), {0: 101})
    assert container.is_closing()


async def test_a_broker_that_registered_over_another_connection_keeps_that_one() -> None:
    rig, broker = await a_rig_with_brokers("broker-a")
    other = rig.connect()
    rows = expiry_of(rig, "broker-a")
    rig.ask(other, a_registration_request(body=None))
    rig.served.committed(rows, {0: 100})
    assert not other.is_closing()
    assert broker.is_closing()


async def test_an_expiry_at_another_server_or_of_an_earlier_start_closes_no_connection() -> None:
    rig, broker = await a_rig_with_brokers("broker-a")
    rig.served.committed([an_expiry(50, server="s2")], {0: 51})
    assert not broker.is_closing()

    log = Log()
    earlier = log.register(a_registration(broker_name="old"), server=Origin("s1", 6))
    rig.served.committed(earlier, {0: 52})
    rig.served.committed([an_expiry(53, name="old")], {0: 54})
    assert not broker.is_closing()


async def test_an_unregistration_closes_no_connection() -> None:
    rig, broker = await a_rig_with_brokers("broker-a")
    rig.ask(broker, RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header()))
    await turn()
    rig.publisher.ack()
    rows = [r._replace(cause=Cause.UNREGISTERED) for r in expiry_of(rig, "broker-a")]
    rig.served.committed(rows, {0: 100})
    assert not broker.is_closing()


def expiry_of(rig: Rig, name: str) -> list[RouteChange]:
    row = an_expiry(99, name=name)
    life = row._replace(kind=ChangeKind.BROKER_LIVE, server_id=None)
    data = row._replace(kind=ChangeKind.BROKER_DATA, server_id=None, broker_addr=None, cluster=None)
    return [data, life, row]


# ---- requests in flight ----


async def test_operators_changes_that_wait_for_the_log_are_bounded_per_connection() -> None:
    rig = Rig(limits=RemotingSettings(max_requests_in_flight=3))
    rig.talk()
    operator, other = rig.connect("127.0.0.1"), rig.connect("127.0.0.1")
    for number in range(5):
        fields = {"namespace": "n", "key": f"k{number}", "value": "v"}
        receive(operator, encode_frame(RemotingCommand(RequestCode.PUT_KV_CONFIG, opaque=number, ext_fields=fields)))
    assert [(answer.opaque, answer.code) for answer in operator.answers()] == [
        (3, ResponseCode.SYSTEM_BUSY),
        (4, ResponseCode.SYSTEM_BUSY),
    ]
    fields = {"namespace": "n", "key": "k", "value": "v"}
    receive(other, encode_frame(RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=fields)))
    await turn()
    rig.publisher.ack()
    assert sorted(codes(operator)) == [ResponseCode.SUCCESS] * 3 + [ResponseCode.SYSTEM_BUSY] * 2
    assert codes(other) == [ResponseCode.SUCCESS]


# ---- connections that the server closes for its own limits ----


def a_limited_rig() -> Rig:
    limits = RemotingSettings(
        partial_frames_bytes=300_000,
        unread_answers_bytes=100_000,
        write_buffer_bytes=10_000,
        frame_timeout_ms=1_000,
        slow_reader_ms=2_000,
        idle_timeout_ms=4_000,
    )
    rig = Rig(limits=limits)
    rig.talk()
    return rig


def begin_frame(peer: MemoryTransport, size: int) -> None:
    peer.deliver((16_000_000).to_bytes(4, "big") + bytes(size - 4))


def pass_time(rig: Rig, ms: int) -> None:
    for _ in range(ms // TICK_MS + 1):
        rig.beat()
        rig.publisher.ack()
        rig.connections.beat(rig.gateway.observed_ms)


def crowd(rig: Rig, broker: MemoryTransport) -> None:
    begin_frame(broker, 400_000)


def be_late(rig: Rig, broker: MemoryTransport) -> None:
    begin_frame(broker, 1_000)
    pass_time(rig, 1_500)


def read_slowly(rig: Rig, broker: MemoryTransport) -> None:
    broker.is_stuck = True
    while len(broker.buffered) <= 10_000:
        receive(broker, encode_frame(CLUSTER_INFO))
    pass_time(rig, 2_500)


def read_nothing(rig: Rig, broker: MemoryTransport) -> None:
    broker.is_stuck, broker.high = True, 1 << 20
    while len(broker.buffered) <= 100_000:
        receive(broker, encode_frame(CLUSTER_INFO))
    rig.connections.beat(rig.gateway.observed_ms)


def be_idle(rig: Rig, broker: MemoryTransport) -> None:
    pass_time(rig, 4_500)


def break_protocol(rig: Rig, broker: MemoryTransport) -> None:
    receive(broker, b"\xff\xff\xff\xff")


@pytest.mark.parametrize("provoke", [crowd, be_late, read_slowly, read_nothing, be_idle, break_protocol])
async def test_a_connection_that_the_server_closes_itself_removes_no_broker(
    provoke: Callable[[Rig, MemoryTransport], None],
) -> None:
    rig = a_limited_rig()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    await turn()
    rig.commit()
    provoke(rig, broker)
    assert broker.is_closing()
    assert not rig.gateway.is_blind_for(0)
    await turn()
    rig.commit()
    assert "broker_disconnected" not in rig.publisher.kinds()
    assert rig.view.table.group("broker-a").is_registered


async def test_other_peers_are_closed_before_a_broker_that_sends_its_registration() -> None:
    rig = a_limited_rig()
    broker = rig.connect()
    rig.ask(broker, a_registration_request())
    begin_frame(broker, 60_000)
    strangers = [rig.connect() for _ in range(20)]
    for stranger in strangers:
        begin_frame(stranger, 60_000)
    assert not broker.is_closing()
    assert [stranger.is_closing() for stranger in strangers] == [True] * 16 + [False] * 4


async def test_other_peers_that_do_not_read_are_closed_before_a_broker() -> None:
    rig = a_limited_rig()
    broker, stranger = rig.connect(), rig.connect()
    rig.ask(broker, a_registration_request())
    for peer, most in ((broker, 70_000), (stranger, 40_000)):
        peer.is_stuck, peer.high = True, 1 << 20
        while len(peer.buffered) <= most:
            receive(peer, encode_frame(CLUSTER_INFO))
    rig.connections.beat(rig.gateway.observed_ms)
    assert (broker.is_closing(), stranger.is_closing()) == (False, True)
