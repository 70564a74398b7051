"""Registrations and static mappings as JSON. The event log, the tables and the fold's state use the same form."""

import re
from collections.abc import Collection, Iterator, Mapping
from sys import intern
from typing import Any, Final

import orjson

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.model import DataVersion, QueueData, Registration, TopicQueueMappingInfo, shared_queue_data

# orjson decodes integers beyond 64 bits as floats, so only these two bounds remain to check.
_INT64_MAX = 2**63 - 1
_INT32 = range(-(2**31), 2**31)
#: Parts of the text of ``encode_registration``. Within a name, every quotation mark has a backslash before it.
_HEAD: Final = re.compile(r'"data_version":(\[[-0-9,]++\]),"timeout_ms":(null|-?[0-9]++),')
_TOPICS, _TOPICS_END, _MAPPINGS = ',"topics":{', '},"filter_servers":', ',"topic_mappings":{'
_TOPIC: Final = re.compile(r'"((?:[^"\\]++|\\.)*+)":\[[-0-9,]++\],?')
#: To search the text for one topic takes a hundredth of the time of decoding it.
_MOST_SEARCHES: Final = 8


def encode_registration(registration: Registration) -> str:
    """Return the registration as JSON. A topic is [readQueueNums, writeQueueNums, perm, topicSysFlag]."""
    fields: dict[str, Any] = {
        "cluster": registration.cluster,
        "broker_name": registration.broker_name,
        "broker_addr": registration.broker_addr,
        "broker_id": registration.broker_id,
        "ha_server_addr": registration.ha_server_addr,
        "data_version": list(registration.data_version),
        "timeout_ms": registration.timeout_ms,
        "enable_acting_master": registration.enable_acting_master,
        "zone_name": registration.zone_name,
        "registration_hash": registration.registration_hash,
        "topics": orjson.Fragment(registration.topics_json or encode_topics(registration.topics)),
        "filter_servers": None if registration.filter_servers is None else list(registration.filter_servers),
    }
    if registration.topic_mappings is not None:
        fields["topic_mappings"] = {t: mapping_fields(m) for t, m in registration.topic_mappings.items()}
    return orjson.dumps(fields).decode()


def encode_topics(topics: Mapping[str, QueueData]) -> bytes:
    """Return the topics of a registration as JSON, as ``encode_registration`` writes them."""
    # Many topics share few distinct values; each of these is encoded once.
    shapes = {q: orjson.Fragment(orjson.dumps(list(q))) for q in set(topics.values())}
    return orjson.dumps({topic: shapes[q] for topic, q in topics.items()})


def registration_from(fields: Mapping[str, Any]) -> Registration:
    """Return a registration from its JSON values. Unknown fields are ignored.

    Raises:
        EventDecodeError: A field is missing or of the wrong type; the text names it.
    """
    mappings = _optional(fields, "topic_mappings", dict)
    filter_servers = _optional(fields, "filter_servers", list)
    return Registration(
        cluster=require(fields, "cluster", str),
        broker_name=require(fields, "broker_name", str),
        broker_addr=require(fields, "broker_addr", str),
        broker_id=require(fields, "broker_id", int),
        ha_server_addr=_optional(fields, "ha_server_addr", str) or "",
        data_version=_data_version(fields),
        timeout_ms=_optional(fields, "timeout_ms", int),
        enable_acting_master=_optional(fields, "enable_acting_master", bool),
        zone_name=_optional(fields, "zone_name", str),
        registration_hash=_optional(fields, "registration_hash", str) or "",
        topics=_topics(require(fields, "topics", dict)),
        filter_servers=None if filter_servers is None else tuple(_texts(filter_servers, "filter_servers")),
        topic_mappings=None if mappings is None else {t: mapping_from(m) for t, m in mappings.items()},
    )


def decode_registration(text: str) -> Registration:
    """Inverse of ``encode_registration``.

    Raises:
        EventDecodeError: As for ``registration_from``.
    """
    return registration_from(orjson.loads(text))


def queue_data_from(value: Any, where: str) -> QueueData:
    """Return the queues of a topic from their JSON value; ``where`` names the value in the error.

    Raises:
        EventDecodeError: The value is not a list of 3 or 4 integers of 32 bits.
    """
    if not isinstance(value, list) or len(value) not in (3, 4) or not all(_is_int32(n) for n in value):
        raise EventDecodeError(f"{where}: expected [readQueueNums, writeQueueNums, perm, topicSysFlag]")
    return shared_queue_data(value[0], value[1], value[2], value[3] if len(value) == 4 else 0)


