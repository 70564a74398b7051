"""Notifications to brokers over real sockets: what arrives, and that no peer can block or break the server."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import choose_port
from namesrv_stream.remoting.command import MQ_VERSION, ONEWAY_FLAG, RequestCode
from namesrv_stream.route.group import BrokerGroup, unregister
from namesrv_stream.route.registration import register
from namesrv_stream.server.min_broker_notifier import MinBrokerNotifier, _BrokerConnection
from namesrv_stream.server.tls import calls_context
from namesrv_stream.settings import TlsSettings
from tests.support.builders import HOLDER, NAME, a_key, a_registration
from tests.support.certificates import Authority
from tests.support.scripted_name_server import ScriptedNameServer, until

MASTER = "10.0.0.1:10911"
OWN_PORT = 9


def a_group(members: dict[int, str], *, name: str = NAME) -> BrokerGroup:
    group = BrokerGroup(name)
    for broker_id, addr in members.items():
        registration = a_registration(addr, broker_id, broker_name=name, enable_acting_master=True)
        group = register(group, registration, "s1", HOLDER).group
    return group


def master_leaves(notifier: MinBrokerNotifier, *slaves: str) -> None:
    group = a_group({0: MASTER, **dict(enumerate(slaves, 1))})
    notifier.group_changed(group, unregister(group, a_key(MASTER)))


def master_returns(notifier: MinBrokerNotifier, slave: str) -> None:
    notifier.group_changed(a_group({1: slave}), a_group({1: slave, 0: MASTER}))


@asynccontextmanager
async def running(
    *, own_port: int = OWN_PORT, timeout_ms: int = 5_000, idle_ms: int = 60_000, tls: TlsSettings | None = None
) -> AsyncIterator[MinBrokerNotifier]:
    context = None if tls is None else partial(calls_context, tls)
    notifier = MinBrokerNotifier(lambda: True, own_port, tls=context, timeout_ms=timeout_ms, idle_ms=idle_ms)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(notifier.run())
        yield notifier
        assert not run.done()
        run.cancel()


@contextmanager
def a_deaf_listener() -> Iterator[str]:
    """Listen with a full queue, so that no connection to it succeeds."""
    with socket.socket() as listener, socket.socket() as first:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        first.connect(listener.getsockname())
        blocked = [socket.socket() for _ in range(3)]
        for each in blocked:
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect(listener.getsockname())
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        for each in blocked:
            each.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


class _TransportBetween(asyncio.Transport):
    def __init__(self, here: tuple[str, int], there: tuple[str, int]) -> None:
        super().__init__({"sockname": here, "peername": there})


def _received(listener: socket.socket) -> bytes:
    """Return the first byte of the first connection; nothing if it closed without one."""
    peer, _ = listener.accept()
    with peer, suppress(ConnectionResetError):
        peer.settimeout(10)
        return peer.recv(1)
    return b""


# ---- what arrives ----


async def test_slaves_are_notified_of_the_lost_master_and_the_new_lowest_broker_id() -> None:
    async with ScriptedNameServer() as slave, ScriptedNameServer() as other, running() as notifier:
        master_leaves(notifier, slave.addr, other.addr)
        await until(lambda: slave.requests and other.requests, "both were notified")

    fields = {"minBrokerId": "1", "minBrokerAddr": slave.addr, "offlineBrokerAddr": MASTER}
    assert [r.ext_fields for r in slave.requests + other.requests] == [fields, fields]
    request = slave.requests[0]
    assert (request.code, request.flag) == (RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ONEWAY_FLAG)
    assert (request.version, request.body) == (MQ_VERSION, None)


@pytest.mark.parametrize("form", ["::1:{}", "[::1]:{}", "[0:0:0:0:0:0:0:1%lo]:{}", "0:0:0:0:0:0:0:1%lo:{}"])
async def test_a_slave_is_notified_at_every_text_of_its_ipv6_address(form: str) -> None:
    async with ScriptedNameServer(host="::1") as slave, running() as notifier:
        master_leaves(notifier, form.format(slave.port))
        await until(lambda: slave.requests, "the slave was notified")


async def test_slaves_are_notified_of_a_returned_master_and_its_ha_address() -> None:
    async with ScriptedNameServer() as slave, running() as notifier:
        master_returns(notifier, slave.addr)
        await until(lambda: slave.requests, "the slave was notified")

    assert slave.requests[0].ext_fields == {
        "minBrokerId": "0",
        "minBrokerAddr": MASTER,
        "haBrokerAddr": MASTER.replace(":10911", ":10912"),
    }


async def test_changes_arrive_in_order_over_one_connection() -> None:
    async with ScriptedNameServer() as slave, running() as notifier:
        for _ in range(4):
            master_leaves(notifier, slave.addr)
            master_returns(notifier, slave.addr)
        await until(lambda: len(slave.requests) == 8, "all changes")

    assert [(r.ext_fields or {})["minBrokerId"] for r in slave.requests] == ["1", "0"] * 4
    assert slave.connections == 1


async def test_nothing_is_sent_while_switched_off_and_the_switch_applies_to_the_next_change() -> None:
    is_enabled = False
    notifier = MinBrokerNotifier(lambda: is_enabled, OWN_PORT)
    async with ScriptedNameServer() as slave, asyncio.TaskGroup() as tasks:
        run = tasks.create_task(notifier.run())
        master_leaves(notifier, slave.addr)
        is_enabled = True
        master_returns(notifier, slave.addr)
        await until(lambda: slave.requests, "the second change")
        run.cancel()

    assert [(r.ext_fields or {})["minBrokerId"] for r in slave.requests] == ["0"]


async def test_a_change_before_the_start_is_delivered_after_it() -> None:
    notifier = MinBrokerNotifier(lambda: True, OWN_PORT)
    async with ScriptedNameServer() as slave, asyncio.TaskGroup() as tasks:
        master_leaves(notifier, slave.addr)
        run = tasks.create_task(notifier.run())
        await until(lambda: slave.requests, "the slave was notified")
        run.cancel()


# ---- connections ----


async def test_a_connection_that_the_broker_closed_is_reopened_for_the_next_change() -> None:
    async with ScriptedNameServer(lambda _: [None]) as slave, running() as notifier:
        for number in range(1, 4):
            master_leaves(notifier, slave.addr)
            await until(lambda: len(slave.requests) >= number, f"change {number}")  # noqa: B023 - awaited at once
            await until(lambda: not slave.open_connections, "the broker closed it")

    assert slave.connections == 3


async def test_an_idle_connection_is_closed_and_the_next_change_opens_another() -> None:
    async with ScriptedNameServer() as slave, running(idle_ms=20) as notifier:
        master_leaves(notifier, slave.addr)
        await until(lambda: slave.requests and not slave.open_connections, "idle connection closed")
        master_returns(notifier, slave.addr)
        await until(lambda: len(slave.requests) == 2, "the second change")

    assert slave.connections == 2


async def test_stopping_closes_all_connections() -> None:
    async with ScriptedNameServer() as slave:
        async with running() as notifier:
            master_leaves(notifier, slave.addr)
            await until(lambda: slave.requests, "the slave was notified")
        await until(lambda: not slave.open_connections, "closed by the stop")


# ---- peers that are unreachable, or not brokers ----


async def test_a_broker_that_refuses_connections_is_logged_once_until_it_is_reached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slave = ScriptedNameServer(port=choose_port("127.0.0.1"))
    async with running() as notifier:
        for _ in range(3):
            master_leaves(notifier, slave.addr)
            await until(lambda: not notifier.recipients, "given up")
        assert warnings(caplog) == [
            f"a broker was not notified addr={slave.addr} reason={slave.addr}: connection refused"
        ]

        async with slave:
            master_leaves(notifier, slave.addr)
            await until(lambda: slave.requests, "the slave was notified")
        await until(lambda: not notifier.recipients, "its connection ended")
        master_leaves(notifier, slave.addr)
        await until(lambda: len(warnings(caplog)) == 2, "logged again")


async def test_a_broker_that_accepts_no_connection_delays_no_other(caplog: pytest.LogCaptureFixture) -> None:
    with a_deaf_listener() as deaf:
        async with ScriptedNameServer() as slave, running(timeout_ms=200) as notifier:
            master_leaves(notifier, deaf, slave.addr)
            await until(lambda: slave.requests, "the other was notified")
            await until(lambda: warnings(caplog), "given up")

    assert warnings(caplog) == [f"a broker was not notified addr={deaf} reason={deaf}: no connection within 200 ms"]


async def test_the_newest_16_notifications_for_a_broker_are_kept() -> None:
    async with ScriptedNameServer() as slave, asyncio.TaskGroup() as tasks:
        notifier = MinBrokerNotifier(lambda: True, OWN_PORT)
        for _ in range(100):
            master_leaves(notifier, slave.addr)
        master_returns(notifier, slave.addr)
        run = tasks.create_task(notifier.run())
        await until(lambda: slave.requests and (slave.requests[-1].ext_fields or {})["minBrokerId"] == "0", "newest")
        run.cancel()

    assert len(slave.requests) == 16


@pytest.mark.parametrize(
    "addr",
    [
        "",
        "nobody",
        "10.0.0.1",
        ":1",
        "a b:1",
        "a/b:1",
        "a:1:2",
        "10.0.0.1:x",
        "\u0661:\u0661",
        "a\n:1",
        "x" * 300 + ":1",
        "127.0.0.1:0",
        "127.0.0.1:99999",
        "[::1::]:1",
        "[::1]",
    ],
)
async def test_no_connection_is_made_to_an_invalid_address(addr: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running() as notifier:
        notifier.group_changed(a_group({1: addr}), a_group({1: addr, 0: MASTER}))

        assert not notifier.recipients
    assert [w.rpartition("=")[2] for w in warnings(caplog)] == ["not host:port"]


@pytest.mark.parametrize("addr", ["..:1", "a" * 64 + ".test:1", "fe80::1%nowhere:1"])
async def test_an_unreachable_address_is_given_up(addr: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running() as notifier:
        notifier.group_changed(a_group({1: addr}), a_group({1: addr, 0: MASTER}))
        await until(lambda: warnings(caplog), "given up")

        assert not notifier.recipients


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "0.0.0.0", "::1", "[::1]", "::ffff:127.0.0.1"])
async def test_a_server_does_not_notify_itself(host: str, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        own_port = listener.getsockname()[1]
        async with running(own_port=own_port) as notifier:
            master_leaves(notifier, f"{host}:{own_port}")
            await until(lambda: warnings(caplog), "given up")

        assert [w.rpartition(": ")[2] for w in warnings(caplog)] == ["it is this server itself"]
        assert _received(listener) == b""


async def test_a_broker_with_the_servers_port_on_another_machine_is_not_taken_for_the_server() -> None:
    connection = _BrokerConnection("10.0.0.1:9876")
    connection.connection_made(_TransportBetween(("10.0.0.2", 50_000), ("10.0.0.1", 9876)))

    assert not connection.leads_here(9876)
    assert not _BrokerConnection("never made").leads_here(9876)


async def test_brokers_beyond_the_limit_are_not_notified(caplog: pytest.LogCaptureFixture) -> None:
    notifier = MinBrokerNotifier(lambda: True, OWN_PORT)

    for group in range(103):
        master_leaves(notifier, *(f"10.1.{group}.{n}:10911" for n in range(10)))

    assert len(notifier.recipients) == 1_024
    assert len(warnings(caplog)) == 6


async def test_a_peer_that_sends_garbage_is_connected_again_for_the_next_change() -> None:
    async with ScriptedNameServer(lambda _: [b"HTTP/1.1 400 Bad Request\r\n\r\n"]) as slave, running() as notifier:
        master_leaves(notifier, slave.addr)
        await until(lambda: slave.requests and not notifier.recipients, "the connection ended")
        master_returns(notifier, slave.addr)
        await until(lambda: len(slave.requests) == 2, "the second change")


# ---- TLS ----


def a_brokers_tls(authority: Authority, *, asks_for_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("broker"))
    if asks_for_certificate:
        context.load_verify_locations(authority.trust_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_broker_is_notified_over_tls_whoever_signed_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with ScriptedNameServer(tls=a_brokers_tls(authority)) as slave, running(tls=TlsSettings()) as notifier:
        master_leaves(notifier, slave.addr)
        await until(lambda: slave.requests, "the slave was notified")
        master_returns(notifier, slave.addr)
        await until(lambda: len(slave.requests) == 2, "the slave was notified again")
    assert slave.connections == 1


async def test_with_configured_files_certificates_of_brokers_are_checked_and_one_is_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    pair = ours.issue("server")
    tls = TlsSettings(
        calls_trust_file=str(ours.trust_file), calls_cert_file=str(pair.cert), calls_key_file=str(pair.key)
    )
    async with (
        ScriptedNameServer(tls=a_brokers_tls(ours, asks_for_certificate=True)) as slave,
        ScriptedNameServer(tls=a_brokers_tls(theirs)) as stranger,
        running(tls=tls) as notifier,
    ):
        master_leaves(notifier, slave.addr, stranger.addr)
        await until(lambda: slave.requests and stranger.addr not in notifier.recipients, "one was notified")
    assert not stranger.requests
    (warning,) = warnings(caplog)
    assert "certificate verify failed" in warning


async def test_a_broker_without_tls_is_not_notified_in_plain_text(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedNameServer() as slave, running(timeout_ms=500, tls=TlsSettings()) as notifier:
        master_leaves(notifier, slave.addr)
        await until(lambda: not notifier.recipients, "given up")
    assert not slave.requests
    assert len(warnings(caplog)) == 1


async def test_renewed_files_apply_to_the_next_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    trust = tmp_path / "trust.pem"
    trust.write_bytes(Authority(tmp_path / "old").trust_file.read_bytes())
    tls = TlsSettings(calls_trust_file=str(trust))
    async with ScriptedNameServer(tls=a_brokers_tls(authority)) as slave, running(tls=tls) as notifier:
        for broken in (True, False):
            if broken:
                trust.rename(tmp_path / "away")
            master_leaves(notifier, slave.addr)
            await until(lambda: not notifier.recipients, "given up")
            if broken:
                (tmp_path / "away").rename(trust)
        assert not slave.requests
        trust.write_bytes(authority.trust_file.read_bytes())
        master_leaves(notifier, slave.addr)
        await until(lambda: slave.requests, "the slave was notified")
    assert "advanced.tls.calls_trust_file" in warnings(caplog)[0]


def test_unusable_tls_files_for_calls_are_named_with_their_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        calls_context(TlsSettings(calls_trust_file=str(tmp_path / "absent")))
    assert (refused.value.source, refused.value.key) == (str(tmp_path / "absent"), "advanced.tls.calls_trust_file")
    pair = Authority(tmp_path).issue("client", password="x")
    with pytest.raises(ConfigError) as refused:
        calls_context(TlsSettings(calls_cert_file=str(pair.cert), calls_key_file=str(pair.key)))
    assert (refused.value.source, refused.value.key) == (str(pair.key), "advanced.tls.calls_key_file")
    assert refused.value.reason == "is encrypted: set advanced.tls.calls_key_password_file"
