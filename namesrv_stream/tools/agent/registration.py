"""REGISTER_BROKER and UNREGISTER_BROKER as a broker of RocketMQ 5.3.3 sends them; pure.

Source: rocketmq 5.3.3, BrokerOuterAPI.registerBrokerAll and TopicConfigManager; checked against its captured frames.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from namesrv_stream.remoting.command import MQ_VERSION, LanguageCode, RemotingCommand, RequestCode
from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from namesrv_stream.tools.agent.agent_config import BrokerIdentity

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
    """Version of a topic table: ``timestamp`` is the epoch milliseconds of the change."""

    counter: int
    timestamp: int
    state_version: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """The version after one more change."""
        return DataVersion(self.counter + 1, now_ms, self.state_version)


def own_topics(identity: BrokerIdentity) -> dict[str, TopicConfig]:
    """System topics that every 5.x broker registers, as far as they matter to name servers and their users."""
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
        """The body to send now. A 5.x broker stamps ``mappingDataVersion`` every time, changed or not."""
        return b"%b%d%b" % (self.head, now_ms, self.tail)


def register_request(identity: BrokerIdentity, timeout_ms: int | None, body: bytes) -> RemotingCommand:
    """The request that carries ``body``.

    Args:
        identity: The broker.
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
    """The request that unregisters a broker."""
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