def _topics(values: Mapping[str, Any]) -> Mapping[str, QueueData]:
    """Return all topics. Many topics share few distinct values; each of these is checked once."""
    shapes: dict[tuple[int, int, int, int], QueueData] = {}
    topics: dict[str, QueueData] = {}
    for topic, value in values.items():
        shape = None
        if type(value) is list and len(value) == 4:
            read, write, perm, flag = value
            # True and 1.0 equal 1, and are not valid here.
            if type(read) is int and type(write) is int and type(perm) is int and type(flag) is int:
                shape = shapes.get((read, write, perm, flag))
                if shape is None:
                    shape = shapes[read, write, perm, flag] = queue_data_from(value, f"topics.{topic}")
        topics[intern(topic)] = queue_data_from(value, f"topics.{topic}") if shape is None else shape
    return topics


def mapping_fields(info: TopicQueueMappingInfo) -> dict[str, Any]:
    """Return a static mapping as JSON values."""
    return {
        "topic": info.topic,
        "bname": info.bname,
        "total_queues": info.total_queues,
        "epoch": info.epoch,
        "scope": info.scope,
        "dirty": info.dirty,
        "curr_id_map": {str(k): v for k, v in info.curr_id_map.items()},
    }


def encode_mapping(info: TopicQueueMappingInfo) -> str:
    return orjson.dumps(mapping_fields(info)).decode()


def mapping_from(fields: Any) -> TopicQueueMappingInfo:
    """Inverse of ``mapping_fields``.

    Raises:
        EventDecodeError: A field is missing or of the wrong type; the text names it.
    """
    if not isinstance(fields, dict):
        raise EventDecodeError("topic_mappings: expected objects")
    try:
        curr_id_map = {int(k): v for k, v in require(fields, "curr_id_map", dict).items()}
    except ValueError as error:
        raise EventDecodeError("curr_id_map: expected queue ids") from error
    if not all(_is_int32(k) and _is_int32(v) for k, v in curr_id_map.items()):
        raise EventDecodeError("curr_id_map: expected queue ids")
    return TopicQueueMappingInfo(
        topic=require(fields, "topic", str),
        bname=require(fields, "bname", str),
        total_queues=require(fields, "total_queues", int),
        epoch=require(fields, "epoch", int),
        scope=require(fields, "scope", str),
        dirty=require(fields, "dirty", bool),
        curr_id_map=curr_id_map,
    )


def decode_mapping(text: str) -> TopicQueueMappingInfo:
    return mapping_from(orjson.loads(text))


