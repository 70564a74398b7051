"""`serve` as a process with a real Kafka: bad peers, failing starts and a lost Kafka."""

import json
import shutil
import socket
import struct
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.processes import read_run_file
from namesrv_stream.remoting.command import RequestCode, ResponseCode
from namesrv_stream.route.events import JOB, KvPut, Origin, SettingsChanged
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import S1
from tests.support.kafka import REPOSITORY, KafkaProcess, settings_for
from tests.support.offline_fold import fold_offline, places_of, read_records
from tests.support.processes import ServeProcess, free_port, wait_until
from tests.support.remoting_client import RemotingClient, encode_request
from tests.support.rocketmq import is_listening
from tests.support.spark import event_producer
from tests.support.tables import TablesOfLog

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

_START_TIMEOUT_S = 60.0
_KAFKA_TIMEOUT_S = 60.0


class Serve:
    """One server process."""

    def __init__(self, settings: Settings, work_dir: Path) -> None:
        self.settings = settings
        conf = work_dir / "serve.toml"
        conf.write_text(to_toml(settings), encoding="utf-8")
        command = [sys.executable, "-m", "namesrv_stream", "serve", "-c", str(conf)]
        self.process = ServeProcess("serve", command, work_dir / "serve.log", cwd=REPOSITORY)

    def start(self) -> None:
        self.process.start()
        wait_until(lambda: self._facts() or not self.process.is_alive, _START_TIMEOUT_S, "serve is ready")
        assert self.process.is_alive, self.process.log_text()

    @property
    def addr(self) -> str:
        return str(self._facts()["remoting"])

    def talks(self) -> bool:
        """Whether Kafka accepts its records."""
        return bool(json.loads(self.get("/healthz")[2])["kafka"] == "up")

    def connect(self) -> RemotingClient:
        return RemotingClient(self.addr)

    def get(self, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str, str]:
        """Send an HTTP request to one of its addresses; returns status, content type and body."""
        port = str(self._facts()["http"]).rpartition(":")[2]
        request = urllib.request.Request(f"http://{host}:{port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers["content-type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["content-type"], error.read().decode()

    def _facts(self) -> dict[str, str | int]:
        return read_run_file(self.settings.data.run_dir / "serve.json") or {}


@pytest.fixture(scope="module")
def serve(kafka_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    work_dir = tmp_path_factory.mktemp("serve")
    server = Serve(beside(kafka_settings, work_dir, "served-events"), work_dir)
    server.start()
    yield server
    server.process.close()


def beside(kafka: Settings, work_dir: Path, topic: str) -> Settings:
    """Return settings of a server with a new topic in the running Kafka."""
    port = kafka.embedded_kafka.listen_port
    return settings_for(
        work_dir / "data",
        kafka__bootstrap_servers=f"127.0.0.1:{port}",
        kafka__broker_events_topic=topic,
        kafka__delivery_timeout_ms=3000,
        name_server__kv_log_interval_ms=1000,
    )


def _registration(name: str, addr: str, topics: int = 2) -> tuple[dict[str, str], bytes]:
    table = {f"T{i}": {"topicName": f"T{i}", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for i in range(topics)}
    wrapper = {"dataVersion": {"counter": 1, "timestamp": 1, "stateVersion": 0}, "topicConfigTable": table}
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    fields = {
        "brokerName": name,
        "brokerAddr": addr,
        "clusterName": "c",
        "haServerAddr": addr,
        "brokerId": "0",
        "enableActingMaster": "false",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
    }
    return fields, body


def _is_closed(peer: socket.socket) -> bool:
    peer.settimeout(10)
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(struct.pack(">I", (16 << 20) + 1), id="oversized"),
        pytest.param(struct.pack(">i", -1), id="negative"),
        pytest.param(struct.pack(">II", 8, 2) + b"{x}}", id="header is no JSON"),
        pytest.param(struct.pack(">II", 8, 0x07000000) + b"1234", id="unknown serialize type"),
    ],
)
def test_garbage_closes_only_its_connection_with_one_log_line(serve: Serve, garbage: bytes) -> None:
    host, port = serve.addr.split(":")
    before = serve.process.log_text().count("broke the protocol")
    with serve.connect() as bystander, socket.create_connection((host, int(port))) as peer:
        peer.sendall(garbage)
        assert _is_closed(peer)
        assert bystander.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.SUCCESS
    assert serve.process.log_text().count("broke the protocol") == before + 1


def test_truncated_frame_does_not_affect_other_clients(serve: Serve) -> None:
    host, port = serve.addr.split(":")
    with serve.connect() as bystander:
        with socket.create_connection((host, int(port))) as peer:
            peer.sendall(encode_request(105, 1, {"topic": "T"})[:-3])
        assert bystander.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.SUCCESS


def test_valid_frames_before_garbage_are_answered(serve: Serve) -> None:
    host, port = serve.addr.split(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(encode_request(106, 1) + struct.pack(">i", -1))
        peer.settimeout(10)
        assert len(peer.recv(4)) == 4


def test_answer_to_an_unknown_request_code_names_the_code(serve: Serve) -> None:
    with serve.connect() as client:
        answer = client.ask(9999)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 9999 not supported"


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        pytest.param({"bodyCrc32": "1"}, "crc32 not match", id="crc32"),
        pytest.param({"brokerName": ""}, "brokerName is missing", id="no name"),
        pytest.param({"brokerId": "x"}, "brokerId is missing or not a number", id="no id"),
        pytest.param({"bodyCrc32": "0", "compressed": "true"}, "cannot be decoded", id="body"),
    ],
)
def test_invalid_registration_gets_an_error_and_changes_nothing(
    serve: Serve, change: dict[str, str], remark: str
) -> None:
    fields, body = _registration("broker-bad", "127.0.0.1:1")
    with serve.connect() as client:
        answer = client.ask(RequestCode.REGISTER_BROKER, fields | change, body)
        assert (answer.code, remark in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        cluster_info = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
    assert b"broker-bad" not in cluster_info
    assert not [r for r in read_records(serve.settings) if b"broker-bad" in r.value]


def test_one_topic_before_a_full_registration_is_refused(serve: Serve) -> None:
    with serve.connect() as client:
        answer = client.ask(RequestCode.REGISTER_BROKER, *_registration("broker-one", "127.0.0.1:2", topics=1))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")


def test_registration_is_visible_at_once_and_stays_until_the_fold_removes_it(serve: Serve) -> None:
    with serve.connect() as client:
        with serve.connect() as broker:
            assert broker.ask(103, *_registration("broker-now", "127.0.0.1:3")).code == ResponseCode.SUCCESS
            assert b"127.0.0.1:3" in client.ask(105, {"topic": "T0"}).body
        wait_until(lambda: _closes(serve, "c") == 1, 30, "the closed connection is in the log")
        # No job runs here, and only the job removes brokers.
        assert b"127.0.0.1:3" in client.ask(105, {"topic": "T0"}).body


def test_mass_of_closed_connections_removes_no_broker_while_the_job_is_down_or_afterwards(serve: Serve) -> None:
    names = [f"mass-{number}" for number in range(8)]

    def registered(number: int) -> RemotingClient:
        broker = serve.connect()
        header, body = _registration(names[number], f"127.0.0.1:{100 + number}")
        assert broker.ask(103, header | {"clusterName": "mass"}, body).code == ResponseCode.SUCCESS
        return broker

    with event_producer(serve.settings) as producer:  # as a job would, for brokers that have just come
        producer.send(SettingsChanged(Origin(JOB, 1), "config", (("guard_known_ms", 0),)))
    fleet = [registered(number) for number in range(8)]
    for broker in fleet:
        broker.close()
    wait_until(lambda: _closes(serve, "mass") == len(names), 30, "the server has seen all closes")
    assert _shown(serve, "mass").keys() == set(names)

    # No job runs here, so the test commits what a job would have committed by now.
    extent = read_extent(serve.settings)
    rows = pa.Table.from_batches([encode_changes(fold_offline(serve.settings, dict(extent.end)))])
    reached = places_of(read_records(serve.settings, dict(extent.end)))
    prepare_tables(serve.settings, extent.topic_id)
    ChangesWriter(tables_of(serve.settings), 0).write(rows, reached, 1)
    wait_until(lambda: all(held for held in _shown(serve, "mass").values()), 30, "the guard holds the brokers")
    assert _shown(serve, "mass").keys() == set(names)


def _shown(serve: Serve, cluster: str) -> dict[str, Any]:
    """Return the brokers in the server's answer, with the guard's hold of each."""
    with serve.connect() as client:
        routed = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
    rows = json.loads(serve.get(f"/brokers?cluster={cluster}")[2])
    assert all(row["broker_name"].encode() in routed for row in rows)
    return {row["broker_name"]: row["held"] for row in rows}


def _closes(serve: Serve, cluster: str) -> int:
    events = [orjson.loads(record.value) for record in read_records(serve.settings)]
    return sum(event["kind"] == "broker_disconnected" and event["cluster"] == cluster for event in events)


@pytest.mark.parametrize(
    "path", ["/rocketmq/nsaddr", "/rocketmq/nsaddr-unit?nofix=1", "/rocketmq/nsaddr-u?nofix=1&k=v"]
)
def test_clients_learn_the_name_servers_over_http(serve: Serve, path: str) -> None:
    status, content_type, body = serve.get(path)
    assert (status, body) == (200, serve.addr + "\n")
    assert content_type.startswith("text/plain")


def test_head_request_for_the_name_servers_has_no_body(serve: Serve) -> None:
    assert serve.get("/rocketmq/nsaddr", method="HEAD")[::2] == (200, "")


def test_kv_entries_are_read_over_http(serve: Serve) -> None:
    with serve.connect() as client:
        put = client.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "a/b", "key": "k", "value": "v"})
    assert put.code == ResponseCode.SUCCESS
    assert json.loads(serve.get("/kv")[2])["a/b"] == {"k": "v"}
    assert json.loads(serve.get("/kv/a/b")[2]) == {"k": "v"}
    assert serve.get("/kv/absent")[0] == 404


