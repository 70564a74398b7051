"""A real Kafka whose clients must come with TLS, with a certificate and with a password."""

import base64
import uuid
from pathlib import Path

from namesrv_stream.kafka.embedded_node import log4j2_properties, node_properties
from tests.support.certificates import Authority
from tests.support.jvm import java_tool
from tests.support.kafka import settings_for
from tests.support.processes import Process, free_port

_FAST = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class SecureKafka:
    """A node with a listener of its own kind, SASL_SSL with PLAIN; a context manager.

    Attributes:
        addr: ``host:port`` of that listener.
    """

    def __init__(self, work_dir: Path, authority: Authority, user: str, password: str) -> None:
        settings = settings_for(work_dir / "data")
        port = free_port()
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
        }
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
