"""Events as the values of Kafka records, by ``schemas/broker_event.v1.json``.

One record holds one event, or the heartbeats of many brokers of one partition. Decoding is typed code: a wrong field
is named; unknown fields are ignored, so that a producer may be newer than the fold.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.events import (
    DIRECT,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    GuardReleased,
    KvDeleted,
    KvPut,
    Origin,
    Proof,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    SettingsChanged,
    Tick,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.model import LiveKey
from namesrv_stream.route.registration_json import encode_registration, queue_data_from, registration_from, require
from namesrv_stream.route.settings import SettingValue

SCHEMA_VERSION = 1

#: kind of each event that is a record of its own.
KIND_OF: Mapping[type[Event], str] = {
    BrokerRegistered: "broker_registered",
    BrokerUnregistered: "broker_unregistered",
    BrokerDisconnected: "broker_disconnected",
    TopicRegistered: "topic_registered",
    TopicDeleted: "topic_deleted",
    WritePermChanged: "write_perm_changed",
    KvPut: "kv_put",
    KvDeleted: "kv_deleted",
    SettingsChanged: "settings_changed",
    GuardReleased: "guard_released",
    ServerStarted: "server_started",
    ServerResumed: "server_resumed",
    ServerStopped: "server_stopped",
    Tick: "tick",
}
HEARTBEATS_KIND = "broker_heartbeats"
#: As large as any number of an event.
_MAX_CONNECTION_ID = 2**63 - 1


def routing_key(event: Event) -> str | None:
    """What chooses an event's partition: the broker name or KV namespace; None for what goes to every partition."""
    match event:
        case BrokerRegistered():
            return event.registration.broker_name
        case BrokerHeartbeat() | BrokerUnregistered() | BrokerDisconnected() | TopicRegistered() | WritePermChanged():
            return event.broker_name
        case KvPut() | KvDeleted():
            return event.namespace
        case _:
            return None


def encode_event(event: Event) -> bytes:
    """The record value of one event; a lone heartbeat is a record of one item."""
    if isinstance(event, BrokerHeartbeat):
        return encode_heartbeats([event])
    head = _head(KIND_OF[type(event)], event.origin)
    if isinstance(event, BrokerRegistered):
        # The text that the tables have too, behind the head: both have all their fields at this level.
        return orjson.dumps(head)[:-1] + b"," + encode_registration(event.registration)[1:].encode()
    return orjson.dumps(head | _payload(event))


def encode_heartbeats(events: Iterable[BrokerHeartbeat]) -> bytes:
    """One record of many heartbeats, all of one server and one partition."""
    items = list(events)
    head = _head(HEARTBEATS_KIND, items[0].origin._replace(connection_id=0))
    return orjson.dumps(head | {"items": [_heartbeat_item(e) for e in items]})


def decode_record(value: bytes) -> list[Event | EventDecodeError]:
    """The events of one record, in order; an item that cannot be read is its error.

    Raises:
        EventDecodeError: The record as a whole is not one of ours.
    """
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise EventDecodeError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise EventDecodeError("expected a JSON object")
    version = require(fields, "schema_version", int)
    if version != SCHEMA_VERSION:
        raise EventDecodeError(f"schema_version: {version} is not {SCHEMA_VERSION}")
    kind = require(fields, "kind", str)
    origin = _origin(fields)
    if kind == HEARTBEATS_KIND:
        return [_mere_heartbeat(item, origin) or _decode_item(item, origin) for item in require(fields, "items", list)]
    decode = _DECODERS.get(kind)
    if decode is None:
        raise EventDecodeError(f"kind: {kind} is unknown")
    return [decode(fields, origin)]


def _head(kind: str, origin: Origin) -> dict[str, Any]:
    head: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "kind": kind}
    if origin.server_id != DIRECT:
        head |= {"server_id": origin.server_id, "server_epoch": origin.server_epoch}
    if origin.connection_id:
        head["connection_id"] = origin.connection_id
    return head


def _origin(fields: Mapping[str, Any]) -> Origin:
    if "server_id" not in fields:
        return Origin(DIRECT, 0, 0)
    return Origin(require(fields, "server_id", str), require(fields, "server_epoch", int), _connection_id(fields))


def _connection_id(fields: Mapping[str, Any]) -> int:
    connection_id: int = require(fields, "connection_id", int) if "connection_id" in fields else 0
    return connection_id


def _broker(broker_name: str, key: LiveKey) -> dict[str, Any]:
    return {"cluster": key.cluster, "broker_name": broker_name, "broker_addr": key.broker_addr}


