"""Rows back into state: the only reader of ``RouteChange`` (servers, replay and the job all rebuild with it).

Rows of one key replace each other, so a table may be built from any prefix that ends at a record's end, or from the
newest row of each key in any order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from sys import intern
from types import MappingProxyType
from typing import Any, Final

from namesrv_stream.route.changes import ChangeKind, RouteChange, lease_key
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.hold import decode_hold
from namesrv_stream.route.model import BrokerLive, DataVersion, Holder, LiveKey, QueueData, shared_queue_data
from namesrv_stream.route.registration_json import decode_mapping
from namesrv_stream.route.retained import RetainedRegistration
from namesrv_stream.route.table import RouteTable

#: Kinds that make up broker groups.
GROUP_KINDS = frozenset(
    {
        ChangeKind.BROKER_DATA,
        ChangeKind.BROKER_LIVE,
        ChangeKind.HOLDER,
        ChangeKind.QUEUE_DATA,
        ChangeKind.TOPIC_MAPPING,
        ChangeKind.REGISTRATION,
    }
)

#: Topic → what a broker name offers of it by the last row about it, None where that says that it is gone.
QueuesOfTopics = Mapping[str, QueueData | None]
_NO_QUEUE_DATA: Final[Mapping[str, QueuesOfTopics]] = MappingProxyType({})


def apply(
    table: RouteTable, changes: Iterable[RouteChange], queue_data: Mapping[str, QueuesOfTopics] = _NO_QUEUE_DATA
) -> None:
    """Apply rows in order.

    Args:
        table: Changed in place.
        changes: In log order within each partition.
        queue_data: Broker name → what further rows of kind ``queue_data`` say of it.
    """
    rows_of_name: dict[str, list[RouteChange]] = {}
    settings_of: dict[int, list[RouteChange]] = {}
    for change in changes:
        if change.kind in GROUP_KINDS:
            rows_of_name.setdefault(change.broker_name or "", []).append(change)
        elif change.kind == ChangeKind.KV:
            namespace = change.namespace or ""
            entries = apply_to_namespace(table.kv.get(namespace), change.gone, change.key, change.value)
            if entries is not None:
                table.kv[namespace] = entries
        elif change.kind == ChangeKind.SETTING:
            settings_of.setdefault(change.partition, []).append(change)
        elif change.kind == ChangeKind.SERVER:
            table.servers[change.partition, change.server_id or ""] = (change.server_epoch or 0, change.value or "")
        elif change.kind == ChangeKind.GUARD:
            _put(table.held, lease_key(change), None if change.gone else decode_hold(change.value or ""))
    for partition, rows in settings_of.items():
        table.replace_settings(partition, apply_to_settings(table.settings_of(partition), rows))
    table.replace_groups(
        _with_queue_data(apply_to_group(table.group(name), rows_of_name.get(name, ())), queue_data.get(name, {}))
        for name in dict.fromkeys([*rows_of_name, *queue_data])
    )


def _with_queue_data(group: BrokerGroup, later: QueuesOfTopics) -> BrokerGroup:
    if not later:
        return group
    topics: Mapping[str, Any] = {**group.topics, **later} if group.topics else later  # which many groups may share
    if None in topics.values():
        topics = {topic: queues for topic, queues in topics.items() if queues is not None}
    return replace(group, topics=topics)


def apply_to_group(group: BrokerGroup, rows: Iterable[RouteChange]) -> BrokerGroup:
    """The group after its rows; copies each of its mappings at most once however many the rows."""
    drafts: dict[str, Any] = {}

    def draft(name: str) -> dict[Any, Any]:
        if name not in drafts:
            drafts[name] = dict(getattr(group, name))
        mapping: dict[Any, Any] = drafts[name]
        return mapping

    fields: dict[str, Any] = {}
    for row in rows:
        match row.kind:
            case ChangeKind.QUEUE_DATA:
                # One string for a topic however many brokers offer it.
                _put(draft("topics"), intern(row.topic or ""), _queue_data(row))
            case ChangeKind.BROKER_DATA:
                fields |= _broker_data(row)
            case ChangeKind.BROKER_LIVE:
                key = _live_key(row)
                _put(draft("lives"), key, None if row.gone else _live(row, draft("lives").get(key)))
            case ChangeKind.HOLDER:
                key = _live_key(row)
                lives = draft("lives")
                # Rows of one record keep diff's order; in route_state a holder may come before its broker_live.
                live = lives.get(key)
                if live is not None or not row.gone:
                    lives[key] = _with_holder(live, row)
            case ChangeKind.TOPIC_MAPPING:
                _put(draft("topic_mappings"), row.topic, None if row.gone else decode_mapping(row.value or ""))
            case ChangeKind.REGISTRATION:
                _put(draft("registrations"), _live_key(row), None if row.gone else _registration(row))
    return replace(group, **fields, **drafts)


def _put(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def _live_key(row: RouteChange) -> LiveKey:
    return LiveKey(row.cluster or "", row.broker_addr or "")


def _queue_data(row: RouteChange) -> Any:
    if row.gone:
        return None
    return shared_queue_data(
        row.read_queue_nums or 0, row.write_queue_nums or 0, row.perm or 0, row.topic_sys_flag or 0
    )


def _broker_data(row: RouteChange) -> Mapping[str, Any]:
    return {
        "cluster": row.cluster or "",
        "clusters": frozenset(row.clusters or ()),
        "zone_name": row.zone_name,
        "enable_acting_master": bool(row.enable_acting_master),
        "broker_addrs": dict(row.broker_addrs or ()),
    }


def _live(row: RouteChange, before: BrokerLive | None) -> BrokerLive:
    return BrokerLive(
        data_version=DataVersion(
            row.data_version_counter or 0, row.data_version_timestamp or 0, row.data_version_state or 0
        ),
        timeout_ms=row.timeout_ms,
        ha_server_addr=row.ha_server_addr or "",
        filter_servers=tuple(row.filter_servers or ()),
        registration_hash=row.registration_hash or "",
        holders=before.holders if before else {},
    )


def _registration(row: RouteChange) -> RetainedRegistration:
    return RetainedRegistration(row.registration_hash or "", row.broker_id or 0, row.value or "")


def _with_holder(live: BrokerLive | None, row: RouteChange) -> BrokerLive:
    live = live or BrokerLive(DataVersion(), None, "", (), "", {})
    holders = {s: h for s, h in live.holders.items() if s != row.server_id}
    if not row.gone:
        holders[row.server_id or ""] = Holder(row.server_epoch or 0, row.connection_id or 0)
    return replace(live, holders=holders)


def apply_to_namespace(
    entries: dict[str, str] | None, gone: bool, key: str | None, value: str | None
) -> dict[str, str] | None:
    """The entries of a KV namespace after a row, changed in place; None for a namespace that nobody ever wrote to.

    A namespace outlives its last key, as in Java's KVConfigManager: its own row has no key.
    """
    if gone and entries is None:
        return None
    entries = {} if entries is None else entries
    if key is not None:
        _put(entries, key, None if gone else value or "")
    return entries


def apply_to_settings(
    settings: Mapping[tuple[str, str], str], rows: Iterable[RouteChange]
) -> Mapping[tuple[str, str], str]:
    """One partition's settings after its rows."""
    return {**settings, **{(r.namespace or "", r.key or ""): r.value or "" for r in rows}}
