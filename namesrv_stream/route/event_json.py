"""Events as the values of Kafka records, by ``schemas/broker_event.v1.json``.

One record holds one event, or the heartbeats of many brokers of one partition. Decoding is typed code: a wrong field
is named; unknown fields are ignored, so that a producer may be newer than the fold.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.event_fields import broker_fields, head_fields, live_key_from, read_head
from namesrv_stream.route.events import (
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    GuardReleased,
    KvDeleted,
    KvPut,
    Origin,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    SettingsChanged,
    Tick,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.heartbeat_json import HEARTBEATS_KIND, encode_heartbeats, heartbeat_from
from namesrv_stream.route.registration_json import encode_registration, queue_data_from, registration_from, require
from namesrv_stream.route.settings import SettingValue

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
    head = head_fields(KIND_OF[type(event)], event.origin)
    if isinstance(event, BrokerRegistered):
        # The text that the tables have too, behind the head: both have all their fields at this level.
        return orjson.dumps(head)[:-1] + b"," + encode_registration(event.registration)[1:].encode()
    return orjson.dumps(head | _payload(event))


def decode_record(value: bytes) -> list[Event | EventDecodeError]:
    """The events of one record, in order; an item that cannot be read is its error.

    Raises:
        EventDecodeError: The record as a whole is not one of ours.
    """
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise EventDecodeError(f"not JSON: {error}") from error
    kind, origin = read_head(fields)
    if kind == HEARTBEATS_KIND:
        return [heartbeat_from(item, origin) for item in require(fields, "items", list)]
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
        o, require(f, "broker_name", str), live_key_from(f), require(f, "broker_id", int)
    ),
    "broker_disconnected": lambda f, o: BrokerDisconnected(
        o, require(f, "broker_name", str), live_key_from(f), str(f.get("reason", ""))
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
