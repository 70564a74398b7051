"""TLS over real sockets: modes, certificates, reloads and misbehaving peers."""

import asyncio
import gc
import os
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from namesrv_stream.client import client_context
from namesrv_stream.metric_catalogue import METRICS
from namesrv_stream.remoting.command import ResponseCode
from namesrv_stream.server.tls.server_tls import SECURITY_EVENTS
from namesrv_stream.settings import RemotingSettings, Settings, TlsSettings
from namesrv_stream.tools.agent.broker_agent import BrokerAgent
from namesrv_stream.tools.agent.simulated_broker import AgentConfig
from tests.support.certificates import Authority, KeyPair, serial_of
from tests.support.command_line import run_command
from tests.support.http_rig import HttpRig, eventually, http_settings
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient, encode_request
from tests.support.remoting_rig import RemotingRig

pytestmark = pytest.mark.integration

CLUSTER_INFO = 106
REGISTER_BROKER = 103
PUT_KV_CONFIG = 100
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def served_by(pair: KeyPair, **more: str) -> TlsSettings:
    return TlsSettings.model_validate({"cert_file": str(pair.cert), "key_file": str(pair.key), **more})


@pytest.fixture
def permissive(authority: Authority) -> Iterator[RemotingRig]:
    with RemotingRig(tls=served_by(authority.issue())) as rig:
        yield rig


def code_of(rig: RemotingRig, tls: ssl.SSLContext | None, preamble: bytes = b"") -> int:
    with RemotingClient(rig.addr, tls=tls, preamble=preamble) as client:
        return client.ask(CLUSTER_INFO).code


def is_refused(rig: RemotingRig, tls: ssl.SSLContext | None) -> bool:
    try:
        code_of(rig, tls)
    except (ssl.SSLError, ConnectionError):
        return True
    return False


def security_events(rig: RemotingRig) -> dict[tuple[str, ...], int]:
    """Return the security events that happened at least once."""
    value = rig.rig.tls.counters.value
    events = METRICS[SECURITY_EVENTS].from_zero
    return rig.on_loop(lambda: {event: count for event in events if (count := value(SECURITY_EVENTS, *event))})


def shake_hands(tls: ssl.SSLObject, send: Callable[[], None], receive: Callable[[], object]) -> None:
    """Perform the handshake of a client whose TLS is in memory; its last message is not sent yet."""
    while True:
        try:
            tls.do_handshake()
            return
        except ssl.SSLWantReadError:
            send()
            receive()


# ---- modes ----


def test_permissive_serves_tls_and_plain_on_one_port(permissive: RemotingRig, authority: Authority) -> None:
    assert code_of(permissive, authority.client_context()) == ResponseCode.SUCCESS
    assert code_of(permissive, None) == ResponseCode.SUCCESS
    assert security_events(permissive) == {("tls_handshake", "ok"): 1}


@pytest.mark.parametrize(
    "preamble",
    [
        b"PROXY TCP4 10.0.0.7 10.0.0.1 4711 9876\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\x00\x00\x07\x0a\x00\x00\x01\x12\x67\x26\x94",
    ],
    ids=["v1", "v2"],
)
def test_tls_begins_after_a_proxy_preamble(permissive: RemotingRig, authority: Authority, preamble: bytes) -> None:
    assert code_of(permissive, authority.client_context(), preamble) == ResponseCode.SUCCESS


def test_enforcing_refuses_plain(authority: Authority) -> None:
    with RemotingRig(tls=served_by(authority.issue(), mode="enforcing")) as rig:
        assert is_refused(rig, None)
        assert code_of(rig, authority.client_context()) == ResponseCode.SUCCESS
        assert security_events(rig) == {("tls_plain", "denied"): 1, ("tls_handshake", "ok"): 1}