def test_mqadmin_reads_the_effective_configuration(serve: Serve) -> None:
    with serve.connect() as client:
        text = client.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode()
    assert f"listenPort={serve.addr.split(':')[1]}\n" in text
    assert "bindAddress=127.0.0.1\n" in text


def test_kv_table_is_logged_at_the_start_and_periodically(serve: Serve) -> None:
    assert "kv table namespaces=0 entries=0" in serve.process.log_text()
    with serve.connect() as client:
        client.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "logged", "key": "k", "value": "v"})
    line = "kv namespace=logged key=k chars=1 value=v"
    wait_until(lambda: serve.process.log_text().count(line) > 1, 30, "the entry is logged twice")


def test_second_server_on_the_same_directory_is_refused(serve: Serve, tmp_path: Path) -> None:
    other = Serve(serve.settings, tmp_path)
    other.process.start()
    assert other.process.wait(60) == 2
    assert "another server runs on this directory" in other.process.log_text()


def test_second_server_with_the_same_id_is_refused_and_the_first_continues(
    serve: Serve, kafka_settings: Settings, tmp_path: Path
) -> None:
    """A copied machine or volume has another directory and the same identity."""
    settings = beside(kafka_settings, tmp_path, "served-events")
    shutil.copytree(serve.settings.data.server_dir, settings.data.server_dir)
    other = Serve(settings, tmp_path)
    other.process.start()
    assert other.process.wait(60) == 2
    assert "another server with the id" in other.process.log_text()
    assert "Traceback" not in other.process.log_text()
    assert serve.talks()
    events = [event for event in map(_event, read_records(serve.settings)) if event.get("server_id") != JOB]
    epochs = {event.get("server_epoch") for event in events}
    assert len(epochs - {None}) == 1


