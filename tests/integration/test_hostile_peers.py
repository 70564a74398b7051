"""Hostile peers over real sockets: wrong data, slow data, floods and false identities.

The servers trust no network, so every peer is untrusted.
"""

import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import orjson
import pytest

from namesrv_stream.processor.authorisation import ADMIN_CODES, BROKER_CODES
from namesrv_stream.processor.name_server import Access, networks_of
from namesrv_stream.remoting.command import RequestCode, ResponseCode
from namesrv_stream.settings import RemotingSettings, Settings
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient, encode_request
from tests.support.remoting_rig import RemotingRig

pytestmark = pytest.mark.integration

MIB = 1 << 20
DEADLINE_S = 60.0
STRANGERS = Access(trusted_networks=(), accounts={"ops": "s3cret"})
NOBODY = Access(trusted_networks=(), accounts={"ops": "s3cret"}, broker_networks=())
BROKER = {"clusterName": "c0", "brokerName": "b0", "brokerAddr": "10.0.0.1:10911", "brokerId": "0"}
BODY = orjson.dumps(
    {
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 1, "timestamp": 1, "stateVersion": 0},
            "topicConfigTable": {
                name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
                for name in ("TopicA", "TopicB")
            },
        },
        "filterServerList": [],
    }
)


def register(client: RemotingClient, body: bytes = BODY, **fields: str) -> int:
    header = {**BROKER, "haServerAddr": "10.0.0.1:10912", "bodyCrc32": str(zlib.crc32(body)), **fields}
    return client.ask(RequestCode.REGISTER_BROKER, header, body).code


def route_code(addr: str, topic: str = "TopicA") -> int:
    with RemotingClient(addr) as client:
        return client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code


def is_closed(peer: socket.socket) -> bool:
    """Wait for the server to close the connection; returns whether it did."""
    peer.settimeout(DEADLINE_S)
    with suppress(ConnectionError):
        while peer.recv(65_536):
            pass
    return True


def connect(addr: str) -> socket.socket:
    host, _, port = addr.rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def rss_mib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // MIB


@pytest.fixture
def with_broker() -> Iterator[RemotingRig]:
    """A server with one broker, default limits and empty network lists."""
    with RemotingRig(access=STRANGERS) as rig, RemotingClient(rig.addr) as broker:
        assert register(broker) == ResponseCode.SUCCESS
        yield rig


# ---- permissions ----


def test_untrusted_peer_changes_nothing_with_any_request_code() -> None:
    with RemotingRig(access=NOBODY) as rig, RemotingClient(rig.addr) as stranger:
        answered: dict[int, int] = {}
        fields = {**BROKER, "topic": "TopicA", "namespace": "n", "key": "k", "value": "v"}
        for code in [*range(1100), 2**15 - 1, *map(int, RequestCode)]:
            answered[code] = stranger.ask(code, fields, b"enableTopicList=false").code
        assert {code for code, answer in answered.items() if answer == ResponseCode.NO_PERMISSION} == (
            {int(code) for code in ADMIN_CODES | BROKER_CODES}
        )
        assert rig.on_loop(lambda: (list(rig.rig.view.table.groups), dict(rig.rig.view.table.kv))) == ([], {})
        kinds = rig.on_loop(lambda: set(rig.rig.publisher.kinds() + rig.rig.publisher.kinds(rig.rig.publisher.unacked)))
        assert kinds <= {"server_started", "tick"}


@pytest.mark.parametrize("code", sorted(ADMIN_CODES))
def test_admin_request_of_an_untrusted_peer_is_refused_by_default(with_broker: RemotingRig, code: int) -> None:
    with RemotingClient(with_broker.addr) as stranger:
        fields = {**BROKER, "topic": "TopicA", "namespace": "n", "key": "k", "value": "v"}
        assert stranger.ask(code, fields, b"configStorePath=/tmp/x").code == ResponseCode.NO_PERMISSION
    assert route_code(with_broker.addr) == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "fields",
    [{"AccessKey": "ops"}, {"AccessKey": "ops", "Signature": ""}, {"AccessKey": "", "Signature": "AAAA"}],
)
def test_incomplete_signature_is_refused(with_broker: RemotingRig, fields: dict[str, str]) -> None:
    with RemotingClient(with_broker.addr) as stranger:
        answer = stranger.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "TopicA", **fields})
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "s3cret" not in str(answer)


