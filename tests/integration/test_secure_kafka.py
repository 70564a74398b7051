"""All parts work with a Kafka that requires TLS, a client certificate and a password, and never show the password."""

import base64
import sys
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path

import orjson
import polars
import pytest
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from namesrv_stream.errors import KafkaUnreachable
from namesrv_stream.kafka import ensure_topics
from namesrv_stream.kafka.embedded_node import log4j2_properties, node_properties
from namesrv_stream.processes import read_run_file
from namesrv_stream.settings import load_settings
from tests.support.certificates import Authority
from tests.support.command_line import run_command
from tests.support.jvm import java_tool
from tests.support.kafka import REPOSITORY, settings_for
from tests.support.processes import Process, free_port, wait_until
from tests.support.remoting_client import RemotingClient

# The history process has a low priority: it takes minutes to start on a busy machine.
pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1_500)]

PASSWORD = "Tr0ub4dor-and-3"
REGISTER_BROKER = 103
DEADLINE_S = 180.0
HISTORY_DEADLINE_S = 900.0


_FAST = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class SecureKafka:
    """A Kafka node with an additional listener, SASL_SSL with PLAIN; a context manager.

    Attributes:
        addr: ``host:port`` of the additional listener.
        plain_addr: ``host:port`` of the usual one, whose user is ``ANONYMOUS``.
    """

    def __init__(
        self, work_dir: Path, authority: Authority, user: str, password: str, own: Mapping[str, str] | None = None
    ) -> None:
        settings = settings_for(work_dir / "data")
        port = free_port()
        self.plain_addr = f"127.0.0.1:{settings.embedded_kafka.listen_port}"
        self.addr = f"127.0.0.1:{port}"
        work_dir.mkdir(parents=True, exist_ok=True)
        pair = authority.issue("kafka")
        both = work_dir / "kafka-both.pem"
        both.write_bytes(pair.key.read_bytes() + pair.cert.read_bytes())
        lines = node_properties(
            settings, work_dir / "log", settings.embedded_kafka.listen_port, free_port()
        ).splitlines()
        secure = {
            "listeners": f",SECURE://{self.addr}",
            "advertised.listeners": f",SECURE://{self.addr}",
            "listener.security.protocol.map": ",SECURE:SASL_SSL",
        }
        more = {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secure.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
            f' required user_{user}="{password}";',
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": str(both),
            "listener.name.secure.ssl.truststore.type": "PEM",
            "listener.name.secure.ssl.truststore.location": str(authority.trust_file),
            "listener.name.secure.ssl.client.auth": "required",
        } | dict(own or {})
        text = [line + secure.get(line.partition("=")[0], "") for line in lines]
        config = work_dir / "server.properties"
        config.write_text("\n".join([*text, *(f"{key}={value}" for key, value in more.items())]) + "\n")
        (work_dir / "log4j2.properties").write_text(log4j2_properties())
        java = [
            java_tool("java"),
            *_FAST,
            f"-Dlog4j2.configurationFile={work_dir / 'log4j2.properties'}",
            *("-cp", f"{settings.jars.kafka_dir}/*"),
        ]
        cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        log = work_dir / "kafka.log"
        format_ = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)]
        self._format = Process("kafka-format", format_, log)
        self.process = Process("secure-kafka", [*java, "kafka.Kafka", str(config)], log)

    def __enter__(self) -> "SecureKafka":
        with self._format:
            assert self._format.wait(60) == 0, self._format.log_text()
        self.process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.close()


def _arguments(pid: int) -> str:
    """Return the command lines of a process and of all its children."""
    found = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += "\n" + _arguments(int(child))
    return found


def _configuration(folder: Path, kafka: SecureKafka, authority: Authority) -> Path:
    """Write the configuration of alice."""
    client = authority.issue("client")
    (folder / "password").write_text(PASSWORD)
    conf = folder / "mine.toml"
    conf.write_text(
        f"""
remoting = {{listen_host = "127.0.0.1", listen_port = 0}}
http.listen_port = 0
data.dir = "{folder / "data"}"
logs.level = "DEBUG"
streaming.driver_memory = "512m"
history.driver_memory = "512m"
[kafka]
bootstrap_servers = "{kafka.addr}"
[kafka.extra]
security_protocol = "SASL_SSL"
sasl_mechanism = "PLAIN"
sasl_plain_username = "alice"
sasl_plain_password_file = "{folder / "password"}"
ssl_cafile = "{authority.trust_file}"
ssl_certfile = "{client.cert}"
ssl_keyfile = "{client.key}"
"""
    )
    return conf