def test_killed_server_can_be_restarted(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = beside(kafka_settings, tmp_path, "killed-events")
    for _ in range(2):
        server = Serve(settings, tmp_path)
        server.start()
        wait_until(server.talks, _KAFKA_TIMEOUT_S, "the server reaches Kafka")
        server.process.kill()
        (settings.data.run_dir / "serve.json").unlink()


def _event(record: Record) -> dict[str, Any]:
    return dict(orjson.loads(record.value))


def test_changes_of_every_kind_are_accepted_right_after_the_start(kafka_settings: Settings, tmp_path: Path) -> None:
    server = Serve(beside(kafka_settings, tmp_path, "first-changes"), tmp_path)
    server.start()
    try:
        with server.connect() as client:
            put = {"namespace": "n", "key": "k", "value": "v"}
            codes = [
                client.ask(RequestCode.PUT_KV_CONFIG, put).code,
                client.ask(RequestCode.DELETE_KV_CONFIG, put).code,
                client.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"}).code,
                client.ask(103, *_registration("broker-first", "127.0.0.1:9")).code,
                client.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-first"}).code,
                client.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-first"}).code,
            ]
        assert codes == [ResponseCode.SUCCESS] * 6
    finally:
        server.process.close()


def test_taken_port_is_refused_with_the_name_of_the_setting(
    serve: Serve, kafka_settings: Settings, tmp_path: Path
) -> None:
    taken = int(serve.addr.split(":")[1])
    settings = beside(kafka_settings, tmp_path, "served-events")
    remoting = settings.remoting.model_copy(update={"listen_port": taken})
    other = Serve(settings.model_copy(update={"remoting": remoting}), tmp_path)
    other.process.start()
    assert other.process.wait(60) == 2
    assert "remoting.listen_port" in other.process.log_text()
    assert "Traceback" not in other.process.log_text()


def test_unreachable_kafka_ends_the_first_start(tmp_path: Path) -> None:
    settings = settings_for(
        tmp_path / "data", kafka__bootstrap_servers=f"127.0.0.1:{free_port()}", kafka__connect_timeout_ms=1000
    )
    server = Serve(settings, tmp_path)
    server.process.start()
    assert server.process.wait(60) == 3
    assert "does not answer" in server.process.log_text()
    assert "Traceback" not in server.process.log_text()


def test_tables_with_only_kv_entries_are_served_without_kafka(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path / "data")
    tables.log.say(KvPut(S1, "ORDER_TOPIC_CONFIG", "Orders", "broker-a:4"))
    tables.commit()
    settings = settings_for(
        tmp_path / "data", kafka__bootstrap_servers=f"127.0.0.1:{free_port()}", kafka__connect_timeout_ms=500
    )
    addr = f"127.0.0.1:{settings.remoting.listen_port}"
    server = Serve(settings, tmp_path)
    server.process.start()
    try:
        wait_until(lambda: is_listening(addr) or not server.process.is_alive, _START_TIMEOUT_S, "serve listens")
        assert server.process.is_alive, server.process.log_text()
        with RemotingClient(addr) as client:
            answer = client.ask(RequestCode.GET_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "Orders"})
        assert answer.ext_fields == {"value": "broker-a:4"}
    finally:
        server.process.close()