def test_no_secret_is_configured_by_default() -> None:
    settings = Settings()
    assert (dict(settings.admin.accounts), settings.admin.accounts_file) == ({}, "")
    assert settings.tls.key_password.get_secret_value() == ""
    assert not settings.admin.enable_config_update


def test_heartbeat_with_another_cluster_does_not_keep_a_broker_alive(with_broker: RemotingRig) -> None:
    with RemotingClient(with_broker.addr) as spoofer:
        fields = BROKER | {"clusterName": "c1"}
        spoofer.ask(RequestCode.BROKER_HEARTBEAT, fields)
        spoofer.ask(RequestCode.QUERY_DATA_VERSION, fields, b"{}")
        spoofer.ask(RequestCode.UNREGISTER_BROKER, fields)
    assert route_code(with_broker.addr) == ResponseCode.SUCCESS
    assert "c1" not in with_broker.on_loop(lambda: repr(with_broker.rig.view.table.groups))


def test_peer_outside_the_broker_networks_cannot_register_or_remove_a_broker() -> None:
    brokers_only = Access(trusted_networks=(), broker_networks=networks_of(["127.0.0.0/8"]))
    with RemotingRig(access=brokers_only, host="::") as rig:
        port = rig.addr.rpartition(":")[2]
        with RemotingClient(f"127.0.0.1:{port}") as broker, RemotingClient(f"::1:{port}") as stranger:
            assert register(broker) == ResponseCode.SUCCESS
            assert register(stranger, brokerName="b1") == ResponseCode.NO_PERMISSION
            for code in BROKER_CODES:
                assert stranger.ask(code, {**BROKER, "topic": "TopicA"}).code == ResponseCode.NO_PERMISSION
        assert rig.on_loop(lambda: "b1" not in rig.rig.view.table.groups)


# ---- decompression bombs and wrong lengths ----


def test_frames_of_16_mib_from_many_peers_stay_within_the_memory_limit() -> None:
    limits = RemotingSettings(partial_frames_bytes=64 * MIB)
    with RemotingRig(limits, access=STRANGERS) as rig, ExitStack() as peers, RemotingClient(rig.addr) as broker:
        before_mib = rss_mib()
        piece = bytes(MIB)
        for _ in range(24):
            peer = peers.enter_context(connect(rig.addr))
            peer.sendall(struct.pack(">I", 16 * MIB - 4))
            with suppress(ConnectionError):  # the server closes the oldest connection
                for _ in range(15):  # 360 MiB in all
                    peer.sendall(piece)
        assert rig.on_loop(lambda: rig.rig.connections.partial_frames.size) <= 64 * MIB
        assert rig.on_loop(lambda: rig.rig.connection_events("crowded")) >= 24 - 64 // 15 - 1
        assert register(broker) == ResponseCode.SUCCESS, "a peer that sends complete frames is served"
        assert rss_mib() - before_mib < 200


def test_compressed_registration_of_a_gibibyte_is_refused_within_16_mib(with_broker: RemotingRig) -> None:
    deflater = zlib.compressobj(9)
    bomb = b"".join(deflater.compress(bytes(16 * MIB)) for _ in range(64)) + deflater.flush()
    before_mib = rss_mib()
    with RemotingClient(with_broker.addr) as peer:
        assert register(peer, bomb, brokerName="bomb", compressed="true") == ResponseCode.SYSTEM_ERROR
    assert rss_mib() - before_mib < 120
    assert route_code(with_broker.addr) == ResponseCode.SUCCESS


def test_json_nested_a_million_deep_is_refused(with_broker: RemotingRig) -> None:
    with RemotingClient(with_broker.addr) as peer:
        assert register(peer, b"[" * 1_000_000, brokerName="deep") == ResponseCode.SYSTEM_ERROR
        assert register(peer, b'{"a":' * 1_000_000, brokerName="deep") == ResponseCode.SYSTEM_ERROR
    assert route_code(with_broker.addr) == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(struct.pack(">I", 0xFFFFFFFF), id="negative length"),
        pytest.param(struct.pack(">I", 16 * MIB + 1), id="longer than any frame"),
        pytest.param(struct.pack(">I", 0), id="shorter than any frame"),
        pytest.param(struct.pack(">II", 8, 0x00FFFFFF) + bytes(4), id="header longer than its frame"),
        pytest.param(struct.pack(">II", 8, 0x7F000004) + bytes(4), id="unknown serialisation"),
        pytest.param(struct.pack(">II", 5, 0x01000001) + b"\x00", id="binary header of a byte"),
    ],
)
def test_wrong_frame_length_closes_only_its_own_connection(with_broker: RemotingRig, lie: bytes) -> None:
    with connect(with_broker.addr) as liar:
        liar.sendall(lie)
        assert is_closed(liar)
    assert route_code(with_broker.addr) == ResponseCode.SUCCESS


