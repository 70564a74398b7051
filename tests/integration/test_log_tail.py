"""A server that starts without a job, with a real Kafka, has all acknowledged changes."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from namesrv_stream.clock import SystemClock
from namesrv_stream.kafka import admin_config, ensure_topics, producer_config
from namesrv_stream.remoting.command import RequestCode, ResponseCode
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import KvPut, Tick
from namesrv_stream.route.liveness_settings import effective_texts
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.start.opening import read_log_tail
from namesrv_stream.settings import Settings
from tests.integration.test_server import Serve
from tests.support.builders import S1
from tests.support.clocks import ManualClock
from tests.support.kafka import settings_for
from tests.support.name_server import a_body, a_registration_request, a_topic
from tests.support.offline_fold import fold_offline, read_records
from tests.support.processes import free_port
from tests.support.remoting_client import Answer, RemotingClient

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

PARTITIONS = 3
ENTRY = {"namespace": "n", "key": "k"}
_TOPICS = (f"log-tail-{i}" for i in itertools.count())


def settings_beside(kafka: Settings, data_dir: Path, topic: str, **flags: str | int) -> Settings:
    """Return settings of a server that uses a topic of the running Kafka."""
    servers = f"127.0.0.1:{kafka.embedded_kafka.listen_port}"
    return settings_for(data_dir, kafka__bootstrap_servers=servers, kafka__broker_events_topic=topic, **flags)


class Restarted:
    """Servers that use a new topic that no job folds."""

    def __init__(self, kafka: Settings, work_dir: Path) -> None:
        self._kafka = kafka
        self._work_dir = work_dir
        self._topic = next(_TOPICS)
        self._servers: list[Serve] = []

    def serve(self, name: str, **flags: str | int) -> Serve:
        """Start a server with its own data directory and settings."""
        work_dir = self._work_dir / name
        work_dir.mkdir()
        settings = settings_beside(self._kafka, work_dir / "data", self._topic, kafka__partitions=PARTITIONS, **flags)
        server = Serve(settings, work_dir)
        self._servers.append(server)
        server.start()
        return server

    def kill_and_start(self, server: Serve) -> None:
        server.process.kill()
        (server.settings.data.run_dir / "serve.json").unlink()
        server.start()

    def close(self) -> None:
        for server in self._servers:
            server.process.close()


@pytest.fixture
def servers(kafka_settings: Settings, tmp_path: Path) -> Iterator[Restarted]:
    restarted = Restarted(kafka_settings, tmp_path)
    yield restarted
    restarted.close()


def register(broker: RemotingClient, name: str, addr: str) -> Answer:
    request = a_registration_request(addr, brokerName=name)
    return broker.ask(request.code, request.ext_fields, request.body or b"")


def test_acknowledged_changes_survive_a_restart_without_a_job(servers: Restarted) -> None:
    server = servers.serve("one")
    with server.connect() as operator, server.connect() as broker:
        for name, addr in (("broker-a", "127.0.0.1:11"), ("broker-b", "127.0.0.1:12")):
            assert register(broker, name, addr).code == ResponseCode.SUCCESS
        assert operator.ask(RequestCode.PUT_KV_CONFIG, ENTRY | {"value": "v"}).code == ResponseCode.SUCCESS
        deleted = operator.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "baseTopic"})
        wiped = operator.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
        assert (deleted.code, wiped.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
        servers.kill_and_start(server)

    with server.connect() as client:
        entry = client.ask(RequestCode.GET_KV_CONFIG, ENTRY)
        assert (entry.code, entry.ext_fields) == (ResponseCode.SUCCESS, {"value": "v"})
        route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"}).body
        assert b"127.0.0.1:11" in route
        assert b"127.0.0.1:12" in route
        assert b'"perm":4' in route
        assert (
            client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "baseTopic"}).code == ResponseCode.TOPIC_NOT_EXIST
        )
        # The server accepts further changes.
        assert client.ask(RequestCode.DELETE_KV_CONFIG, ENTRY).code == ResponseCode.SUCCESS
        assert client.ask(RequestCode.GET_KV_CONFIG, ENTRY).code == ResponseCode.QUERY_NOT_FOUND


def test_new_server_has_routes_to_brokers_of_another_server_at_once(servers: Restarted) -> None:
    first = servers.serve("one")
    with first.connect() as broker:
        assert register(broker, "broker-a", "127.0.0.1:11").code == ResponseCode.SUCCESS
        second = servers.serve("two")
        with second.connect() as client:
            assert b"127.0.0.1:11" in client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"}).body


def test_configured_settings_apply_to_the_first_registration(servers: Restarted) -> None:
    first = servers.serve(
        "one", liveness__delete_topic_with_broker_registration="true", liveness__default_timeout_ms=5_000
    )
    both, one = (
        a_registration_request(body=a_body({topic: a_topic() for topic in topics}, counter), brokerName="broker-a")
        for counter, topics in enumerate(("ABC", "AB"))
    )
    with first.connect() as broker:
        for request in (both, one):
            assert broker.ask(request.code, request.ext_fields, request.body or b"").code == ResponseCode.SUCCESS
        assert broker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "C"}).code == ResponseCode.TOPIC_NOT_EXIST

    # A server with another configuration uses the settings that are already in the log.
    servers.serve("two", liveness__default_timeout_ms=7_000)
    settings = first.settings
    firsts = [record for record in read_records(settings) if b'"settings_changed"' in (record.value or b"")]
    assert [(record.partition, record.offset) for record in firsts] == [(p, 0) for p in range(PARTITIONS)]
    table = RouteTable()
    apply(table, fold_offline(settings))
    for partition in range(PARTITIONS):
        texts = effective_texts(table.settings_of(partition))
        assert texts["default_timeout_ms"] == "5000"
        assert texts["delete_topic_with_broker_registration"] == "true"
    assert "C" not in table.groups["broker-a"].topics


# ---- reading ----


def published(kafka: Settings, data_dir: Path, *values: bytes, **flags: str | int) -> Settings:
    """Create a topic of one partition with these records."""
    settings = settings_beside(kafka, data_dir, next(_TOPICS), **flags)
    ensure_topics(settings)
    producer = KafkaProducer(**producer_config(settings))
    sent = [producer.send(settings.kafka.broker_events_topic, value=value, partition=0) for value in values]
    for future in sent:
        future.get(timeout=30)
    producer.close()
    return settings


def put(key: str) -> bytes:
    return encode_event(KvPut(S1, "n", key, "v"))


def test_only_records_after_the_tables_are_read(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = published(kafka_settings, tmp_path, put("k0"), put("k1"), b"poison", put("k3"))
    view = RouteView(None, {0: 1})
    read_log_tail(settings, view, SystemClock())
    assert view.table.kv == {"n": {"k1": "v", "k3": "v"}}
    view.commit([], {0: 4})
    assert view.pending_count == 0


def test_log_truncated_after_the_tables_is_reported_and_not_read(
    kafka_settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = published(kafka_settings, tmp_path, put("k0"), put("k1"), put("k2"))
    admin = KafkaAdminClient(**admin_config(settings))
    admin.delete_records({TopicPartition(settings.kafka.broker_events_topic, 0): 2})
    admin.close()
    view = RouteView(None, {0: 1})
    read_log_tail(settings, view, SystemClock())
    assert view.table.kv == {}
    assert "partition=0 tables_end=1 log_begins=2" in caplog.text


def test_records_beyond_the_size_limit_are_reported(
    kafka_settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = published(kafka_settings, tmp_path, put("k0"), put("k1"), put("k2"), server__log_tail_bytes=1_500)
    view = RouteView()
    read_log_tail(settings, view, SystemClock())
    assert view.table.kv == {"n": {"k0": "v", "k1": "v"}}
    assert "partition=0 read_to=2 log_ends=3" in caplog.text


class CountingClock(ManualClock):
    """A clock that advances by a millisecond at each call."""

    def monotonic_ms(self) -> int:
        self.advance(1)
        return super().monotonic_ms()


def test_long_log_is_read_for_a_limited_time(
    kafka_settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = [encode_event(Tick(S1))] * 40_000
    settings = published(kafka_settings, tmp_path, put("k0"), *ticks, put("k1"), server__log_tail_timeout_ms=30_000)
    view = RouteView()
    read_log_tail(settings, view, CountingClock())
    assert view.table.kv == {"n": {"k0": "v"}}
    assert "log_ends=40002" in caplog.text


def test_unreachable_kafka_delays_the_start_only_briefly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = settings_for(tmp_path, kafka__bootstrap_servers=f"127.0.0.1:{free_port()}")
    clock = SystemClock()
    begin_ms = clock.monotonic_ms()
    read_log_tail(settings, RouteView(), clock)
    assert clock.monotonic_ms() - begin_ms < 10_000
    assert "log tail: cannot be read from Kafka" in caplog.text
