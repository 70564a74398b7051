"""Changes of the route table: rows that carry the new value of a key, or say that the key was deleted.

A row carries the complete new value, so applying it twice does no harm, and the newest rows of all keys are the state.
Rows are ordered by (partition, offset, seq). Only ``diff`` makes rows about broker groups, and only ``reducer`` applies
them to groups. A test checks that applying ``diff(old, new)`` to ``old`` gives ``new``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import LeaseKey, LiveKey, QueueData, TopicQueueMappingInfo
from namesrv_stream.route.registration_json import encode_mapping


class ChangeKind(StrEnum):
    """What a row is about. The comments name the key columns."""

    BROKER_DATA = "broker_data"  # broker_name
    BROKER_LIVE = "broker_live"  # broker_name, cluster, broker_addr
    HOLDER = "holder"  # broker_name, cluster, broker_addr, server_id
    QUEUE_DATA = "queue_data"  # topic, broker_name
    TOPIC_MAPPING = "topic_mapping"  # topic, broker_name
    REGISTRATION = "registration"  # broker_name, cluster, broker_addr
    KV = "kv"  # namespace, key
    SETTING = "setting"  # namespace ("effective" or "config"), key
    SERVER = "server"  # server_id (per partition)
    GUARD = "guard"  # broker_name, cluster, broker_addr: a broker that the mass-expiry guard holds
    REGISTRATION_WANTED = "registration_wanted"  # not part of the state: requests the full registration from gateways
    IGNORED = "ignored"  # not part of the state: an event that changed nothing, and why


#: Kinds of rows that change what clients get.
ROUTE_KINDS = frozenset({ChangeKind.BROKER_DATA, ChangeKind.QUEUE_DATA, ChangeKind.TOPIC_MAPPING})


class Cause(StrEnum):
    """Why a row was written."""

    REGISTERED = "registered"
    RETURNED = "returned"  # an unchanged registration restored a removed broker or a deleted topic
    EXPIRED = "expired"
    DISCONNECTED = "disconnected"
    UNREGISTERED = "unregistered"
    SERVER_LOST = "server_lost"
    GUARD_HELD = "guard_held"  # too many brokers of its cluster seemed to fail at once
    GUARD_RELEASED = "guard_released"  # by an operator
    HEARD = "heard"
    TOPIC_REGISTERED = "topic_registered"
    TOPIC_DELETED = "topic_deleted"
    WRITE_PERM_WIPED = "write_perm_wiped"
    WRITE_PERM_ADDED = "write_perm_added"
    KV_PUT = "kv_put"
    KV_DELETED = "kv_deleted"
    SETTINGS_CHANGED = "settings_changed"
    SERVER_STARTED = "server_started"
    SERVER_RESUMED = "server_resumed"
    SERVER_STOPPED = "server_stopped"
    SERVER_SILENT = "server_silent"
    SERVER_HEARD = "server_heard"
    SERVER_LISTED = "server_listed"  # it advertises an address for the list of name servers
    SERVER_UNLISTED = "server_unlisted"  # it advertises none any more
    UNKNOWN_HASH = "unknown_hash"
    FORGOTTEN = "forgotten"
    STATE_REBUILT = "state_rebuilt"
    CONTRADICTION = "contradiction"  # a registration had other content with the last DataVersion


class RouteChange(NamedTuple):
    """One row of ``route_changes``. Columns that a kind does not use are None.

    Attributes:
        partition: Kafka partition of the record that caused the change.
        offset: Offset of that record.
        seq: Number of the row among the rows of one record, from 0.
        at_ms: The highest LogAppendTime so far in the partition, epoch milliseconds.
        gone: Whether the key was deleted.
        detail: Human-readable details of the cause.
        value: KV value, setting, status of a server (``route.table.KnownServer``), or JSON of a registration, static
            mapping, hold of the guard, or a live broker's ``contradictions``.
    """

    partition: int
    offset: int
    seq: int
    at_ms: int
    kind: str
    gone: bool
    cause: str
    detail: str | None = None
    cluster: str | None = None
    broker_name: str | None = None
    broker_addr: str | None = None
    broker_id: int | None = None
    topic: str | None = None
    server_id: str | None = None
    namespace: str | None = None
    key: str | None = None
    read_queue_nums: int | None = None
    write_queue_nums: int | None = None
    perm: int | None = None
    topic_sys_flag: int | None = None
    zone_name: str | None = None
    enable_acting_master: bool | None = None
    broker_addrs: tuple[tuple[int, str], ...] | None = None
    clusters: tuple[str, ...] | None = None
    data_version_counter: int | None = None
    data_version_timestamp: int | None = None
    data_version_state: int | None = None
    timeout_ms: int | None = None
    ha_server_addr: str | None = None
    filter_servers: tuple[str, ...] | None = None
    registration_hash: str | None = None
    server_epoch: int | None = None
    connection_id: int | None = None
    value: str | None = None


def lease_key(row: RouteChange) -> LeaseKey:
    """Return the broker process that a row is about."""
    return LeaseKey(row.broker_name or "", LiveKey(row.cluster or "", row.broker_addr or ""))


#: The key columns of each kind that is part of the state.
KEY_COLUMNS: Mapping[ChangeKind, tuple[str, ...]] = {
    ChangeKind.BROKER_DATA: ("broker_name",),
    ChangeKind.BROKER_LIVE: ("broker_name", "cluster", "broker_addr"),
    ChangeKind.HOLDER: ("broker_name", "cluster", "broker_addr", "server_id"),
    ChangeKind.QUEUE_DATA: ("topic", "broker_name"),
    ChangeKind.TOPIC_MAPPING: ("topic", "broker_name"),
    ChangeKind.REGISTRATION: ("broker_name", "cluster", "broker_addr"),
    ChangeKind.KV: ("namespace", "key"),
    ChangeKind.SETTING: ("partition", "namespace", "key"),
    ChangeKind.SERVER: ("partition", "server_id"),
    ChangeKind.GUARD: ("broker_name", "cluster", "broker_addr"),
}


class Difference(NamedTuple):
    """The content of a row, without position, time and cause."""

    kind: ChangeKind
    gone: bool
    columns: dict[str, Any]


def diff(old: BrokerGroup, new: BrokerGroup) -> Iterator[Difference]:
    """Yield the rows that turn ``old`` into ``new``, in a fixed order.

    The order is: broker, processes, topics, static mappings, registrations. Both groups must have the same broker name.
    Parts that are the same object in both cost nothing.
    """
    name = new.broker_name
    if _broker_data(old) != _broker_data(new):
        yield Difference(ChangeKind.BROKER_DATA, not new.broker_addrs, {"broker_name": name, **_broker_data(new)})
    if old.live_brokers is not new.live_brokers:
        yield from _diff_live_brokers(name, old, new)
    if old.topics is not new.topics:
        for topic in sorted(_changed_keys(old.topics, new.topics)):
            yield _queue_row(name, new.cluster or old.cluster, topic, new.topics.get(topic))
    if old.topic_mappings is not new.topic_mappings:
        for topic in sorted(_changed_keys(old.topic_mappings, new.topic_mappings)):
            yield _mapping_row(name, topic, new.topic_mappings.get(topic))
    if old.registrations is not new.registrations:
        for key in sorted(_changed_keys(old.registrations, new.registrations)):
            registration = new.registrations.get(key)
            columns: dict[str, Any] = {"broker_name": name, **key._asdict()}
            if registration is not None:
                columns |= {
                    "broker_id": registration.broker_id,
                    "registration_hash": registration.registration_hash,
                    "value": registration.text,
                }
            yield Difference(ChangeKind.REGISTRATION, registration is None, columns)


def created(group: BrokerGroup) -> Iterator[Difference]:
    """Yield the rows that create a group, as ``diff`` does, but each on demand: a broker can have 100,000 topics."""
    yield from diff(BrokerGroup(group.broker_name), replace(group, topics={}, topic_mappings={}))
    for topic, queues in group.topics.items():
        yield _queue_row(group.broker_name, group.cluster, topic, queues)
    for topic, info in group.topic_mappings.items():
        yield _mapping_row(group.broker_name, topic, info)


def _queue_row(name: str, cluster: str, topic: str, queues: QueueData | None) -> Difference:
    columns = {"topic": topic, "broker_name": name, "cluster": cluster}
    return Difference(ChangeKind.QUEUE_DATA, queues is None, columns | (queues._asdict() if queues else {}))


def _mapping_row(name: str, topic: str, info: TopicQueueMappingInfo | None) -> Difference:
    columns = {"topic": topic, "broker_name": name} | ({"value": encode_mapping(info)} if info else {})
    return Difference(ChangeKind.TOPIC_MAPPING, info is None, columns)


def _diff_live_brokers(name: str, old: BrokerGroup, new: BrokerGroup) -> Iterator[Difference]:
    for key in sorted(_changed_keys(old.live_brokers, new.live_brokers)):
        before, after = old.live_brokers.get(key), new.live_brokers.get(key)
        columns: dict[str, Any] = {"broker_name": name, **key._asdict(), "broker_id": _broker_id(old, new, key)}
        live_columns = _live_columns(new, key)
        if live_columns != _live_columns(old, key):
            yield Difference(ChangeKind.BROKER_LIVE, after is None, columns | live_columns)
        held_before = before.holders if before else {}
        held_after = after.holders if after else {}
        for server_id in sorted(_changed_keys(held_before, held_after)):
            holder = held_after.get(server_id)
            yield Difference(
                ChangeKind.HOLDER,
                holder is None,
                columns | {"server_id": server_id} | (holder._asdict() if holder else {}),
            )


def _changed_keys(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> set[Any]:
    return {k for k, v in new.items() if old.get(k) != v} | (old.keys() - new.keys())


def _broker_data(group: BrokerGroup) -> dict[str, Any]:
    if not group.broker_addrs:
        return {}
    return {
        "cluster": group.cluster,
        "clusters": tuple(sorted(group.clusters)),
        "zone_name": group.zone_name,
        "enable_acting_master": group.enable_acting_master,
        "broker_addrs": tuple(sorted(group.broker_addrs.items())),
    }


def _live_columns(group: BrokerGroup, key: LiveKey) -> dict[str, Any]:
    live = group.live_brokers.get(key)
    if live is None:
        return {}
    return {
        "data_version_counter": live.data_version.counter,
        "data_version_timestamp": live.data_version.timestamp,
        "data_version_state": live.data_version.state_version,
        "timeout_ms": live.timeout_ms,
        "ha_server_addr": live.ha_server_addr,
        "filter_servers": live.filter_servers,
        "registration_hash": live.registration_hash,
    } | ({"value": encode_names(live.contradictions)} if live.contradictions else {})


def encode_names(names: tuple[str, ...]) -> str:
    """Return names as a JSON list."""
    return orjson.dumps(names).decode()


def decode_names(text: str | None) -> tuple[str, ...]:
    """Inverse of ``encode_names``; None stands for no names."""
    return tuple(orjson.loads(text)) if text else ()


def _broker_id(old: BrokerGroup, new: BrokerGroup, key: LiveKey) -> int | None:
    for group in (new, old):
        for broker_id, addr in group.broker_addrs.items():
            if addr == key.broker_addr:
                return broker_id
    return None