# ---- slow peers ----


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(encode_request(106, 1)[:-1], id="a frame without its last byte"),
        pytest.param(b"\x00", id="one byte"),
        pytest.param(b"PROXY TCP4 10.0.0.1", id="half a preamble"),
    ],
)
def test_incomplete_frame_is_closed_after_its_time_limit(begin: bytes) -> None:
    with RemotingRig(RemotingSettings(frame_timeout_ms=10_000)) as rig, connect(rig.addr) as loris:
        loris.sendall(begin)
        wait_until(lambda: rig.on_loop(lambda: rig.rig.connections.partial_frames.size), DEADLINE_S, "it is there")
        rig.pass_time(9_000)
        assert len(rig.rig.connections) == 1
        rig.pass_time(2_000)
        assert is_closed(loris)
        assert rig.on_loop(lambda: rig.rig.connection_events("late")) == 1


def test_slow_loris_is_closed_despite_single_bytes() -> None:
    frame = struct.pack(">I", 1_000)
    with RemotingRig(RemotingSettings(frame_timeout_ms=10_000)) as rig, connect(rig.addr) as loris:
        loris.sendall(frame)
        wait_until(lambda: rig.on_loop(lambda: rig.rig.connections.partial_frames.size), DEADLINE_S, "it is there")
        connection = next(iter(rig.rig.connections))
        for _ in range(4):
            rig.pass_time(2_000)
            loris.sendall(b"x")
            wait_until(
                lambda: rig.on_loop(lambda: connection.active_ms == rig.rig.gateway.observed_ms),
                DEADLINE_S,
                "the byte is buffered",
            )
        assert len(rig.rig.connections) == 1
        rig.pass_time(3_000)
        assert is_closed(loris)


def test_peer_that_completes_its_frames_stays_connected() -> None:
    """Every read ends within another frame, so that a partial frame is always buffered."""
    frame = encode_request(106, 1)
    with RemotingRig(RemotingSettings(frame_timeout_ms=2_000)) as rig, connect(rig.addr) as busy:
        busy.sendall(frame[:5])
        for _ in range(10):
            wait_until(
                lambda: rig.on_loop(lambda: rig.rig.connections.partial_frames.size) == 5,
                DEADLINE_S,
                "the partial frame is read",
            )
            rig.pass_time(1_000)
            busy.sendall(frame[5:] + frame[:5])
            assert busy.recv(65_536)
        assert len(rig.rig.connections) == 1


def test_idle_connection_is_closed_after_two_minutes_as_by_java() -> None:
    with RemotingRig() as rig, connect(rig.addr) as silent:
        wait_until(lambda: len(rig.rig.connections), DEADLINE_S, "it is there")
        rig.pass_time(119_000)
        assert len(rig.rig.connections) == 1
        rig.pass_time(2_000)
        assert is_closed(silent)


def _ask_without_reading(peer: socket.socket, requests: int) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.settimeout(1)
    with suppress(TimeoutError, ConnectionError):  # the server stops reading
        peer.sendall(encode_request(RequestCode.GET_BROKER_CLUSTER_INFO, 1) * requests)


def test_peer_that_reads_nothing_is_closed() -> None:
    limits = RemotingSettings(slow_reader_ms=5_000, write_buffer_bytes=64 * 1024)
    with RemotingRig(limits) as rig, RemotingClient(rig.addr) as broker, connect(rig.addr) as slow:
        register(broker)
        _ask_without_reading(slow, 60_000)
        wait_until(lambda: rig.on_loop(rig.rig.connections.unread_bytes), DEADLINE_S, "answers wait")
        rig.pass_time(6_000)
        wait_until(
            lambda: rig.on_loop(lambda: rig.rig.connection_events("slow_reader")),
            DEADLINE_S,
            "the connection is closed",
        )
        assert rig.on_loop(rig.rig.connections.unread_bytes) == 0


