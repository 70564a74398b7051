"""The embedded Kafka: one KRaft node on this machine, with its log in the data directory.

This process writes the configuration, formats the storage once, and then replaces itself with the Java process (exec).
So the parent, usually ``up``, monitors, signals and reaps Kafka directly.
"""

import base64
import os
import subprocess
import uuid
from pathlib import Path
from typing import Final, NoReturn

from namesrv_stream.addresses import join_addr
from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.jvm import jvm_environment, last_failure
from namesrv_stream.kafka.clients import bootstrap_servers
from namesrv_stream.logs import progress
from namesrv_stream.ports import choose_port, reachable_host, require_free
from namesrv_stream.prerequisites import find_java, kafka_jars
from namesrv_stream.processes import read_run_file, write_run_file
from namesrv_stream.settings import Settings

_FORMAT_TIMEOUT_S: Final = 120

# C1 only: the start takes half the processor time, and C1 is fast enough for the log of one machine.
_JVM_FLAGS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


def run_kafka(settings: Settings) -> NoReturn:
    """Replace this process with the embedded Kafka, which stops on SIGTERM.

    Raises:
        PrerequisiteMissing: Java 17 or the jars are missing.
        ConfigError: The port is in use, or the data directory cannot be written.
    """
    java = find_java()
    jars = settings.jars.kafka_dir
    kafka_jars(jars).require()
    home = settings.data.kafka_dir
    try:
        home.mkdir(parents=True, exist_ok=True)
        config = _configure(settings)
    except OSError as error:
        raise ConfigError("settings", "data.dir", f"{home} cannot be written: {error.strerror}") from None
    classpath = f"{jars}/*"
    if not (home / "log" / "meta.properties").is_file():
        progress("formatting Kafka's storage")
        _format(java, classpath, home, config)
    command = [
        str(java),
        f"-Xmx{settings.embedded_kafka.heap}",
        *_JVM_FLAGS,
        f"-XX:ErrorFile={settings.data.logs_dir}/kafka-hs-err.log",
        f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}",
        "-cp",
        classpath,
        "kafka.Kafka",
        str(config),
    ]
    progress(f"Kafka is going to listen at {bootstrap_servers(settings)}")
    os.execve(command[0], command, jvm_environment(os.environ))


def _configure(settings: Settings) -> Path:
    """Write the node's files and the run file with its address, and return the path of its configuration."""
    home = settings.data.kafka_dir
    if "," in str(home):
        raise ConfigError("settings", "data.dir", f"{home}: Kafka's log.dirs cannot name a folder with a comma")
    host = settings.embedded_kafka.listen_host
    last = read_run_file(home / "ports.json") or {}
    listen_port = settings.embedded_kafka.listen_port or choose_port(host, int(last.get("listen_port", 0)))
    require_free(host, listen_port, "embedded_kafka")
    controller_port = choose_port("127.0.0.1", int(last.get("controller_port", 0)), taken=[listen_port])
    write_run_file(home / "ports.json", {"listen_port": listen_port, "controller_port": controller_port})
    (home / "log4j2.properties").write_text(log4j2_properties(), encoding="utf-8")
    config = home / "server.properties"
    config.write_text(node_properties(settings, home / "log", listen_port, controller_port), encoding="utf-8")
    write_run_file(settings.data.run_dir / "kafka.json", {"kafka": join_addr(reachable_host(host), listen_port)})
    return config


def _format(java: Path, classpath: str, home: Path, config: Path) -> None:
    # The id is 16 bytes in base64. Kafka's tool takes an id that begins with a dash as a flag.
    cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    command: list[str | Path] = [java, "-Xmx128m", *_JVM_FLAGS]
    command += [f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}", "-cp", classpath]
    command += ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config]
    try:
        outcome = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_FORMAT_TIMEOUT_S,
            check=False,
            env=jvm_environment(os.environ),
        )
    except subprocess.TimeoutExpired:
        raise NamesrvStreamError(f"Kafka's storage was not formatted within {_FORMAT_TIMEOUT_S} s") from None
    if outcome.returncode:
        reason = last_failure(outcome.stdout.splitlines()) or "no reason given"
        raise NamesrvStreamError(f"Kafka's storage in {home} cannot be formatted: {reason}")


# Kafka refuses a killed node until its old session ends, so this is the minimum duration of a restart. Kafka's default
# of 9 s is too long. A much shorter session would fence a running node on a busy machine.
_SESSION_TIMEOUT_MS: Final = 3_000
_HEARTBEAT_INTERVAL_MS: Final = 500


def node_properties(settings: Settings, log_dir: Path, listen_port: int, controller_port: int) -> str:
    """Return ``server.properties`` of a single node that is broker and controller.

    Args:
        settings: The listener's host and the largest message are used.
        log_dir: Directory of the node's log.
        listen_port: Port of the clients' listener.
        controller_port: Port of the controller's listener, on the loopback interface.
    """
    host = settings.embedded_kafka.listen_host
    max_bytes = settings.kafka.max_message_bytes
    properties: dict[str, str | int | Path] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{join_addr(host, listen_port)},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{join_addr(reachable_host(host), listen_port)}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": log_dir,
        "broker.session.timeout.ms": _SESSION_TIMEOUT_MS,
        "broker.heartbeat.interval.ms": _HEARTBEAT_INTERVAL_MS,
        # A single node has no second replicas, and needs few partitions and threads.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "num.network.threads": 2,
        "num.io.threads": 2,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        "message.max.bytes": max_bytes,
        "replica.fetch.max.bytes": max_bytes,
        "replica.fetch.response.max.bytes": max_bytes,
        "socket.request.max.bytes": max(100 << 20, 2 * max_bytes),
    }
    return "".join(f"{name}={_escaped(str(value))}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    # In a .properties file, only the backslash needs escaping.
    return value.replace("\\", "\\\\")


def log4j2_properties() -> str:
    """Return the configuration of Kafka's own messages: only its start, warnings and errors are logged.

    They go to stderr, which ``up`` writes to DATA/logs/kafka.log with a size limit.
    """
    return """\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
logger.started.name = kafka.server.KafkaRaftServer
logger.started.level = info
"""
