"""Simulated brokers: names, behaviour, and registrations like those of RocketMQ 5.3.3; free of I/O.

Source: rocketmq 5.3.3, BrokerOuterAPI.registerBrokerAll and TopicConfigManager; checked against its captured frames.
"""

import ipaddress
import ssl
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from namesrv_stream.addresses import join_addr, split_addr
from namesrv_stream.client.name_servers import parse_name_servers
from namesrv_stream.errors import ConfigError
from namesrv_stream.remoting.command import MQ_VERSION, LanguageCode, RemotingCommand, RequestCode
from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader

# A broker also listens on its port - 2 ("fast remoting") and + 1 (replication), so neighbours keep a distance.
_PORT_STEP = 10
_LAST_PORT = 65_535
_HA_OFFSET = 1  # BrokerStartup sets haListenPort to listenPort + 1


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """One simulated broker. Nothing listens at its addresses."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What to simulate. Durations in milliseconds, with RocketMQ's defaults.

    Attributes:
        name_servers: ``host:port``, several separated by ``;``.
        cluster: ``brokerClusterName``.
        broker_name: ``brokerName``; with several brokers, the prefix of their names.
        broker_addr: Address of the first broker; the others' ports follow in steps of 10.
        broker_id: 0 for masters.
        brokers: Number of brokers.
        topics: Topics of every broker, in addition to RocketMQ's system topics.
        total_topics: Topics in total, assigned round-robin; 0: all brokers have the same topics.
        topic_prefix: Prefix of the names of topics.
        topic_names: Further topics of every broker.
        queues: Read and write queues of every topic; ``defaultTopicQueueNums``.
        system_topics: Whether to register a broker's system topics as well. A name server refuses an unknown broker
            that registers exactly one topic.
        heartbeat_interval_ms: Time between registrations; ``registerNameServerPeriod``.
        jitter: Part of the interval that varies: 0.1 means between 90 % and 110 % of it.
        timeout_ms: ``heartbeatTimeoutMillis``; None leaves it out, as a broker without acting master does.
        register_timeout_ms: Time limit for an answer; ``registerBrokerTimeoutMills``.
        unregister_timeout_ms: Time limit for the answer to an unregistration, 3 s in BrokerOuterAPI.unregisterBroker.
        connect_timeout_ms: Time limit for opening a connection.
        start_spread_ms: The first registrations are spread over this time; None: 5 ms per broker.
        max_back_off_ms: Longest delay between attempts to reconnect.
        tls: TLS of the connections to name servers; None for plain ones.
    """

    name_servers: str
    cluster: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_addr: str = "127.0.0.1:10911"
    broker_id: int = 0
    brokers: int = 1
    topics: int = 1
    total_topics: int = 0
    topic_prefix: str = "Topic"
    topic_names: tuple[str, ...] = ()
    queues: int = 8
    system_topics: bool = True
    heartbeat_interval_ms: int = 30_000
    jitter: float = 0.1
    timeout_ms: int | None = None
    register_timeout_ms: int = 24_000
    unregister_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    start_spread_ms: int | None = None
    max_back_off_ms: int = 5_000
    tls: ssl.SSLContext | None = None
    name_server_addrs: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: A value is invalid.
        """
        object.__setattr__(self, "name_server_addrs", parse_name_servers(self.name_servers))
        try:
            split_addr(self.broker_addr)
        except ValueError as error:
            raise ConfigError("agent", "--addr", f"{self.broker_addr}: {error}") from None
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(
                    "agent", _flag(name), f"is {value}, must be at least {least}{' ms' * name.endswith('_ms')}"
                )
        if not 0 <= self.jitter < 1:
            raise ConfigError("agent", "--jitter", f"is {self.jitter}, must be at least 0 and below 1")
        if self.total_topics and self.total_topics < self.topics:
            raise ConfigError("agent", "--total-topics", f"is {self.total_topics}, below {self.topics} on each broker")

    @property
    def spread_ms(self) -> int:
        """The time over which the first registrations are spread, in milliseconds."""
        return 5 * (self.brokers - 1) if self.start_spread_ms is None else self.start_spread_ms

    def identities(self) -> Iterator[BrokerIdentity]:
        """Yield the brokers, in order.

        Raises:
            ConfigError: The ports from ``broker_addr`` on are too few for the brokers, and the host is no IP address.
        """
        host, port = split_addr(self.broker_addr)
        width = len(str(self.brokers - 1))
        for index in range(self.brokers):
            if port + _HA_OFFSET > _LAST_PORT:
                host, port = _next_host(host), split_addr(self.broker_addr)[1]
            name = self.broker_name if self.brokers == 1 else f"{self.broker_name}-{index:0{width}d}"
            addrs = join_addr(host, port), join_addr(host, port + _HA_OFFSET)
            yield BrokerIdentity(self.cluster, name, self.broker_id, *addrs)
            port += _PORT_STEP

    def topics_of(self, index: int) -> tuple[str, ...]:
        """Names of the topics of broker ``index``, without system topics."""
        total = self.total_topics or self.topics
        width = len(str(max(total - 1, 0)))
        numbers = (
            ((index * self.topics + step) % total for step in range(self.topics)) if self.total_topics else range(total)
        )
        return tuple(
            dict.fromkeys([*(f"{self.topic_prefix}{number:0{width}d}" for number in numbers), *self.topic_names])
        )


_LEAST = {
    "brokers": 1,
    "topics": 0,
    "total_topics": 0,
    "queues": 1,
    "broker_id": 0,
    "heartbeat_interval_ms": 1,
    "timeout_ms": 1,
    "register_timeout_ms": 1,
    "unregister_timeout_ms": 1,
    "connect_timeout_ms": 1,
    "start_spread_ms": 0,
    "max_back_off_ms": 1,
}


def _flag(name: str) -> str:
    """Return the flag of ``namesrv-stream agent`` that sets a field of ``AgentConfig``."""
    return f"--{name.removesuffix('_ms').replace('_', '-')}"


def _next_host(host: str) -> str:
    try:
        address, zone, index = host.partition("%")
        return f"{ipaddress.ip_address(address) + 1}{zone}{index}"
    except ValueError:
        raise ConfigError(
            "agent", "--addr", f"{host} is not an IP address, so there are only as many brokers as it has ports"
        ) from None


PERM_READ_WRITE: Final = 6
PERM_READ_WRITE_INHERIT: Final = 7
PERM_INHERIT: Final = 1

_CRC_MASK: Final = 0x7FFFFFFF  # UtilAll.crc32 clears the sign bit


class TopicConfig(NamedTuple):
    """What a broker registers about a topic."""

    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = PERM_READ_WRITE


class DataVersion(NamedTuple):
    """Version of a topic table: ``timestamp`` is the time of the last change, in epoch milliseconds."""

    counter: int
    timestamp: int
    state_version: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """Return the version after one more change."""
        return DataVersion(self.counter + 1, now_ms, self.state_version)


def own_topics(identity: BrokerIdentity) -> dict[str, TopicConfig]:
    """Return the system topics of every 5.x broker, as far as they matter to name servers and their users."""
    return {
        identity.cluster: TopicConfig(16, 16, PERM_READ_WRITE_INHERIT),
        identity.broker_name: TopicConfig(1, 1, PERM_READ_WRITE_INHERIT),
        f"rmq_sys_SYNC_BROKER_MEMBER_{identity.broker_name}": TopicConfig(1, 1, PERM_INHERIT),
    }


@dataclass(frozen=True, slots=True)
class RegistrationBody:
    """The body of REGISTER_BROKER, encoded once per DataVersion, except for one time stamp.

    Attributes:
        head: The part before the time stamp of ``mappingDataVersion``.
        tail: The part after it, with the topic table.
    """

    head: bytes
    tail: bytes

    @classmethod
    def of(cls, data_version: DataVersion, topics: Mapping[str, TopicConfig]) -> "RegistrationBody":
        """Encode a whole topic table."""
        head = (
            b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":'
            + orjson.dumps(_data_version_fields(data_version))
            + b',"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":'
        )
        table = {name: _topic_fields(name, config) for name, config in topics.items()}
        tail = (
            b'},"topicConfigTable":'
            + orjson.dumps(table)
            + b',"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
        )
        return cls(head, tail)

    def at(self, now_ms: int) -> bytes:
        """Return the body to send now. A 5.x broker puts the time into ``mappingDataVersion``, changed or not."""
        return b"%b%d%b" % (self.head, now_ms, self.tail)


def register_request(identity: BrokerIdentity, timeout_ms: int | None, body: bytes) -> RemotingCommand:
    """Return the request that carries ``body``.

    Args:
        timeout_ms: ``heartbeatTimeoutMillis``; None leaves it out, as a broker without acting master does.
        body: The result of ``RegistrationBody.at``.
    """
    header = RegisterBrokerRequestHeader(
        broker_name=identity.broker_name,
        broker_addr=identity.broker_addr,
        cluster_name=identity.cluster,
        ha_server_addr=identity.ha_server_addr,
        broker_id=identity.broker_id,
        heartbeat_timeout_millis=timeout_ms,
        enable_acting_master=False,
        body_crc32=zlib.crc32(body) & _CRC_MASK,
    )
    return _request(RequestCode.REGISTER_BROKER, header.to_ext_fields(), body)


def unregister_request(identity: BrokerIdentity) -> RemotingCommand:
    """Return the request that unregisters a broker."""
    header = UnRegisterBrokerRequestHeader(
        broker_name=identity.broker_name,
        broker_addr=identity.broker_addr,
        cluster_name=identity.cluster,
        broker_id=identity.broker_id,
    )
    return _request(RequestCode.UNREGISTER_BROKER, header.to_ext_fields(), None)


def _request(code: int, ext_fields: dict[str, str], body: bytes | None) -> RemotingCommand:
    return RemotingCommand(
        code=code, language=LanguageCode.PYTHON, version=MQ_VERSION, ext_fields=ext_fields, body=body
    )


def _data_version_fields(version: DataVersion) -> dict[str, int]:
    return {"counter": version.counter, "stateVersion": version.state_version, "timestamp": version.timestamp}


def _topic_fields(name: str, config: TopicConfig) -> dict[str, object]:
    return {
        "attributes": {},
        "order": False,
        "perm": config.perm,
        "readQueueNums": config.read_queue_nums,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": config.write_queue_nums,
    }
