"""The body of REGISTER_BROKER in all its forms, and the hash by which an unchanged one is known.

Source: rocketmq 5.3.3, RegisterBrokerBody and TopicConfig; nameserver.md §6.
"""

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any, Final

from namesrv_stream.errors import BodyDecodeError
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.codes import V3_0_11, V5_0_0, RequestCode
from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader
from namesrv_stream.route.model import DataVersion, QueueData, TopicQueueMappingInfo, shared_queue_data

#: Most bytes that a compressed body may inflate to: as many as an uncompressed one could have, some 300,000 topics.
#: What is decoded from it, written as an event, then fits Kafka's largest record (kafka.max_message_bytes, 20 MiB).
MAX_INFLATED_BYTES: Final = 16 << 20

#: 5.x brokers stamp it anew with each sending, so two bodies that say the same differ in it and nothing else. Exactly
#: as fastjson writes it: a topic of that name has other properties, and so is not taken for it.
_MAPPING_DATA_VERSION: Final = re.compile(
    rb'"mappingDataVersion":\{"counter":[0-9]++,"stateVersion":[0-9]++,"timestamp":[0-9]++\}'
)

# Defaults of rocketmq 5.3.3, TopicConfig.
_DEFAULT_QUEUE_NUMS: Final = 16
_DEFAULT_PERM: Final = 6


@dataclass(frozen=True, slots=True)
class RegisterBrokerBody:
    """What a registration's body says.

    Attributes:
        filter_servers: None where the sender's form has none: those known stay.
    """

    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, QueueData] = field(default_factory=dict)
    topic_mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: tuple[str, ...] | None = ()


def registration_hash(header: RegisterBrokerRequestHeader, body: bytes) -> str:
    """Equal for two registrations that say the same, whatever their checksum, connection and time of sending."""
    said = (
        header.broker_name,
        header.broker_addr,
        header.cluster_name,
        header.ha_server_addr,
        header.broker_id,
        header.heartbeat_timeout_millis,
        header.enable_acting_master,
        header.zone_name,
        header.compressed,
    )
    digest = hashlib.blake2b(repr(said).encode("utf-8", "backslashreplace"), digest_size=16)
    # With single quotes, which fastjson reads but never writes, what looks like the stamp may be text.
    digest.update(body if b"'" in body else _MAPPING_DATA_VERSION.sub(b'"mappingDataVersion":{}', body))
    return digest.hexdigest()


def decode_register_body(body: bytes, *, compressed: bool, version: int) -> RegisterBrokerBody:
    """The body of a registration sent by a broker of release ``version``.

    Differs from RocketMQ: a body that is a zlib stream is inflated even where the header denies it, as brokers of 5.x
    with compressedRegister=true do (ADR 0006).

    Raises:
        BodyDecodeError: It cannot be read; the text says where.
    """
    try:
        if not body:
            return RegisterBrokerBody()
        if version < V3_0_11:
            return _from_wrapper(_object(fastjson.loads(body), "body"), filter_servers=None)
        if compressed or body[:1] == b"\x78":
            return _from_compressed(_inflate(body), has_mappings=version >= V5_0_0)
        fields = _object(fastjson.loads(body), "body")
        filter_servers = fields.get("filterServerList")
        return _from_wrapper(
            _object(fields.get("topicConfigSerializeWrapper") or {}, "topicConfigSerializeWrapper"),
            None if filter_servers is None else _texts(filter_servers),
        )
    except (ValueError, TypeError, KeyError, struct.error, zlib.error, RecursionError) as error:
        raise BodyDecodeError(RequestCode.REGISTER_BROKER, f"{type(error).__name__}: {error}") from error


def decode_data_version(body: bytes | None) -> DataVersion | None:
    """The DataVersion that is the body of 322; None for no body.

    Raises:
        BodyDecodeError: It is no DataVersion.
    """
    if not body:
        return None
    try:
        return _data_version(fastjson.loads(body))
    except (ValueError, TypeError) as error:
        raise BodyDecodeError(RequestCode.QUERY_DATA_VERSION, f"DataVersion: {error}") from error


def _from_wrapper(wrapper: Mapping[str, Any], filter_servers: tuple[str, ...] | None) -> RegisterBrokerBody:
    table = _object(wrapper.get("topicConfigTable") or {}, "topicConfigTable")
    mappings = _object(wrapper.get("topicQueueMappingInfoMap") or {}, "topicQueueMappingInfoMap")
    return RegisterBrokerBody(
        data_version=_data_version(wrapper.get("dataVersion")),
        topics=dict(_topic(config, key) for key, config in table.items()),
        topic_mappings={topic: _mapping(info, topic) for topic, info in mappings.items()},
        filter_servers=filter_servers,
    )