def require(fields: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return the field ``name``. It must be of exactly ``kind`` (a bool is not an int); an int must fit 64 bits.

    Raises:
        EventDecodeError: The field is missing, of another type or too large.
    """
    value = fields.get(name)
    if type(value) is not kind:
        raise EventDecodeError(f"{name}: expected {kind.__name__}, got {type(value).__name__}")
    if isinstance(value, int) and value > _INT64_MAX:
        raise EventDecodeError(f"{name}: {value} does not fit 64 bits")
    return value


def _is_int32(value: Any) -> bool:
    return type(value) is int and value in _INT32


def _optional(fields: Mapping[str, Any], name: str, kind: type) -> Any:
    return None if fields.get(name) is None else require(fields, name, kind)


def _texts(values: list[Any], name: str) -> list[str]:
    if any(type(v) is not str for v in values):
        raise EventDecodeError(f"{name}: expected text")
    return values


def _data_version(fields: Mapping[str, Any]) -> DataVersion:
    numbers = require(fields, "data_version", list)
    if len(numbers) not in (2, 3) or not all(type(n) is int and n <= _INT64_MAX for n in numbers):
        raise EventDecodeError("data_version: expected [counter, timestamp, stateVersion]")
    return DataVersion(*numbers)


class RetainedRegistration:
    """A broker's last accepted registration, stored as JSON until its content is needed.

    The content is rarely needed, for example if the broker returns with the hash of an unchanged registration. The text
    takes a third of the memory of a ``Registration``, and decoding takes about a microsecond per topic.

    Attributes:
        registration_hash: Hash of the registration.
        broker_id: The broker's brokerId.

    Args:
        broker_id: The broker's brokerId.
        content: The registration, or its text (``encode_registration``).
    """

    __slots__ = ("_content", "broker_id", "registration_hash")

    def __init__(self, registration_hash: str, broker_id: int, content: Registration | str) -> None:
        self.registration_hash = registration_hash
        self.broker_id = broker_id
        self._content = content

    @property
    def text(self) -> str:
        """The JSON text. From the first use on, only the text is stored."""
        if not isinstance(self._content, str):
            self._content = encode_registration(self._content)
        return self._content

    def has_content_of(self, registration: Registration) -> bool:
        """Return whether the hashes show that this is the same registration."""
        return self.registration_hash == registration.registration_hash != ""

    @property
    def data_version(self) -> DataVersion:
        if not isinstance(self._content, str):
            return self._content.data_version
        return DataVersion(*orjson.loads(_in_head(self._content)[1]))

    @property
    def timeout_ms(self) -> int | None:
        """The broker's own timeout; None for the default."""
        if not isinstance(self._content, str):
            return self._content.timeout_ms
        timeout_ms: int | None = orjson.loads(_in_head(self._content)[2])
        return timeout_ms

    def topics(self) -> Iterator[str]:
        """Yield the names of the topics, each on demand."""
        if not isinstance(self._content, str):
            yield from self._content.topics
            return
        at = _bounds_of_topics(self._content)[0] + 1
        while found := _TOPIC.match(self._content, at):
            yield orjson.loads(f'"{found[1]}"') if "\\" in found[1] else found[1]
            at = found.end()

    def queues_of(self, topics: Collection[str]) -> Mapping[str, QueueData]:
        """Return the queues of those of these topics that the registration has, and perhaps of others."""
        if not isinstance(self._content, str) or len(topics) > _MOST_SEARCHES:
            return self.read().topics
        text, found = self._content, {}
        begin, end = _bounds_of_topics(text)
        for topic in topics:
            key = orjson.dumps(topic).decode() + ":"
            at = begin if text.startswith(key, begin + 1) else text.find(f",{key}", begin, end)
            if at >= 0:
                value = text[at + 1 + len(key) : text.index("]", at + 1 + len(key)) + 1]
                found[topic] = queue_data_from(orjson.loads(value), f"topics.{topic}")
        return found

    def topic_mappings(self) -> Mapping[str, TopicQueueMappingInfo]:
        """Return the static mappings; the topics are not decoded."""
        if not isinstance(self._content, str):
            return self._content.topic_mappings or {}
        at = self._content.find(_MAPPINGS, _bounds_of_topics(self._content)[1])
        fields = orjson.loads(self._content[at + len(_MAPPINGS) - 1 : -1]) if at >= 0 else {}
        return {topic: mapping_from(mapping) for topic, mapping in fields.items()}

    def read(self) -> Registration:
        """Return the registration.

        Raises:
            EventDecodeError: The text is not the JSON of a registration.
        """
        return decode_registration(self._content) if isinstance(self._content, str) else self._content

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RetainedRegistration):
            return NotImplemented
        if self is other:
            return True
        if (self.registration_hash, self.broker_id) != (other.registration_hash, other.broker_id):
            return False
        if self._content == other._content:
            return True  # in the same form; to convert one of them takes long
        return self.text == other.text or self.read() == other.read()  # texts may differ in the order of topics

    __hash__ = None  # type: ignore[assignment] # equality depends on content that may be decoded later

    def __repr__(self) -> str:
        return f"RetainedRegistration({self.read()!r})"


def _in_head(text: str) -> re.Match[str]:
    """Find DataVersion and timeout, as JSON, before the topics, so that these are not decoded."""
    found = _HEAD.search(text)
    assert found is not None
    return found


def _bounds_of_topics(text: str) -> tuple[int, int]:
    """Return where the object of topics begins and ends."""
    begin = text.index(_TOPICS) + len(_TOPICS) - 1
    return begin, text.index(_TOPICS_END, begin)


def retained(registration: Registration) -> RetainedRegistration:
    """Return a registration in the form in which it is retained."""
    return RetainedRegistration(registration.registration_hash, registration.broker_id, registration)
