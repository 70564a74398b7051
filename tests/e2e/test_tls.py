"""TLS with unmodified Java programs: a server that requires it, and certificates on both sides."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from namesrv_stream.client import ConnectionLost, RemotingConnection
from namesrv_stream.remoting.command import RemotingCommand, ResponseCode
from namesrv_stream.server.tls import calls_context
from namesrv_stream.settings import TlsSettings, load_settings, parse_set_flag
from tests.e2e.conftest import Measured
from tests.support.certificates import Authority, serial_of
from tests.support.java_client import JavaClient
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin, MqadminError, PeerError, RocketmqPeers
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

GET_BROKER_CLUSTER_INFO = 106
GET_BROKER_RUNTIME_INFO = 28
KEY_PASSWORD = "f4r-from-here"
SHARED_S = 30.0
RELOADED_S = 30.0


class TlsSetup(NamedTuple):
    """A server that requires TLS and client certificates, and the authority that everyone trusts."""

    authority: Authority
    server: SecondServer
    client_properties: Mapping[str, str]


@pytest.fixture(scope="module")
def tls_setup(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsSetup]:
    """A server configured by RocketMQ's ``tls.properties``, as in RocketMQ's documentation."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "certificates")
    ours, theirs = authority.issue("server", password=KEY_PASSWORD), authority.issue("client")
    tls_properties = folder / "tls.properties"
    tls_properties.write_text(
        f"""\
tls.test.mode.enable=false
tls.server.need.client.auth=require
tls.server.keyPath={ours.key}
tls.server.keyPassword={KEY_PASSWORD}
tls.server.certPath={ours.cert}
tls.server.authClient=true
tls.server.trustCertPath={authority.trust_file}
tls.client.keyPath={theirs.key}
tls.client.certPath={theirs.cert}
tls.client.authServer=true
tls.client.trustCertPath={authority.trust_file}
"""
    )
    with SecondServer(folder / "data", stack, "tls", tls__mode="enforcing", tls__config_file=tls_properties) as server:
        # Java programs read the same file.
        yield TlsSetup(authority, server, {"tls.enable": "true", "tls.config.file": str(tls_properties)})


