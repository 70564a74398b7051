"""The shapes of the HTTP port's answers, as JSON Schema in OpenAPI 3.1."""

from typing import Any, Final

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange

Schema = dict[str, Any]


def _object(required: Schema, optional: Schema | None = None, *, more: bool = False) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": more,
    }


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    """To one of ``SCHEMAS``."""
    return {"$ref": f"#/components/schemas/{name}"}


TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
BOOLEAN: Final[Schema] = {"type": "boolean"}
_NUMBER: Final[Schema] = {"type": "integer"}
_MS: Final[Schema] = {"type": "integer", "description": "epoch milliseconds"}
_TEXTS: Final = _list(TEXT)
_OFFSETS: Final = _map(COUNT)
_ADDRS: Final = {"type": "object", "additionalProperties": TEXT, "description": "brokerId → host:port; 0 is the master"}
_POSITION: Final[Schema] = {"type": "string", "description": "opaque; for `since`, at this server or another"}

_COLUMN_TYPES: Final[dict[str, Schema]] = {
    **dict.fromkeys(("offset", "seq", "partition"), COUNT),
    "at_ms": _MS,
    "kind": {"enum": list(ChangeKind)},
    "cause": {"enum": list(Cause)},
    **dict.fromkeys(("gone", "enable_acting_master"), BOOLEAN),
    "broker_addrs": _list({"type": "array", "prefixItems": [COUNT, TEXT], "minItems": 2, "maxItems": 2}),
    **dict.fromkeys(("clusters", "filter_servers"), _TEXTS),
    **dict.fromkeys(
        (
            *("broker_id", "read_queue_nums", "write_queue_nums", "perm", "topic_sys_flag", "timeout_ms"),
            *("data_version_counter", "data_version_timestamp", "data_version_state", "server_epoch", "connection_id"),
        ),
        _NUMBER,
    ),
}
_COLUMNS: Final = {name: _COLUMN_TYPES.get(name, TEXT) for name in RouteChange._fields}
_CHANGE_ALWAYS: Final = ("partition", "offset", "seq", "at_ms", "kind", "gone", "cause")
_STATE_ALWAYS: Final = ("partition", "kind", "gone")


def _row(always: tuple[str, ...], text: str) -> Schema:
    shape = _object({n: _COLUMNS[n] for n in always}, {n: s for n, s in _COLUMNS.items() if n not in always})
    return {**shape, "description": text}


