"""Configuration files of the embedded Kafka node, as text."""

from pathlib import Path
from typing import Final

from namesrv_stream.ports import reachable_host
from namesrv_stream.settings import Settings

# A node that was killed is refused until its old session ends, so that is also the shortest restart. Kafka's 9 s would
# be most of a start; much less would fence a node that a busy machine merely kept waiting.
_SESSION_TIMEOUT_MS: Final = 3_000
_HEARTBEAT_INTERVAL_MS: Final = 500


def node_properties(settings: Settings, log_dir: Path, listen_port: int, controller_port: int) -> str:
    """``server.properties`` of a single node that is broker and controller.

    Args:
        settings: For the listener's host and the largest message.
        log_dir: Where the node keeps its log, once formatted.
        listen_port: Of the clients' listener.
        controller_port: Of the controller's listener, on the loopback interface.
    """
    host = settings.embedded_kafka.listen_host
    max_bytes = settings.kafka.max_message_bytes
    properties: dict[str, str | int | Path] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{host}:{listen_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{reachable_host(host)}:{listen_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": log_dir,
        "broker.session.timeout.ms": _SESSION_TIMEOUT_MS,
        "broker.heartbeat.interval.ms": _HEARTBEAT_INTERVAL_MS,
        # One node: nothing has a second replica, and nothing needs many partitions or threads.
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
    # A .properties file reads a backslash as the start of an escape and as nothing else.
    return value.replace("\\", "\\\\")


def log4j2_properties() -> str:
    """Kafka's log: that it has started, and warnings and worse.

    It goes to stderr, which ``up`` keeps in DATA/logs/kafka.log within bounds.
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