def test_server_survives_without_kafka_and_logs_events_on_its_return(tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "data", kafka__delivery_timeout_ms=3000)
    kafka = KafkaProcess(settings)
    server = Serve(settings, tmp_path)
    try:
        kafka.wait_ready()
        server.start()
        with server.connect() as broker, server.connect() as client:
            broker.ask(103, *_registration("broker-before", "127.0.0.1:4"))
            kafka.kill()
            wait_until(lambda: not server.talks(), _KAFKA_TIMEOUT_S, "the server has noticed the loss")
            assert broker.ask(103, *_registration("broker-meanwhile", "127.0.0.1:5")).code == ResponseCode.SUCCESS
            assert b"127.0.0.1:5" in client.ask(105, {"topic": "T0"}).body
            kafka = KafkaProcess(settings)
            kafka.wait_ready()
            wait_until(server.talks, _KAFKA_TIMEOUT_S, "the server reaches Kafka again")
        kinds = [orjson.loads(r.value)["kind"] for r in read_records(settings)]
        names = [orjson.loads(r.value).get("broker_name") for r in read_records(settings)]
        assert "broker-meanwhile" in names
        assert kinds.index("server_resumed") < names.index("broker-meanwhile")
        assert "tick" not in kinds[kinds.index("server_resumed") : names.index("broker-meanwhile")]
    finally:
        server.process.close()
        kafka.stop()
