"""Requests of brokers: registrations in all forms, unregistrations, heartbeats, queries."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.differential.request import CRC, Request
from tests.differential.wire import V5_3_3

#: Topics by name, with the properties that differ from ``topic()``.
Topics = Mapping[str, Mapping[str, Any]]

#: A heartbeat timeout longer than any test, so that no broker expires unless a scenario says so.
PATIENT_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker process.

    Attributes:
        acting: Its ``enableActingMaster``; None for a broker older than 5.0, which does not send it.
        timeout_ms: Its ``heartbeatTimeoutMillis``; None if it sends none.
    """

    name: str = "~a"
    addr: str = "10.0.0.1:10911"
    broker_id: int = 0
    cluster: str = "~c"
    acting: bool | None = False
    zone: str | None = None
    timeout_ms: int | None = PATIENT_MS

    @property
    def ha_addr(self) -> str:
        return self.addr.replace(":10911", ":10912")

    @property
    def fields(self) -> dict[str, str]:
        """The ext fields that all its requests have."""
        return {
            "brokerName": self.name,
            "brokerAddr": self.addr,
            "clusterName": self.cluster,
            "brokerId": str(self.broker_id),
        }

    def slave(self, broker_id: int = 1, addr: str = "10.0.0.2:10911") -> "Broker":
        return replace(self, broker_id=broker_id, addr=addr)

    def but(self, **changes: Any) -> "Broker":
        return replace(self, **changes)


def topic(queues: int = 8, *, write: int | None = None, perm: int = 6, flag: int = 0) -> dict[str, Any]:
    """A topic's configuration."""
    return {
        "attributes": {},
        "order": False,
        "perm": perm,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": flag,
        "writeQueueNums": queues if write is None else write,
    }


#: Two topics, because RocketMQ treats a single topic as a part of the table, and refuses it before a full registration.
TOPICS: Final[Topics] = {"~T": topic(), "~U": topic(4)}


def data_version(counter: int = 1, state: int = 0, timestamp: int = 1_000) -> dict[str, int]:
    return {"counter": counter, "stateVersion": state, "timestamp": timestamp}


def mapping_info(topic_name: str, broker_name: str, **changes: Any) -> dict[str, Any]:
    """A broker's share of a static topic."""
    return {
        "bname": broker_name,
        "currIdMap": {0: 0, 1: 1},
        "dirty": False,
        "epoch": 1_700_000_000_000,
        "scope": "__global__",
        "topic": topic_name,
        "totalQueues": 2,
        **changes,
    }


