"""Events as values of Kafka records, as ``schemas/broker_event.v1.json`` describes them.

One record contains one event, or heartbeats of many brokers of one partition. Nearly all events are heartbeats.
Errors name the invalid field. The decoder ignores unknown fields, so that a producer may be newer than the fold.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

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
from namesrv_stream.route.liveness_settings import SettingValue
from namesrv_stream.route.model import LiveKey
from namesrv_stream.route.registration_json import encode_registration, queue_data_from, registration_from, require

#: An address must not contain the separators of the list of name servers, which are ``;`` and line breaks.
_ADDRESS: Final = re.compile(r"[^\s;]+:[0-9]{1,5}")
#: Event class → kind, for the events that have records of their own.
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


def encode_event(event: Event) -> bytes:
    """Return the record value of one event. A single heartbeat becomes a record of one item."""
    if isinstance(event, BrokerHeartbeat):
        return encode_heartbeats([event])
    head = head_fields(KIND_OF[type(event)], event.origin)
    if isinstance(event, BrokerRegistered):
        # Head and registration have their fields at the same level, so the text that the tables contain is appended.
        return orjson.dumps(head)[:-1] + b"," + encode_registration(event.registration)[1:].encode()
    return orjson.dumps(head | _payload(event))


def decode_record(value: bytes) -> list[Event | EventDecodeError]:
    """Return the events of one record, in order. For an item that cannot be read, the list contains its error.

    Raises:
        EventDecodeError: The record as a whole is not a valid event, or it has more than ``MAX_ITEMS_READ`` items.
    """
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise EventDecodeError(f"not JSON: {error}") from error
    kind, origin = read_head(fields)
    if kind == HEARTBEATS_KIND:
        items = require(fields, "items", list)
        if len(items) > MAX_ITEMS_READ:
            raise EventDecodeError(f"items: {len(items):,}, expected at most {MAX_ITEMS_READ:,}")
        return [heartbeat_from(item, origin) for item in items]
    decode = _DECODERS.get(kind)
    if decode is None:
        raise EventDecodeError(f"kind: {kind} is unknown")
    return [decode(fields, origin)]


def _payload(event: Event) -> dict[str, Any]:
    match event:
        case BrokerUnregistered():
            return broker_fields(event.broker_name, event.live_key) | {"broker_id": event.broker_id}
        case BrokerDisconnected():
            return broker_fields(event.broker_name, event.live_key) | {"reason": event.reason}
        case TopicRegistered():
            queues = list(event.queue_data)
            return {"broker_name": event.broker_name, "topic": event.topic, "queue_data": queues} | _source(event)
        case TopicDeleted():
            return {"topic": event.topic} | ({"cluster": event.cluster} if event.cluster else {}) | _source(event)
        case WritePermChanged():
            return {"broker_name": event.broker_name, "writable": event.writable} | _source(event)
        case KvPut():
            return {"namespace": event.namespace, "key": event.key, "value": event.value}
        case KvDeleted():
            return {"namespace": event.namespace, "key": event.key}
        case SettingsChanged():
            return {"source": event.source, "values": dict(event.values)}
        case GuardReleased():
            return {"cluster": event.cluster, "source": event.source}
        case Tick():
            return {"address": event.address} if event.address else {}
        case _:
            return {}


def _source(event: TopicRegistered | TopicDeleted | WritePermChanged) -> dict[str, str]:
    return {"source": event.source} if event.source else {}


def _source_from(fields: Mapping[str, Any]) -> str:
    given: str = require(fields, "source", str) if "source" in fields else ""
    return given


def _address_from(fields: Mapping[str, Any]) -> str:
    given: str = require(fields, "address", str) if "address" in fields else ""
    if given and not _ADDRESS.fullmatch(given):
        raise EventDecodeError("address: expected host:port")
    return given


def _settings_changed(fields: Mapping[str, Any], origin: Origin) -> SettingsChanged:
    values = require(fields, "values", dict)
    read = tuple(sorted((name, _setting_value(name, value)) for name, value in values.items()))
    return SettingsChanged(origin, require(fields, "source", str), read)


def _setting_value(name: str, value: Any) -> SettingValue:
    if isinstance(value, int | bool):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise EventDecodeError(f"values.{name}: expected a number, a boolean or a list of strings")


_DECODERS: Mapping[str, Callable[[Mapping[str, Any], Origin], Event]] = {
    "broker_registered": lambda f, o: BrokerRegistered(o, registration_from(f)),
    "broker_unregistered": lambda f, o: BrokerUnregistered(
        o, require(f, "broker_name", str), live_key_from(f), require(f, "broker_id", int)
    ),
    "broker_disconnected": lambda f, o: BrokerDisconnected(
        o, require(f, "broker_name", str), live_key_from(f), str(f.get("reason", ""))
    ),
    "topic_registered": lambda f, o: TopicRegistered(
        o,
        require(f, "broker_name", str),
        require(f, "topic", str),
        queue_data_from(f.get("queue_data"), "queue_data"),
        _source_from(f),
    ),
    "topic_deleted": lambda f, o: TopicDeleted(
        o, require(f, "topic", str), (require(f, "cluster", str) if "cluster" in f else "") or None, _source_from(f)
    ),
    "write_perm_changed": lambda f, o: WritePermChanged(
        o, require(f, "broker_name", str), require(f, "writable", bool), _source_from(f)
    ),
    "kv_put": lambda f, o: KvPut(o, require(f, "namespace", str), require(f, "key", str), require(f, "value", str)),
    "kv_deleted": lambda f, o: KvDeleted(o, require(f, "namespace", str), require(f, "key", str)),
    "settings_changed": _settings_changed,
    "guard_released": lambda f, o: GuardReleased(o, require(f, "cluster", str), require(f, "source", str)),
    "server_started": lambda _, o: ServerStarted(o),
    "server_resumed": lambda _, o: ServerResumed(o),
    "server_stopped": lambda _, o: ServerStopped(o),
    "tick": lambda f, o: Tick(o, _address_from(f)),
}


SCHEMA_VERSION = 1


def head_fields(kind: str, origin: Origin) -> dict[str, Any]:
    """Return the common fields of an event: no server if a direct publisher wrote it, no connection id if it is 0."""
    head: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "kind": kind}
    if origin.server_id != DIRECT:
        head |= {"server_id": origin.server_id, "server_epoch": origin.server_epoch}
    if origin.connection_id:
        head["connection_id"] = origin.connection_id
    return head


def read_head(fields: Any) -> tuple[str, Origin]:
    """Return kind and origin of a record, given its parsed JSON.

    Raises:
        EventDecodeError: The record is not a valid event of this schema version.
    """
    if not isinstance(fields, dict):
        raise EventDecodeError("expected a JSON object")
    version = require(fields, "schema_version", int)
    if version != SCHEMA_VERSION:
        raise EventDecodeError(f"schema_version: {version} is not {SCHEMA_VERSION}")
    kind = require(fields, "kind", str)
    if "server_id" not in fields:
        return kind, Origin(DIRECT, 0, 0)
    return kind, Origin(require(fields, "server_id", str), require(fields, "server_epoch", int), connection_id(fields))


def connection_id(fields: Mapping[str, Any]) -> int:
    """Return the connection id of a record or item; 0 if it has none.

    Raises:
        EventDecodeError: The id is not an integer.
    """
    given: int = require(fields, "connection_id", int) if "connection_id" in fields else 0
    return given


def broker_fields(broker_name: str, key: LiveKey) -> dict[str, Any]:
    """Return the JSON fields that identify a broker process."""
    return {"cluster": key.cluster, "broker_name": broker_name, "broker_addr": key.broker_addr}


def live_key_from(fields: Mapping[str, Any]) -> LiveKey:
    """Return the key of a broker process within its broker name.

    Raises:
        EventDecodeError: A field is missing or of the wrong type.
    """
    return LiveKey(require(fields, "cluster", str), require(fields, "broker_addr", str))


HEARTBEATS_KIND = "broker_heartbeats"
#: The maximum number of heartbeats that a server puts into one record.
MAX_ITEMS: Final = 2_000
#: The most items of a record that the fold accepts, from any producer.
MAX_ITEMS_READ: Final = 10_000

_PROOFS: Final[Mapping[str, Proof]] = {str(p): p for p in Proof}


def encode_heartbeats(events: Iterable[BrokerHeartbeat]) -> bytes:
    """Return the record value of one or more heartbeats. All must be of one start of a server, and of one partition."""
    items = list(events)
    head = head_fields(HEARTBEATS_KIND, items[0].origin._replace(connection_id=0))
    return orjson.dumps(head | {"items": [_fields(e) for e in items]})


def _fields(event: BrokerHeartbeat) -> dict[str, Any]:
    item = broker_fields(event.broker_name, event.live_key) | {"proof": event.proof}
    if event.registration_hash:
        item["registration_hash"] = event.registration_hash
    if event.origin.connection_id:
        item["connection_id"] = event.origin.connection_id
    return item


def heartbeat_from(item: Any, origin: Origin) -> BrokerHeartbeat | EventDecodeError:
    """Return the heartbeat of one item of a record, or the error if the item is invalid.

    Args:
        item: The item's parsed JSON.
        origin: The record's origin.
    """
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
            origin=Origin(origin.server_id, origin.server_epoch, connection_id(item)),
            broker_name=require(item, "broker_name", str),
            live_key=live_key_from(item),
            proof=_PROOFS[proof],
            registration_hash=registration_hash,
        )
    except EventDecodeError as error:
        return error.with_traceback(None)  # a traceback takes kilobytes