def test_unread_answers_of_many_peers_stay_within_the_memory_limit() -> None:
    limits = RemotingSettings(write_buffer_bytes=MIB, unread_answers_bytes=4 * MIB)
    with RemotingRig(limits) as rig, ExitStack() as peers, RemotingClient(rig.addr) as broker:
        for number in range(200):
            register(broker, brokerName=f"b{number}", brokerAddr=f"10.0.0.{number}:1")
        for _ in range(12):
            _ask_without_reading(peers.enter_context(connect(rig.addr)), 3_000)
        wait_until(
            lambda: rig.on_loop(lambda: rig.rig.connection_events("unread")) > 0, DEADLINE_S, "a connection is refused"
        )
        wait_until(
            lambda: rig.on_loop(rig.rig.connections.unread_bytes) <= 5 * MIB,
            DEADLINE_S,
            "the unread answers fit the limit",
        )
        assert register(broker) == ResponseCode.SUCCESS


# ---- many peers ----


def test_connections_are_limited_per_address() -> None:
    limits = RemotingSettings(max_connections_per_address=5)
    with RemotingRig(limits, host="::") as rig, ExitStack() as peers:
        port = rig.addr.rpartition(":")[2]
        many = [peers.enter_context(connect(f"127.0.0.1:{port}")) for _ in range(8)]
        wait_until(lambda: rig.on_loop(lambda: rig.rig.connection_events("rejected_address")) == 3, DEADLINE_S, "3")
        with RemotingClient(f"::1:{port}") as other:
            assert other.ask(106).code == 0
        many[0].close()
        wait_until(lambda: len(rig.rig.connections) == 4, DEADLINE_S, "a connection is closed")
        assert route_code(f"127.0.0.1:{port}") == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("count", [64, 256, 1_024, 5_000])
def test_many_open_connections_are_all_answered(count: int) -> None:
    with RemotingRig(access=STRANGERS) as rig, RemotingClient(rig.addr) as broker, ExitStack() as peers:
        register(broker)
        began_s = time.monotonic()
        clients = [peers.enter_context(RemotingClient(rig.addr, 60)) for _ in range(count)]
        for client in clients:
            client.send(encode_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, {"topic": "TopicA"}))
        assert {client.receive().code for client in clients} == {ResponseCode.SUCCESS}
        assert time.monotonic() - began_s < DEADLINE_S
        assert len(rig.rig.connections) == count + 1


def test_three_hundred_brokers_register_at_once() -> None:
    """This happens after a restart of the name server."""
    with RemotingRig(access=STRANGERS) as rig, ExitStack() as peers:
        brokers = [peers.enter_context(RemotingClient(rig.addr, 60)) for _ in range(300)]

        def register_all(body: bytes) -> None:
            for number, client in enumerate(brokers):
                fields = BROKER | {"brokerName": f"b{number}", "brokerAddr": f"10.0.{number // 250}.{number % 250}:1"}
                fields |= {"haServerAddr": "", "bodyCrc32": str(zlib.crc32(body))}
                client.send(encode_request(RequestCode.REGISTER_BROKER, number, fields, body))
            assert {client.receive().code for client in brokers} == {ResponseCode.SUCCESS}

        def logged() -> list[str]:
            publisher = rig.rig.publisher
            publisher.ack()
            return publisher.kinds()

        register_all(BODY)
        wait_until(lambda: rig.on_loop(logged).count("broker_registered") == 300, DEADLINE_S, "each is logged in full")
        register_all(BODY)
        changed = BODY.replace(b'"counter":1', b'"counter":2').replace(b'"readQueueNums":4', b'"readQueueNums":8')
        register_all(changed)
        wait_until(
            lambda: rig.on_loop(logged).count("broker_registered") == 600,
            DEADLINE_S,
            "an unchanged registration is a heartbeat, a changed one is logged in full",
        )
        table = rig.on_loop(lambda: len(rig.rig.view.table.groups))
        assert table == 300
        assert (
            b'"readQueueNums":8'
            in RemotingClient(rig.addr).ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicA"}).body
        )