def _payload(event: Event) -> dict[str, Any]:
    match event:
        case BrokerUnregistered():
            return _broker(event.broker_name, event.live_key) | {"broker_id": event.broker_id}
        case BrokerDisconnected():
            return _broker(event.broker_name, event.live_key) | {"reason": event.reason}
        case TopicRegistered():
            return {"broker_name": event.broker_name, "topic": event.topic, "queue_data": list(event.queue_data)}
        case TopicDeleted():
            return {"topic": event.topic} | ({"cluster": event.cluster} if event.cluster else {})
        case WritePermChanged():
            return {"broker_name": event.broker_name, "writable": event.writable}
        case KvPut():
            return {"namespace": event.namespace, "key": event.key, "value": event.value}
        case KvDeleted():
            return {"namespace": event.namespace, "key": event.key}
        case SettingsChanged():
            return {"source": event.source, "values": dict(event.values)}
        case GuardReleased():
            return {"cluster": event.cluster, "source": event.source}
        case _:
            return {}


def _heartbeat_item(event: BrokerHeartbeat) -> dict[str, Any]:
    item = _broker(event.broker_name, event.live_key) | {"proof": event.proof}
    if event.registration_hash:
        item["registration_hash"] = event.registration_hash
    if event.origin.connection_id:
        item["connection_id"] = event.origin.connection_id
    return item


def _mere_heartbeat(item: Any, origin: Origin) -> BrokerHeartbeat | None:
    """An item as nearly all are, at half the price; None for ``_decode_item`` to judge."""
    if type(item) is not dict or item.get("proof") != "heartbeat" or "registration_hash" in item:
        return None
    get = item.get
    name, cluster, addr, connection = get("broker_name"), get("cluster"), get("broker_addr"), get("connection_id", 0)
    if type(name) is not str or type(cluster) is not str or type(addr) is not str:
        return None
    if type(connection) is not int or connection > _MAX_CONNECTION_ID:
        return None
    return BrokerHeartbeat(Origin(origin[0], origin[1], connection), name, LiveKey(cluster, addr), Proof.HEARTBEAT)


def _decode_item(item: Any, origin: Origin) -> Event | EventDecodeError:
    if not isinstance(item, dict):
        return EventDecodeError("items: expected objects")
    try:
        proof = require(item, "proof", str)
        if proof not in _PROOFS:
            raise EventDecodeError(f"proof: {proof} is unknown")
        registration_hash = require(item, "registration_hash", str) if "registration_hash" in item else ""
        if not registration_hash and proof == Proof.REGISTRATION:
            raise EventDecodeError("registration_hash: expected with this proof")
        return BrokerHeartbeat(
            origin=Origin(origin.server_id, origin.server_epoch, _connection_id(item)),
            broker_name=require(item, "broker_name", str),
            live_key=_live_key(item),
            proof=_PROOFS[proof],
            registration_hash=registration_hash,
        )
    except EventDecodeError as error:
        return error


_PROOFS = {str(p): p for p in Proof}


def _live_key(fields: Mapping[str, Any]) -> LiveKey:
    return LiveKey(require(fields, "cluster", str), require(fields, "broker_addr", str))


def _settings_changed(fields: Mapping[str, Any], origin: Origin) -> SettingsChanged:
    values = require(fields, "values", dict)
    read = tuple(sorted((name, _setting_value(name, value)) for name, value in values.items()))
    return SettingsChanged(origin, require(fields, "source", str), read)


def _setting_value(name: str, value: Any) -> SettingValue:
    if isinstance(value, int | bool):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise EventDecodeError(f"values.{name}: expected a number, a truth value or a list of texts")


_DECODERS: Mapping[str, Callable[[Mapping[str, Any], Origin], Event]] = {
    "broker_registered": lambda f, o: BrokerRegistered(o, registration_from(f)),
    "broker_unregistered": lambda f, o: BrokerUnregistered(
        o, require(f, "broker_name", str), _live_key(f), require(f, "broker_id", int)
    ),
    "broker_disconnected": lambda f, o: BrokerDisconnected(
        o, require(f, "broker_name", str), _live_key(f), str(f.get("reason", ""))
    ),
    "topic_registered": lambda f, o: TopicRegistered(
        o, require(f, "broker_name", str), require(f, "topic", str), queue_data_from(f.get("queue_data"), "queue_data")
    ),
    "topic_deleted": lambda f, o: TopicDeleted(
        o, require(f, "topic", str), (require(f, "cluster", str) if "cluster" in f else "") or None
    ),
    "write_perm_changed": lambda f, o: WritePermChanged(
        o, require(f, "broker_name", str), require(f, "writable", bool)
    ),
    "kv_put": lambda f, o: KvPut(o, require(f, "namespace", str), require(f, "key", str), require(f, "value", str)),
    "kv_deleted": lambda f, o: KvDeleted(o, require(f, "namespace", str), require(f, "key", str)),
    "settings_changed": _settings_changed,
    "guard_released": lambda f, o: GuardReleased(o, require(f, "cluster", str), require(f, "source", str)),
    "server_started": lambda _, o: ServerStarted(o),
    "server_resumed": lambda _, o: ServerResumed(o),
    "server_stopped": lambda _, o: ServerStopped(o),
    "tick": lambda _, o: Tick(o),
}
