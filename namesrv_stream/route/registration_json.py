"""Registrations and static mappings as JSON: the same form in the event log, in the tables and in the fold's state."""

from collections.abc import Mapping
from sys import intern
from typing import Any

import orjson

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.model import DataVersion, QueueData, Registration, TopicQueueMappingInfo, shared_queue_data

# JSON integers above 64 bits decode as floats and those below as ints, so only these two bounds are left to check.
_INT64_MAX = 2**63 - 1
_INT32 = range(-(2**31), 2**31)


def registration_fields(registration: Registration) -> dict[str, Any]:
    """The registration as JSON values; a topic is [readQueueNums, writeQueueNums, perm, topicSysFlag]."""
    return _fields(registration, {t: list(q) for t, q in registration.topics.items()})


def _fields(registration: Registration, topics: Mapping[str, Any]) -> dict[str, Any]:
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
        "topics": topics,
        "filter_servers": None if registration.filter_servers is None else list(registration.filter_servers),
    }
    if registration.topic_mappings is not None:
        fields["topic_mappings"] = {t: mapping_fields(m) for t, m in registration.topic_mappings.items()}
    return fields


def encode_registration(registration: Registration) -> str:
    """JSON text of ``registration_fields``."""
    # Many topics have few shapes: each of these is written once.
    shapes = {q: orjson.Fragment(orjson.dumps(list(q))) for q in set(registration.topics.values())}
    return orjson.dumps(_fields(registration, {t: shapes[q] for t, q in registration.topics.items()})).decode()


def registration_from(fields: Mapping[str, Any]) -> Registration:
    """Inverse of ``registration_fields``; unknown fields are ignored.

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
        EventDecodeError: As ``registration_from``.
    """
    return registration_from(orjson.loads(text))


def queue_data_from(value: Any, where: str) -> QueueData:
    """A topic of an event.

    Raises:
        EventDecodeError: It is not a list of 3 or 4 integers.
    """
    if not isinstance(value, list) or len(value) not in (3, 4) or not all(_is_int32(n) for n in value):
        raise EventDecodeError(f"{where}: expected [readQueueNums, writeQueueNums, perm, topicSysFlag]")
    return shared_queue_data(value[0], value[1], value[2], value[3] if len(value) == 4 else 0)


def _topics(values: Mapping[str, Any]) -> Mapping[str, QueueData]:
    """All topics; of the few shapes that they have each is judged once."""
    shapes: dict[tuple[int, int, int, int], QueueData] = {}
    topics: dict[str, QueueData] = {}
    for topic, value in values.items():
        shape = None
        if type(value) is list and len(value) == 4:
            read, write, perm, flag = value
            # True and 1.0 are equal to 1, and are none of ours.
            if type(read) is int and type(write) is int and type(perm) is int and type(flag) is int:
                shape = shapes.get((read, write, perm, flag))
                if shape is None:
                    shape = shapes[read, write, perm, flag] = queue_data_from(value, f"topics.{topic}")
        topics[intern(topic)] = queue_data_from(value, f"topics.{topic}") if shape is None else shape
    return topics


def mapping_fields(info: TopicQueueMappingInfo) -> dict[str, Any]:
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
    """The field ``name``, which must be of exactly ``kind`` (a bool is no int); an int must fit the tables' 64 bits.

    Raises:
        EventDecodeError: It is missing, of another type or too large.
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