def _topic(config: Any, key: str) -> tuple[str, QueueData]:
    fields = _object(config, f"topicConfigTable.{key}")
    # The name inside counts, not the key. Source: rocketmq 5.3.3, RouteInfoManager.createAndUpdateQueueData.
    name = fields.get("topicName", key)
    if type(name) is not str:
        raise ValueError(f"topicConfigTable.{key}.topicName is not text")
    return intern(name), shared_queue_data(
        _int(fields.get("readQueueNums"), _DEFAULT_QUEUE_NUMS),
        _int(fields.get("writeQueueNums"), _DEFAULT_QUEUE_NUMS),
        _int(fields.get("perm"), _DEFAULT_PERM),
        _int(fields.get("topicSysFlag"), 0),
    )


def _mapping(value: Any, topic: str) -> TopicQueueMappingInfo:
    fields = _object(value, f"topicQueueMappingInfoMap.{topic}")
    return TopicQueueMappingInfo(
        topic=str(fields.get("topic", topic)),
        bname=str(fields.get("bname", "")),
        total_queues=_int(fields.get("totalQueues"), 0),
        epoch=_long(fields.get("epoch"), 0),
        scope=str(fields.get("scope", "__global__")),
        dirty=bool(fields.get("dirty", False)),
        curr_id_map={_int(k): _int(v) for k, v in _object(fields.get("currIdMap") or {}, "currIdMap").items()},
    )


def _data_version(value: Any) -> DataVersion:
    if value is None:
        return DataVersion()
    fields = _object(value, "dataVersion")
    return DataVersion(
        _long(fields.get("counter"), 0), _long(fields.get("timestamp"), 0), _long(fields.get("stateVersion"), 0)
    )


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, MAX_INFLATED_BYTES)
    if not inflater.eof:
        raise ValueError(f"zlib stream without an end within {MAX_INFLATED_BYTES} bytes")
    return data


def _from_compressed(data: bytes, *, has_mappings: bool) -> RegisterBrokerBody:
    chunks = _Chunks(data)
    data_version = _data_version(fastjson.loads(chunks.take()))
    topics = dict(_topic_text(chunks.take().decode()) for _ in chunks.counted())
    filter_servers = _texts(fastjson.loads(chunks.take()))
    mappings: dict[str, TopicQueueMappingInfo] = {}
    if has_mappings:
        infos = [_mapping(fastjson.loads(chunks.take()), "") for _ in chunks.counted()]
        mappings = {info.topic: info for info in infos}
    return RegisterBrokerBody(data_version, topics, mappings, filter_servers)


def _topic_text(text: str) -> tuple[str, QueueData]:
    # name readQ writeQ perm filterType [attributes]; order and topicSysFlag are not carried.
    parts = text.split(" ")
    if len(parts) < 5:
        raise ValueError(f"topic {text[:200]!r} has {len(parts)} of 5 parts")
    return parts[0], shared_queue_data(_int(parts[1]), _int(parts[2]), _int(parts[3]), 0)


class _Chunks:
    """Reads the length-prefixed parts of an inflated body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        (number,) = struct.unpack_from(">i", self._data, self._at)
        self._at += 4
        if number < 0:
            raise ValueError(f"negative length {number}")
        return int(number)

    def take(self) -> bytes:
        length = self.number()
        if self._at + length > len(self._data):
            raise ValueError(f"part of {length} bytes ends behind the body")
        part = self._data[self._at : self._at + length]
        self._at += length
        return part

    def counted(self) -> Iterator[int]:
        return iter(range(self.number()))


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("filterServerList is not a list")
    return tuple(str(v) for v in value)


def _int(value: Any, default: int | None = None) -> int:
    """A Java int, which the tables' columns hold too; null leaves a Java field at its default."""
    return _signed(default if value is None else value, 31)


def _long(value: Any, default: int) -> int:
    return _signed(default if value is None else value, 63)


def _signed(value: Any, bits: int) -> int:
    number = int(value)
    if not -(1 << bits) <= number < 1 << bits:
        raise ValueError(f"{str(number)[:30]} does not fit {bits + 1} bits")
    return number