_PART: Final = _object(
    {"name": TEXT, "state": {"enum": ["ok", "degraded", "failed"]}},
    {"reason": {**TEXT, "description": "why it is not ok, and what that means"}, "since_ms": _MS},
)
_HEALTH: Final[Schema] = {
    "state": {"enum": ["green", "yellow", "red"]},
    "parts": _list(_PART),
    "kafka": {"enum": ["up", "down"]},
    "brokers": COUNT,
    "held_brokers": COUNT,
    "connections": COUNT,
    "pending_events": {**COUNT, "description": "accepted here, and not in a commit of the job yet"},
    "version": {"type": "integer", "description": "of route_changes; -1 before there is a table"},
    "age_ms": {**COUNT, "description": "since the last commit of the job that was taken over"},
    "next_offsets": _OFFSETS,
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": {
        **_object(
            {
                "type": TEXT,
                "title": TEXT,
                "status": {"type": "integer"},
                "detail": {**TEXT, "description": "what is wrong, and what to do"},
            }
        ),
        "description": "RFC 9457",
    },
    "Health": _object(_HEALTH),
    "Readiness": _object({"ready": BOOLEAN, "reasons": _list(TEXT), **_HEALTH}),
    "Route": {
        **_object(
            {
                "brokerDatas": _list(
                    _object(
                        {"brokerAddrs": _ADDRS, "brokerName": TEXT, "cluster": TEXT, "enableActingMaster": BOOLEAN},
                        {"zoneName": TEXT},
                    )
                ),
                "filterServerTable": _map(_list(TEXT)),
                "queueDatas": _list(
                    _object(
                        {
                            "brokerName": TEXT,
                            **dict.fromkeys(("perm", "readQueueNums", "writeQueueNums", "topicSysFlag"), _NUMBER),
                        }
                    )
                ),
            },
            {"orderTopicConf": TEXT, "topicQueueMappingByBroker": _map({"type": "object"})},
        ),
        "description": "RocketMQ's TopicRouteData, in the JSON that clients since 4.9.4 get",
    },
    "PastRoute": {
        "type": "object",
        "description": "the route at an instant, and what changed it last: docs/history.md",
    },
    "Topics": _object(
        {
            "count": COUNT,
            "next": {"type": ["string", "null"], "description": "`after` of the next page; null where there is none"},
            "topics": _list(TEXT),
        }
    ),
    "Clusters": {**_map(_map(_ADDRS)), "description": "cluster → broker name → brokerId → address"},
    "Hold": _object(
        {
            "goes_with": TEXT,
            "reason": TEXT,
            "server_id": {"type": ["string", "null"]},
            "since_ms": _MS,
            "until_ms": _MS,
            "ending": COUNT,
            "brokers": COUNT,
        },
        more=True,
    ),
    "End": _object(
        {
            **{"at_ms": _MS, "cause": {"enum": list(Cause)}, "detail": {"type": ["string", "null"]}},
            **{"partition": COUNT, "offset": COUNT},
            "replaced_by": {"type": ["string", "null"], "description": "the address that has its brokerId now"},
        }
    ),
    "Broker": _object(
        {
            "cluster": TEXT,
            "broker_name": TEXT,
            "broker_id": {"type": ["integer", "null"]},
            "broker_addr": TEXT,
            "state": {"enum": ["alive", "held", "ended"]},
            "timeout_ms": {"type": ["integer", "null"], "description": "as it asked; null for the default"},
            "expires_after_ms": {**COUNT, "description": "the timeout that holds, of observed time"},
            "age_ms": {
                "type": ["integer", "null"],
                "description": "since this server heard it, by the time for which it could listen; null: not since its"
                " start, or the broker is gone",
            },
            "since_ms": {
                "type": ["integer", "null"],
                "description": "when it came up, epoch milliseconds; null: more than a day ago, or the broker is gone,"
                " or nobody has asked this server for ?state=any, ?state=ended or the console yet",
            },
            "servers": _list(TEXT),
            "held": {"anyOf": [ref("Hold"), {"type": "null"}]},
            "ended": {"anyOf": [ref("End"), {"type": "null"}]},
        }
    ),
    "Brokers": _list(ref("Broker")),
    "Namespaces": _map(_map(TEXT)),
    "Entries": _map(TEXT),
    "Change": _row(
        _CHANGE_ALWAYS, "what a key now is, or that it is gone; columns that a kind does not use are absent"
    ),
    "StateRow": _row(_STATE_ALWAYS, "what a key is"),
    "Changes": _object(
        {
            "position": _POSITION,
            "whole": {**BOOLEAN, "description": "false where more rows of the same commit follow"},
            "rows": _list(ref("Change")),
        }
    ),
    "StateRows": _object({"position": _POSITION, "rows": _list(ref("StateRow"))}),
    "State": _object(
        {
            "server_id": TEXT,
            "server_epoch": COUNT,
            "software": TEXT,
            "version": {"type": "integer"},
            "age_ms": COUNT,
            "pending_events": COUNT,
            "next_offsets": _OFFSETS,
            "digest": TEXT,
            "partitions": _map(TEXT),
        }
    ),
    "StateKeys": _object({"next_offset": COUNT, "parts": _list(_object({"kind": TEXT, "name": TEXT, "digest": TEXT}))}),
    "StatePart": _object({"next_offsets": _OFFSETS, "rows": _list({"type": "object"})}),
}
