"""Decodes the body of REGISTER_BROKER in all its forms.

Source: rocketmq 5.3.3, RegisterBrokerBody and TopicConfig.
"""

import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Any, Final, NamedTuple

import orjson

from namesrv_stream.errors import BodyDecodeError
from namesrv_stream.processor.body_fields import as_boolean, as_int, as_long, as_object, as_text, as_texts
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import V3_0_11, V5_0_0, RequestCode
from namesrv_stream.route.model import DataVersion, QueueData, TopicQueueMappingInfo, shared_queue_data
from namesrv_stream.route.registration_json import mapping_fields

# A registration must fit one record of the log. A body with millions of empty topics or mappings becomes several times
# larger when defaults are filled in. No body that Java writes in one frame comes near these limits.
#: Maximum of topics, static mappings and filter servers together, and of queues of all static mappings. The largest
#: frame has room for 115,000 topics as Java writes them.
MAX_ENTRIES: Final = 300_000
#: Maximum size of these entries in an event, as JSON. With the header, whose bytes may become six each in JSON, they
#: fit a Kafka record (``frame.MAX_HEADER_BYTES``; ``kafka.max_message_bytes`` is at least 20 MiB).
MAX_EVENT_BYTES: Final = 16 << 20

# Maximum sizes in JSON: of an entry without its texts, and of one character of the texts.
_TOPIC_BYTES: Final = 60
_MAPPING_BYTES: Final = 160
_QUEUE_BYTES: Final = 27
_CHAR_BYTES: Final = 6


def require_loggable(
    topics: Mapping[str, QueueData], mappings: Mapping[str, TopicQueueMappingInfo], filter_servers: Collection[str]
) -> int:
    """Return how many bytes the entries of a registration have at most in an event.

    Raises:
        ValueError: They are too many, or too large for an event.
    """
    entries = len(topics) + len(mappings) + len(filter_servers)
    queues = sum(len(mapping.curr_id_map) for mapping in mappings.values())
    if max(entries, queues) > MAX_ENTRIES:
        raise ValueError(f"{entries} topics with {queues} static queues exceed {MAX_ENTRIES}")
    chars = sum(map(len, topics)) + sum(map(len, filter_servers))
    chars += sum(len(key) + len(m.topic) + len(m.bname) + len(m.scope) for key, m in mappings.items())
    most = (len(topics) + len(filter_servers)) * _TOPIC_BYTES + len(mappings) * _MAPPING_BYTES
    most += queues * _QUEUE_BYTES + chars * _CHAR_BYTES
    if most <= MAX_EVENT_BYTES:
        return most
    fields = (
        {topic: list(queue_data) for topic, queue_data in topics.items()},
        {topic: mapping_fields(mapping) for topic, mapping in mappings.items()},
        list(filter_servers),
    )
    size = sum(len(orjson.dumps(field)) for field in fields)
    if size > MAX_EVENT_BYTES:
        raise ValueError(f"as an event it has {size} bytes, which exceeds {MAX_EVENT_BYTES}")
    return most


#: Maximum size of an inflated body: the same as that of an uncompressed body, some 300,000 topics.
MAX_INFLATED_BYTES: Final = 16 << 20
_MAX_REASON_CHARS: Final = 300
#: Maximum size of the body of request 322, which has three numbers.
_MAX_DATA_VERSION_BYTES: Final = 4 * 1024
#: A body within these limits takes some milliseconds to decode: its size when inflated, its values (800 topics as
#: brokers write them), its objects (a static mapping takes as long as ten values), its size in fastjson's dialect.
_INLINE_BYTES: Final = 64 * 1024
_INLINE_VALUES: Final = 8_000
_INLINE_OBJECTS: Final = 2_000
_INLINE_LENIENT_BYTES: Final = 4 * 1024

# Defaults of rocketmq 5.3.3, TopicConfig.
_DEFAULT_QUEUE_NUMS: Final = 16
_DEFAULT_PERM: Final = 6
#: Source: rocketmq 5.3.3, TopicFilterType.
_FILTER_TYPES: Final = frozenset(("SINGLE_TAG", "MULTI_TAG"))


@dataclass(frozen=True, slots=True)
class RegisterBrokerBody:
    """The decoded body of a registration.

    ``filter_servers`` None keeps those that are known. ``topics_json`` and ``event_bytes`` are those of
    ``Registration``.
    """

    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, QueueData] = field(default_factory=dict)
    topic_mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    filter_servers: tuple[str, ...] | None = ()
    topics_json: bytes = field(default=b"", compare=False, repr=False)
    event_bytes: int = field(default=0, compare=False, repr=False)


