"""The fields that kinds of events share: version, kind and origin of all records, and which broker is meant."""

from collections.abc import Mapping
from typing import Any

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.events import DIRECT, Origin
from namesrv_stream.route.model import LiveKey
from namesrv_stream.route.registration_json import require

SCHEMA_VERSION = 1


def head_fields(kind: str, origin: Origin) -> dict[str, Any]:
    """The fields of an event's head; a direct producer and no connection are left out."""
    head: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "kind": kind}
    if origin.server_id != DIRECT:
        head |= {"server_id": origin.server_id, "server_epoch": origin.server_epoch}
    if origin.connection_id:
        head["connection_id"] = origin.connection_id
    return head


def read_head(fields: Any) -> tuple[str, Origin]:
    """Kind and origin of what a record's JSON holds.

    Raises:
        EventDecodeError: The record is not one of ours.
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
    """0 where no connection is meant."""
    given: int = require(fields, "connection_id", int) if "connection_id" in fields else 0
    return given


def broker_fields(broker_name: str, key: LiveKey) -> dict[str, Any]:
    """The fields that name a broker process."""
    return {"cluster": key.cluster, "broker_name": broker_name, "broker_addr": key.broker_addr}


def live_key_from(fields: Mapping[str, Any]) -> LiveKey:
    """Which process of its broker name is meant.

    Raises:
        EventDecodeError: They do not say.
    """
    return LiveKey(require(fields, "cluster", str), require(fields, "broker_addr", str))