@pytest.fixture(scope="module")
def tls_broker(tls_setup: TlsSetup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that uses TLS with its name server and with mqadmin."""
    with Broker(
        tmp_path_factory.mktemp("tls-broker"),
        tls_setup.server.remoting,
        name="broker-tls",
        system_properties={**tls_setup.client_properties, "tls.server.mode": "permissive"},
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def tls_peers(tls_setup: TlsSetup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketmqPeers]:
    """A JVM with mqadmin, producers and consumers that always use TLS."""
    with RocketmqPeers(tmp_path_factory.mktemp("tls-peers"), tls_setup.client_properties) as peers:
        yield peers


@pytest.fixture(scope="module")
def tls_mqadmin(tls_peers: RocketmqPeers) -> Mqadmin:
    return Mqadmin(tls_peers)


def test_java_broker_and_mqadmin_use_tls_with_certificates_on_both_sides(
    stack: Stack, tls_setup: TlsSetup, tls_broker: Broker, tls_mqadmin: Mqadmin, mqadmin: Mqadmin
) -> None:
    rows = tls_mqadmin.cluster_list(tls_setup.server.remoting)
    assert [row.addr for row in rows if row.broker_name == tls_broker.name and row.version] == [tls_broker.addr]
    tls_mqadmin.create_topic(tls_setup.server.remoting, tls_broker.addr, "TopicOverTls")
    wait_until(
        lambda: tls_mqadmin.topic_route(tls_setup.server.remoting, "TopicOverTls"), SHARED_S, "the route over TLS"
    )
    stack.wait_job()
    # The other server has no certificate, and learns the route from the log.
    wait_until(lambda: mqadmin.topic_route(stack.remoting, "TopicOverTls"), SHARED_S, "the route without TLS")


def test_java_producer_and_consumer_exchange_messages_over_tls(
    tls_setup: TlsSetup, tls_broker: Broker, tls_peers: RocketmqPeers, tls_mqadmin: Mqadmin
) -> None:
    server = tls_setup.server.remoting
    tls_mqadmin.create_topic(server, tls_broker.addr, "MessagesOverTls")
    wait_until(lambda: tls_mqadmin.topic_route(server, "MessagesOverTls"), SHARED_S, "the route over TLS")
    assert JavaClient(tls_peers).exchange(server, "MessagesOverTls") == {tls_broker.name}


def test_java_producer_without_tls_finds_no_route(
    tls_setup: TlsSetup, tls_broker: Broker, java_client: JavaClient
) -> None:
    with pytest.raises(PeerError):
        java_client.publish_queues("MessagesOverTls", namesrv_addr=tls_setup.server.remoting)


def test_server_notifies_a_java_broker_that_requires_a_certificate(tls_setup: TlsSetup, tls_broker: Broker) -> None:
    """NOTIFY_MIN_BROKER_ID_CHANGE uses the client's files in RocketMQ's ``tls.properties``."""
    flags = [parse_set_flag(f"tls.config_file={tls_setup.client_properties['tls.config.file']}")]
    tls = load_settings(None, {}, [*flags, parse_set_flag("tls.mode=enforcing")]).settings.tls
    assert tls.is_for_calls

    async def ask(context: ssl.SSLContext) -> int:
        connection = await RemotingConnection.connect(tls_broker.addr, tls=context)
        try:
            return (await connection.invoke(RemotingCommand(GET_BROKER_RUNTIME_INFO), 10_000)).code
        finally:
            await connection.close()

    # A broker that has just started answers with SYSTEM_ERROR for a moment, because its statistics are incomplete.
    wait_until(lambda: asyncio.run(ask(calls_context(tls))) == ResponseCode.SUCCESS, SHARED_S, "its figures")
    with pytest.raises(ConnectionLost):
        asyncio.run(ask(calls_context(TlsSettings())))  # shows no certificate


def test_java_without_tls_is_refused_by_a_server_that_requires_it(tls_setup: TlsSetup, mqadmin: Mqadmin) -> None:
    with pytest.raises(MqadminError):
        mqadmin.run("topicList", "-n", tls_setup.server.remoting)
    wait_until(
        lambda: "tls.mode is enforcing" in tls_setup.server.process.log_text(), SHARED_S, "the log states the reason"
    )


def test_java_without_a_certificate_is_refused(tls_setup: TlsSetup, tmp_path: Path) -> None:
    # RocketMQ's default for clients: TLS that trusts every server and shows no certificate.
    properties = {"tls.enable": "true", "tls.config.file": str(tmp_path / "none")}
    with RocketmqPeers(tmp_path, properties) as peers, pytest.raises(MqadminError):
        Mqadmin(peers).run("topicList", "-n", tls_setup.server.remoting)
    wait_until(
        lambda: "peer did not return a certificate" in tls_setup.server.process.log_text(),
        SHARED_S,
        "the log states the reason",
    )


def test_java_refuses_a_server_whose_certificate_it_does_not_trust(tls_setup: TlsSetup, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    properties = tmp_path / "tls.properties"
    pair = other.issue("client")
    properties.write_text(
        f"tls.test.mode.enable=false\ntls.client.keyPath={pair.key}\ntls.client.certPath={pair.cert}\n"
        f"tls.client.authServer=true\ntls.client.trustCertPath={other.trust_file}\n"
    )
    java = {"tls.enable": "true", "tls.config.file": str(properties)}
    with RocketmqPeers(tmp_path / "peers", java) as peers, pytest.raises(MqadminError):
        Mqadmin(peers).run("topicList", "-n", tls_setup.server.remoting)


def test_certificate_is_replaced_and_the_broker_keeps_its_connection(
    stack: Stack, tls_setup: TlsSetup, tls_broker: Broker, tls_mqadmin: Mqadmin, measured: Measured
) -> None:
    context = tls_setup.authority.client_context(tls_setup.authority.issue("python"))
    with RemotingClient(tls_setup.server.remoting, tls=context) as client:
        assert client.ask(GET_BROKER_CLUSTER_INFO).code == 0
        before, since_s = serial_of(context, tls_setup.server.remoting), time.monotonic()
        tls_setup.authority.issue("server", password=KEY_PASSWORD)
        wait_until(
            lambda: serial_of(context, tls_setup.server.remoting) != before,
            RELOADED_S,
            "new connections see the new certificate",
        )
        measured(f"TLS: certificate replaced, seen by new connections after {time.monotonic() - since_s:.1f} s")
        assert client.ask(GET_BROKER_CLUSTER_INFO).code == 0, "an older connection stays open"
    # Another registration came over the broker's old connection, so that connection is still open.
    tls_broker.register()
    assert not stack.changes(kind="holder", broker_name=tls_broker.name, gone=True)
    assert any(row.broker_name == tls_broker.name for row in tls_mqadmin.cluster_list(tls_setup.server.remoting))


def test_invalid_tls_after_the_first_byte_closes_the_connection(tls_setup: TlsSetup) -> None:
    host, _, port = tls_setup.server.remoting.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as broken:
        broken.sendall(b"\x16\x03\x01\x00\x05hello")
        while broken.recv(4096):  # an alert, perhaps
            pass
    context = tls_setup.authority.client_context(tls_setup.authority.issue("python"))
    with RemotingClient(tls_setup.server.remoting, tls=context) as client:
        assert client.ask(GET_BROKER_CLUSTER_INFO).code == 0