def test_all_parts_use_a_secure_kafka_and_never_show_its_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    with SecureKafka(tmp_path / "kafka", authority, "alice", PASSWORD) as kafka:
        conf = _configuration(tmp_path, kafka, authority)
        settings = load_settings(conf, {}).settings

        def has_topics() -> bool:
            ensure_topics(settings)
            return True

        wait_until(has_topics, DEADLINE_S, "Kafka is ready", ignoring=(KafkaUnreachable,))

        def part(name: str, *flags: str) -> Process:
            command = [sys.executable, "-m", "namesrv_stream", name, "-c", str(conf), *flags]
            return Process(name, command, tmp_path / f"{name}.log", cwd=REPOSITORY)

        def facts(name: str) -> dict[str, str | int]:
            return read_run_file(settings.data.run_dir / f"{name}.json") or {}

        with part("job") as job, part("serve") as serve:
            wait_until(lambda: facts("serve") or not serve.is_alive, DEADLINE_S, "the server reaches Kafka")
            assert serve.is_alive, serve.log_text()
            body = orjson.dumps(
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
            with RemotingClient(str(facts("serve")["remoting"])) as broker:
                fields = {"clusterName": "c0", "brokerName": "b0", "brokerAddr": "10.0.0.1:1", "brokerId": "0"}
                more = {"haServerAddr": "10.0.0.1:2", "bodyCrc32": str(zlib.crc32(body))}
                assert broker.ask(REGISTER_BROKER, fields | more, body).code == 0
                wait_until(lambda: facts("job") or not job.is_alive, DEADLINE_S, "the job's first batch")
                assert job.is_alive, job.log_text()
                changes = settings.data.tables_dir / "route_changes"
                wait_until(
                    lambda: "TopicA" in polars.read_delta(str(changes))["topic"].to_list(),
                    DEADLINE_S,
                    "the job has folded what the server logged",
                )
                seen = _arguments(job.pid) + _arguments(serve.pid)
        with part("history-job", "--once") as history:
            assert history.wait(HISTORY_DEADLINE_S) == 0, history.log_text()
            seen += history.log_text()
        seen += job.log_text() + serve.log_text()
        for path in settings.data.dir.rglob("*"):
            if path.is_file():
                seen += path.read_bytes().decode(errors="replace")
    assert PASSWORD not in seen
    assert "PRIVATE KEY" not in seen


def test_a_wrong_password_and_missing_rights_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    own = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with SecureKafka(tmp_path / "kafka", authority, "alice", PASSWORD, own) as kafka:
        conf = _configuration(tmp_path, kafka, authority)
        root = settings_for(tmp_path / "root", kafka__bootstrap_servers=kafka.plain_addr)

        def has_topics() -> bool:
            ensure_topics(root)
            return True

        def findings(topic: str) -> list[tuple[str, str]]:
            found = orjson.loads(run_command("doctor", "--json", "-c", str(conf)).out)
            return [(f["grade"], f["text"]) for f in found if f["area"] == f"topic {topic}"]

        wait_until(has_topics, DEADLINE_S, "Kafka is ready", ignoring=(KafkaUnreachable,))
        events, dead_letters = root.kafka.broker_events_topic, root.kafka.dead_letter_topic
        password = tmp_path / "password"
        password.write_text("wrong")

        def refused() -> bool:
            return "correct the user and the password in kafka.extra" in run_command("doctor", "-c", str(conf)).out

        # Kafka answers late while it starts on a busy machine: the client's connection timeout is then the reason.
        wait_until(refused, DEADLINE_S, "doctor names the refused login")
        password.write_text(PASSWORD)
        unseen = [("fail", "this user lacks Describe, Read, Write, so Kafka does not say whether the topic exists")]
        assert findings(events) == findings(dead_letters) == unseen
        _grant(kafka, events, ACLOperation.READ, ACLOperation.WRITE)
        wait_until(lambda: findings(events) != unseen, DEADLINE_S, "Kafka applies the rights")
        assert findings(events) == [("fail", "this user lacks DescribeConfigs")]
        ran = run_command("config", "set", "liveness.default_timeout_ms", "90000", "-c", str(conf))
        assert (ran.code, "does not permit a request" in ran.err) == (3, True), ran
        _grant(kafka, events, ACLOperation.DESCRIBE_CONFIGS)
        fine = [("ok", "1 partition, 1 replica, settings as needed")]
        wait_until(lambda: findings(events) == fine, DEADLINE_S, "Kafka applies the right")


def _grant(kafka: SecureKafka, topic: str, *operations: ACLOperation) -> None:
    """Grant operations on a topic to alice."""
    where = ResourcePattern(ResourceType.TOPIC, topic)
    admin = KafkaAdminClient(bootstrap_servers=kafka.plain_addr)
    try:
        admin.create_acls([ACL("User:alice", "*", one, ACLPermissionType.ALLOW, where) for one in operations])
    finally:
        admin.close()