def test_disabled_tls_refuses_tls_and_logs_it(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with RemotingRig(tls=served_by(authority.issue(), mode="disabled")) as rig:
        assert is_refused(rig, authority.client_context())
        assert code_of(rig, None) == ResponseCode.SUCCESS
        assert security_events(rig) == {("tls_handshake", "failed"): 1}
    assert "tls.mode is disabled" in caplog.text


def test_missing_certificate_is_logged_with_its_setting(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with RemotingRig() as rig:
        assert is_refused(rig, authority.client_context())
    assert "set tls.cert_file and tls.key_file" in caplog.text


@pytest.mark.parametrize("flags", [["--tls"], []], ids=["by flag", "by the trusted file alone"])
def test_commands_connect_over_tls(authority: Authority, flags: list[str]) -> None:
    settings = served_by(
        authority.issue(), mode="enforcing", client_auth="require", trust_file=str(authority.trust_file)
    )
    client = authority.issue("client")
    shown = ["--tls-cert", str(client.cert), "--tls-key", str(client.key)]
    with RemotingRig(tls=settings) as rig:
        ask = ["clusters", "-n", rig.addr, "--json"]
        answered = run_command(*ask, *flags, "--tls-trust", str(authority.trust_file), *shown)
        assert answered.code == 0, answered.err
        assert run_command(*ask).code != 0
        refused = run_command(*ask, "--tls")  # the system does not trust that authority
    assert refused.code != 0
    assert "certificate verify failed" in refused.err


async def test_agent_registers_over_tls(authority: Authority) -> None:
    with RemotingRig(tls=served_by(authority.issue(), mode="enforcing")) as rig:
        config = AgentConfig(rig.addr, start_spread_ms=1, tls=client_context(authority.trust_file))
        agent = BrokerAgent(config)
        agent.start()
        await eventually(lambda: agent.is_registered, "the broker is registered")
        assert rig.on_loop(lambda: list(rig.rig.view.table.groups)) == ["broker-a"]
        assert await agent.stop() == 1


# ---- clients' certificates ----


def test_required_client_certificate_must_be_signed_by_the_trusted_authority(
    authority: Authority, tmp_path: Path
) -> None:
    settings = served_by(authority.issue(), client_auth="require", trust_file=str(authority.trust_file))
    stranger = authority.client_context()
    stranger.load_cert_chain(*Authority(tmp_path / "other").issue("stranger"))
    with RemotingRig(tls=settings) as rig:
        assert is_refused(rig, authority.client_context())
        assert is_refused(rig, stranger)
        assert code_of(rig, authority.client_context(authority.issue("client"))) == ResponseCode.SUCCESS
        assert security_events(rig) == {("tls_handshake", "failed"): 2, ("tls_handshake", "ok"): 1}


def test_expired_client_certificate_is_refused(authority: Authority) -> None:
    settings = served_by(authority.issue(), client_auth="require", trust_file=str(authority.trust_file))
    with RemotingRig(tls=settings) as rig:
        assert is_refused(rig, authority.client_context(authority.issue("old", days=-1)))


def test_optional_client_certificate_may_be_absent_but_not_invalid(authority: Authority, tmp_path: Path) -> None:
    settings = served_by(authority.issue(), client_auth="optional", trust_file=str(authority.trust_file))
    stranger = authority.client_context()
    stranger.load_cert_chain(*Authority(tmp_path / "other").issue("stranger"))
    with RemotingRig(tls=settings) as rig:
        assert code_of(rig, authority.client_context()) == ResponseCode.SUCCESS
        assert is_refused(rig, stranger)


def test_versions_before_tls_1_2_are_refused(permissive: RemotingRig, authority: Authority) -> None:
    hello = bytes.fromhex("16030100310100002d0301" + "00" * 32 + "000006002f0035000a0100")
    host, _, port = permissive.addr.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as old:
        old.sendall(hello)
        answer = b""
        while piece := old.recv(4096):
            answer += piece
    assert answer[:1] == b"\x15", "the answer is not a TLS alert"


# ---- bytes ----


def test_largest_frame_and_large_answers_are_transmitted(authority: Authority) -> None:
    limits = RemotingSettings(write_buffer_bytes=256 * 1024)
    with (
        RemotingRig(limits, served_by(authority.issue())) as rig,
        RemotingClient(rig.addr, 60, tls=authority.client_context()) as client,
    ):
        assert client.ask(CLUSTER_INFO, None, bytes((16 << 20) - 500)).code == ResponseCode.SUCCESS
        for number in range(200):
            fields = {"clusterName": "c", "brokerName": f"b{number}", "brokerAddr": f"10.0.0.{number}:1"}
            client.ask(REGISTER_BROKER, {**fields, "brokerId": "0", "haServerAddr": "", "bodyCrc32": "0"})
        count = 500
        client.send(b"".join(encode_request(CLUSTER_INFO, number) for number in range(count)))
        answers = [client.receive() for _ in range(count)]
        assert [answer.opaque for answer in answers] == list(range(count))
        assert sum(len(answer.body) for answer in answers) > 5_000_000


def test_tls_records_split_anywhere_are_reassembled(permissive: RemotingRig, authority: Authority) -> None:
    """The client's TLS is in memory, so that its records can be sent byte by byte."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = authority.client_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    host, _, port = permissive.addr.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send() -> None:
            for byte in outgoing.read():
                peer.sendall(bytes([byte]))

        shake_hands(tls, send, lambda: incoming.write(peer.recv(65_536)))
        tls.write(encode_request(CLUSTER_INFO, 7))
        send()
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + struct.unpack(">I", answer[:4])[0]:
            try:
                answer += tls.read()
            except ssl.SSLWantReadError:
                incoming.write(peer.recv(65_536))
    assert b'"opaque":7' in answer


def test_change_before_an_invalid_tls_record_is_executed(permissive: RemotingRig, authority: Authority) -> None:
    """Both arrive in one read; the change gets no answer, because the connection has already been closed."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = authority.client_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    host, _, port = permissive.addr.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as peer:
        shake_hands(tls, lambda: peer.sendall(outgoing.read()), lambda: incoming.write(peer.recv(65_536)))
        tls.write(encode_request(PUT_KV_CONFIG, 7, {"namespace": "n", "key": "k", "value": "v"}))
        peer.sendall(outgoing.read() + b"\x17\x03\x03\x00\x40" + b"z" * 64)
        wait_until(
            lambda: permissive.on_loop(lambda: permissive.rig.connection_events("broken")),
            DEADLINE_S,
            "the broken connection is counted",
        )
        assert permissive.on_loop(lambda: permissive.rig.view.table.kv) == {"n": {"k": "v"}}
    assert security_events(permissive) == {("tls_handshake", "ok"): 1}


def test_endless_handshake_is_closed(authority: Authority) -> None:
    with RemotingRig(RemotingSettings(frame_timeout_ms=5_000), served_by(authority.issue())) as rig:
        host, _, port = rig.addr.rpartition(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as loris:
            loris.sendall(b"\x16\x03\x01\x02\x00\x01")
            wait_until(
                lambda: rig.on_loop(lambda: rig.rig.connections.partial_frames.size),
                DEADLINE_S,
                "the partial record is buffered",
            )
            rig.pass_time(6_000)
            assert not loris.recv(1)
        assert rig.on_loop(lambda: rig.rig.connection_events("late")) == 1


def test_handshake_above_the_limit_is_refused(permissive: RemotingRig, caplog: pytest.LogCaptureFixture) -> None:
    host, _, port = permissive.addr.rpartition(":")
    # The message stays incomplete: a server that reads all records at once would otherwise decode it before the check.
    announced, records = 120_000, 7
    message = b"\x01" + announced.to_bytes(3, "big") + bytes(records * 0x4000 - 4)
    assert len(message) < announced
    with socket.create_connection((host, int(port)), DEADLINE_S) as peer:
        with suppress(ConnectionError):
            for begin in range(0, len(message), 0x4000):
                peer.sendall(b"\x16\x03\x01\x40\x00" + message[begin : begin + 0x4000])
        wait_until(lambda: "its handshake exceeds 65536 bytes" in caplog.text, DEADLINE_S, "the handshake is refused")


# ---- reload ----


def test_new_certificate_applies_to_new_connections_and_closes_no_old_one(authority: Authority) -> None:
    context = authority.client_context()
    with RemotingRig(tls=served_by(authority.issue("renewed"))) as rig:
        before = serial_of(context, rig.addr)
        with RemotingClient(rig.addr, tls=context) as old:
            authority.issue("renewed")
            rig.reload()
            assert serial_of(context, rig.addr) != before
            assert old.ask(CLUSTER_INFO).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("damage", ["garbage", "missing", "another key", "empty"])
def test_invalid_files_do_not_replace_the_certificate(
    authority: Authority, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    pair, context = authority.issue("damaged"), authority.client_context()
    with RemotingRig(tls=served_by(pair)) as rig:
        before = serial_of(context, rig.addr)
        if damage == "missing":
            pair.key.unlink()
        elif damage == "another key":
            pair.key.write_bytes(authority.issue("another").key.read_bytes())
        else:
            pair.cert.write_text("" if damage == "empty" else "no certificate")
        rig.reload()
        assert serial_of(context, rig.addr) == before
        assert security_events(rig)["tls_reload", "failed"] == 1
    line = next(record for record in caplog.records if "not reloaded" in record.getMessage())
    assert line.levelname == "ERROR"
    assert str(pair.cert.parent) in line.getMessage()
    assert "tls." in line.getMessage()


def test_revoked_trust_applies_to_new_connections(authority: Authority, tmp_path: Path) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_bytes(authority.trust_file.read_bytes())
    settings = served_by(authority.issue(), client_auth="require", trust_file=str(trust))
    client = authority.client_context(authority.issue("client"))
    with RemotingRig(tls=settings) as rig:
        assert code_of(rig, client) == ResponseCode.SUCCESS
        trust.write_bytes(Authority(tmp_path / "other").trust_file.read_bytes())
        rig.reload()
        assert is_refused(rig, client)


def test_thousand_certificate_reloads_need_less_than_five_mib(authority: Authority) -> None:
    context, pairs = authority.client_context(), (authority.issue("even"), authority.issue("odd"))
    pair = authority.issue("thousand")
    with RemotingRig(tls=served_by(pair)) as rig, RemotingClient(rig.addr, tls=context) as old:

        def reloads(count: int) -> None:
            for number in range(count):
                pair.cert.write_bytes(pairs[number % 2].cert.read_bytes())
                pair.key.write_bytes(pairs[number % 2].key.read_bytes())
                rig.reload()
                if number % 50 == 0:
                    assert code_of(rig, context) == ResponseCode.SUCCESS

        reloads(100)  # allocates everything that is allocated only once
        before = _rss_bytes()
        reloads(1_000)
        grown = _rss_bytes() - before
        assert old.ask(CLUSTER_INFO).code == ResponseCode.SUCCESS
        assert security_events(rig)["tls_reload", "ok"] == 1_100
    assert grown < 5 << 20, f"{grown / (1 << 20):.1f} MiB"


async def test_changed_certificate_files_are_reloaded_automatically(authority: Authority) -> None:
    pair = authority.issue("watched")
    settings = served_by(pair).model_copy(update={"reload_interval_ms": 20})
    rig = HttpRig(http_settings_with(settings))
    tls = rig.rig.tls

    def reloads(result: str) -> int:
        return tls.counters.value(SECURITY_EVENTS, "tls_reload", result)

    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(tls.watch())
        for number in (1, 2):
            authority.issue("watched")
            await eventually(lambda number=number: reloads("ok") == number, "the certificate is read")  # type: ignore[misc]
        # The server waits for the other half of a change. A key that does not match does not disable TLS.
        pair.key.write_bytes(authority.issue("other").key.read_bytes())
        await eventually(lambda: reloads("failed") == 1, "the invalid files are refused")
        authority.issue("watched")
        await eventually(lambda: reloads("ok") == 3, "the certificate is reloaded")
        watch.cancel()


# ---- HTTP ----


async def test_http_port_accepts_only_tls(authority: Authority) -> None:
    settings = served_by(authority.issue("http"), client_auth="require", trust_file=str(authority.trust_file))
    async with HttpRig(http_settings_with(settings)).serving() as rig:
        host, _, port = rig.http.address.rpartition(":")
        # Browsers and scrapers need no certificate.
        reader, writer = await asyncio.open_connection(host, int(port), ssl=authority.client_context())
        writer.write(b"GET /topics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()


async def test_http_port_uses_a_new_certificate(authority: Authority) -> None:
    pair = authority.issue("http-renewed")
    async with HttpRig(http_settings_with(served_by(pair))).serving() as rig:
        context = authority.client_context()
        before = await asyncio.to_thread(serial_of, context, rig.http.address)
        authority.issue("http-renewed")
        await rig.rig.tls.reload()
        assert await asyncio.to_thread(serial_of, context, rig.http.address) != before


def http_settings_with(tls: TlsSettings) -> Settings:
    return http_settings().model_copy(
        update={"tls": tls, "http": http_settings().http.model_copy(update={"tls": True})}
    )


def _rss_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