def wrapper(
    topics: Topics, version: Mapping[str, int], mappings: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """TopicConfigAndMappingSerializeWrapper of a 5.x broker."""
    return {
        "dataVersion": dict(version),
        "mappingDataVersion": data_version(0, timestamp=1),
        "topicConfigTable": {name: {**config, "topicName": name} for name, config in topics.items()},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": dict(mappings or {}),
    }


def wrapper_4x(topics: Topics, version: Mapping[str, int]) -> dict[str, Any]:
    """TopicConfigSerializeWrapper of a 4.x broker: no mappings, no attributes, no stateVersion."""
    table = {
        name: {k: v for k, v in {**config, "topicName": name}.items() if k != "attributes"}
        for name, config in topics.items()
    }
    return {"dataVersion": {k: version[k] for k in ("counter", "timestamp")}, "topicConfigTable": table}


def as_json(value: object) -> bytes:
    """Return JSON as peers write it: compact, with integer keys without quotes, like fastjson."""
    return _dump(value).encode()


def _dump(value: object) -> str:
    if isinstance(value, dict):
        members = (f"{k if isinstance(k, int) else json.dumps(k)}:{_dump(v)}" for k, v in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def register(
    broker: Broker,
    topics: Topics = TOPICS,
    version: Mapping[str, int] | None = None,
    *,
    mappings: Mapping[str, Mapping[str, Any]] | None = None,
    filter_servers: list[str] | None = (),  # type: ignore[assignment]
    body: bytes | None = None,
) -> Request:
    """Return a registration (103) as the broker's release sends it: 5.x, or 4.x if ``broker.acting`` is None.

    Args:
        broker: The broker that registers.
        topics: Its topic table, at least two; or one topic, which both servers refuse before a full registration.
        version: Its DataVersion.
        mappings: Static topics.
        filter_servers: None leaves the list out.
        body: Another body instead.
    """
    version = version or data_version()
    is_old = broker.acting is None
    if body is None:
        fields: dict[str, Any] = {} if filter_servers is None else {"filterServerList": list(filter_servers)}
        inner = wrapper_4x(topics, version) if is_old else wrapper(topics, version, mappings)
        body = as_json({**fields, "topicConfigSerializeWrapper": inner})
    ext_fields = {**broker.fields, "haServerAddr": broker.ha_addr, "compressed": "false", "bodyCrc32": CRC}
    if broker.acting is not None:
        ext_fields["enableActingMaster"] = str(broker.acting).lower()
    if broker.zone is not None:
        ext_fields["__ZONE_NAME"] = broker.zone
    if broker.timeout_ms is not None:
        ext_fields["heartbeatTimeoutMillis"] = str(broker.timeout_ms)
    return Request(103, ext_fields, body, version=399 if is_old else V5_3_3, topics=tuple(topics))


def compressed(
    broker: Broker,
    topics: Topics = TOPICS,
    version: Mapping[str, int] | None = None,
    *,
    mappings: Mapping[str, Mapping[str, Any]] | None = None,
    filter_servers: list[str] | None = (),  # type: ignore[assignment]
    header: str = "true",
) -> Request:
    """Return a registration (103) with a deflated body. Source: rocketmq 5.3.3, RegisterBrokerBody.encode."""
    plain = register(broker, topics, version)
    texts = [
        f"{name} {t['readQueueNums']} {t['writeQueueNums']} {t['perm']} {t['topicFilterType']}"
        + ("" if broker.acting is None else " {}")
        for name, t in topics.items()
    ]
    infos = list((mappings or {}).values())

    def pack(body: bytes) -> bytes:
        version_text, *rest = body.split(b"\x00")
        names, rest = rest[: len(texts)], rest[len(texts) :]
        parts = [_sized(version_text), _count(len(names)), *map(_sized, names), _sized(rest[0])]
        if plain.version >= 413:
            parts += [_count(len(infos)), *map(_sized, rest[1:])]
        return zlib.compress(b"".join(parts), 9)

    pieces = [as_json(version or data_version()), *(t.encode() for t in texts)]
    pieces += [as_json(list(filter_servers or ())), *map(as_json, infos)]
    return replace(plain.with_fields(compressed=header), body=b"\x00".join(pieces), pack=pack)


def _count(number: int) -> bytes:
    return number.to_bytes(4, "big")


def _sized(text: bytes) -> bytes:
    return _count(len(text)) + text


def unregister(broker: Broker) -> Request:
    return Request(104, broker.fields)


def query_data_version(broker: Broker, version: Mapping[str, int] | None = None) -> Request:
    return Request(322, broker.fields, as_json(dict(version or data_version())))


def heartbeat(broker: Broker) -> Request:
    return Request(904, {k: v for k, v in broker.fields.items() if k != "brokerId"})


def member_group(name: str, cluster: str = "~c") -> Request:
    return Request(901, {"clusterName": cluster, "brokerName": name})


def register_topic(topic_name: str, queue_datas: Mapping[str, Mapping[str, Any]]) -> Request:
    """Return a request 217: the queues of a topic by broker name."""
    datas = [
        {
            "brokerName": name,
            "perm": q["perm"],
            "readQueueNums": q["readQueueNums"],
            "topicSysFlag": q["topicSysFlag"],
            "writeQueueNums": q["writeQueueNums"],
        }
        for name, q in queue_datas.items()
    ]
    return Request(217, {"topic": topic_name}, as_json({"brokerDatas": [], "queueDatas": datas}))