class RegistrationBody(NamedTuple):
    """The body of a registration from a broker of release ``version``; ``compressed`` is what the header says."""

    body: bytes
    compressed: bool
    version: int

    @property
    def is_deflated(self) -> bool:
        """Whether the body is a zlib stream, even if the header denies it."""
        return self.compressed or self.body[:1] == b"\x78"

    @property
    def is_large(self) -> bool:
        """Whether decoding would block an event loop for too long; ``decode_inline`` detects bodies in the dialect."""
        text, inflater = self.body, zlib.decompressobj()
        if self.is_deflated:
            try:
                text = inflater.decompress(self.body, _INLINE_BYTES)
            except zlib.error:
                return False  # decoding it fails as early
            if not inflater.eof:
                return True
        return fastjson.has_more_values(text, _INLINE_VALUES) or text.count(b"{") > _INLINE_OBJECTS


def decode_inline(sent: RegistrationBody) -> RegisterBrokerBody | None:
    """Decode a body on an event loop, as ``decode_register_body`` does; None if that takes too long."""
    return None if sent.is_large else _decode(sent, _INLINE_LENIENT_BYTES)


def decode_register_body(body: bytes, compressed: bool, version: int) -> RegisterBrokerBody:
    """Decode the body of a registration from a broker of release ``version``.

    Differs from RocketMQ: a zlib stream is inflated even if the header denies it, as the headers of 5.x brokers with
    compressedRegister=true do (ADR 0006).

    Differs from RocketMQ: a body with too many entries, or too large for the log, is refused.

    Raises:
        BodyDecodeError: The body cannot be decoded, or is too large; the message says where.
    """
    decoded = _decode(RegistrationBody(body, compressed, version), fastjson.MAX_LENIENT_BYTES)
    assert decoded is not None
    return decoded


def _decode(sent: RegistrationBody, max_lenient_bytes: int) -> RegisterBrokerBody | None:
    """Decode a body; None if it is in fastjson's dialect, and longer than a limit that is below the usual one."""
    try:
        decoded = _decoded(sent, max_lenient_bytes)
        most = require_loggable(decoded.topics, decoded.topic_mappings, decoded.filter_servers or ())
        return replace(decoded, event_bytes=most)
    except zlib.error as error:
        raise BodyDecodeError(RequestCode.REGISTER_BROKER, "not a zlib stream, or a broken one") from error
    except struct.error as error:
        raise BodyDecodeError(RequestCode.REGISTER_BROKER, "ends within a length") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, fastjson.TooLongForLenient) and max_lenient_bytes < fastjson.MAX_LENIENT_BYTES:
            return None
        reason = str(error)[:_MAX_REASON_CHARS]  # it quotes keys of the body
        raise BodyDecodeError(RequestCode.REGISTER_BROKER, reason) from error


def decode_data_version(body: bytes | None) -> DataVersion | None:
    """Decode the DataVersion in the body of request 322; None if there is no body.

    Raises:
        BodyDecodeError: The body is not a DataVersion.
    """
    if not body:
        return None
    try:
        if len(body) > _MAX_DATA_VERSION_BYTES:
            raise ValueError(f"{len(body)} bytes exceed {_MAX_DATA_VERSION_BYTES}")
        return _data_version(fastjson.loads(body))
    except (ValueError, TypeError) as error:
        raise BodyDecodeError(RequestCode.QUERY_DATA_VERSION, f"DataVersion: {error}") from error


def _decoded(sent: RegistrationBody, max_lenient_bytes: int) -> RegisterBrokerBody:
    body = sent.body
    if sent.version < V3_0_11:  # this form has no filter servers, so the known ones remain
        if not body:
            return RegisterBrokerBody(filter_servers=None)
        return _from_wrapper(as_object(fastjson.loads(body, max_lenient_bytes), "body"), body, filter_servers=None)
    if not body:
        return RegisterBrokerBody()
    if sent.is_deflated:
        return _from_compressed(body, has_mappings=sent.version >= V5_0_0)
    fields = as_object(fastjson.loads(body, max_lenient_bytes), "body")
    wrapper = as_object(fields.get("topicConfigSerializeWrapper") or {}, "topicConfigSerializeWrapper")
    # As in Java, an absent list is an empty one and removes the known filter servers. Only null keeps them.
    servers = fields.get("filterServerList", [])
    return _from_wrapper(wrapper, body, None if servers is None else as_texts(servers, "filterServerList"))


def _from_wrapper(
    wrapper: Mapping[str, Any], body: bytes, filter_servers: tuple[str, ...] | None
) -> RegisterBrokerBody:
    shapes: dict[tuple[Any, ...], QueueData] = {}
    mappings = _table(wrapper, "topicQueueMappingInfoMap")
    return RegisterBrokerBody(
        data_version=_data_version(wrapper.get("dataVersion"), body),
        topics=dict(_topic(config, key, shapes) for key, config in _table(wrapper, "topicConfigTable").items()),
        topic_mappings={topic: _mapping(info, topic) for topic, info in mappings.items()},
        filter_servers=filter_servers,
    )


def _table(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = as_object(fields.get(name) or {}, name)
    if len(table) > MAX_ENTRIES:
        raise ValueError(f"{name} has {len(table)} entries, which exceeds {MAX_ENTRIES}")
    return table


def _topic(config: Any, key: str, shapes: dict[tuple[Any, ...], QueueData]) -> tuple[str, QueueData]:
    """Return name and queues of one topic; ``shapes`` caches queues by their numbers as written in the body."""
    if type(config) is not dict:
        raise ValueError(f"topicConfigTable.{key} is not an object")
    fields = config.get
    # The value's name counts, not the key. Source: rocketmq 5.3.3, RouteInfoManager.createAndUpdateQueueData.
    name = fields("topicName", key)
    if type(name) is not str:
        raise ValueError(f"topicConfigTable.{key}.topicName is not text")
    written = fields("readQueueNums"), fields("writeQueueNums"), fields("perm"), fields("topicSysFlag")
    shape = shapes.get(written)
    if shape is None:
        read, write, perm, flag = written
        shape = shapes[written] = shared_queue_data(
            as_int(read, _DEFAULT_QUEUE_NUMS),
            as_int(write, _DEFAULT_QUEUE_NUMS),
            as_int(perm, _DEFAULT_PERM),
            as_int(flag, 0),
        )
    return intern(name), shape


def _mapping(value: Any, topic: str) -> TopicQueueMappingInfo:
    fields = as_object(value, f"topicQueueMappingInfoMap.{topic}")
    return TopicQueueMappingInfo(
        topic=as_text(fields.get("topic"), topic, "topic"),
        bname=as_text(fields.get("bname"), "", "bname"),
        total_queues=as_int(fields.get("totalQueues"), 0),
        epoch=as_long(fields.get("epoch"), 0),
        scope=as_text(fields.get("scope"), "__global__", "scope"),
        dirty=as_boolean(fields.get("dirty"), False, "dirty"),
        curr_id_map={as_int(k): as_int(v) for k, v in _table(fields, "currIdMap").items()},
    )


def _data_version(value: Any, body: bytes = b"") -> DataVersion:
    """Return a DataVersion. A checksum of the body replaces a missing timestamp, so that changes are detected.

    Differs from RocketMQ, which uses the current time, so that every such registration is a change.
    """
    fields = {} if value is None else as_object(value, "dataVersion")
    stamp = fields.get("timestamp")
    return DataVersion(
        as_long(fields.get("counter"), 0),
        zlib.crc32(body) if stamp is None else as_long(stamp, 0),
        as_long(fields.get("stateVersion"), 0),
    )


def _from_compressed(body: bytes, *, has_mappings: bool) -> RegisterBrokerBody:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, MAX_INFLATED_BYTES)
    if not inflater.eof:
        raise ValueError(f"zlib stream without an end within {MAX_INFLATED_BYTES} bytes")
    fastjson.require_few_values(data)
    chunks = _Chunks(data)
    data_version = _data_version(fastjson.loads_written(chunks.take()))
    topics = dict(_topic_text(chunks.take().decode()) for _ in chunks.counted())
    filter_servers = _filter_servers(chunks.take())
    mappings: dict[str, TopicQueueMappingInfo] = {}
    if has_mappings:
        infos = [_mapping(fastjson.loads_written(chunks.take()), "") for _ in chunks.counted()]
        mappings = {info.topic: info for info in infos}
    return RegisterBrokerBody(data_version, topics, mappings, filter_servers)


def _filter_servers(text: bytes) -> tuple[str, ...] | None:
    """Return the filter servers of a compressed body; None, for null or an empty text, keeps the known ones.

    An invalid list counts as empty.

    Source: rocketmq 5.3.3, RegisterBrokerBody.decode, which logs the exception and continues.
    """
    if not text:
        return None
    try:
        servers = fastjson.loads_written(text)
        return None if servers is None else as_texts(servers, "filterServerList")
    except (ValueError, TypeError):
        return ()


def _topic_text(text: str) -> tuple[str, QueueData]:
    # The format is: name readQ writeQ perm filterType [attributes]. It has neither order nor topicSysFlag.
    parts = text.split(" ", 5)
    if len(parts) < 5:
        raise ValueError(f"topic {text[:200]!r} has {len(parts)} of 5 parts")
    if parts[4] not in _FILTER_TYPES:
        raise ValueError(f"topic {parts[0][:200]!r}: {parts[4][:30]!r} is not a topicFilterType")
    return parts[0], shared_queue_data(as_int(parts[1]), as_int(parts[2]), as_int(parts[3]), 0)


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
            raise ValueError(f"part of {length} bytes ends after the body")
        part = self._data[self._at : self._at + length]
        self._at += length
        return part

    def counted(self) -> Iterator[int]:
        """Read a count, and return an iterator of that many steps, in each of which the caller reads an element.

        Raises:
            ValueError: The count is negative, or exceeds ``MAX_ENTRIES``.
        """
        number = self.number()
        if number > MAX_ENTRIES:
            raise ValueError(f"{number} entries exceed {MAX_ENTRIES}")
        return iter(range(number))
