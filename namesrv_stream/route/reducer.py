"""Applies rows to a route table. Servers, replay and the job all use this module to build tables.

Rows of one key replace each other. A table may therefore be built from any prefix of the rows that ends with a whole
record, or from the newest row of each key in any order.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from sys import intern
from types import MappingProxyType
from typing import Any, Final

from namesrv_stream.route.changes import ChangeKind, RouteChange, decode_names, lease_key
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import (
    BrokerLive,
    DataVersion,
    Holder,
    LiveKey,
    QueueData,
    decode_hold,
    shared_queue_data,
)
from namesrv_stream.route.registration_json import RetainedRegistration, decode_mapping
from namesrv_stream.route.steps import result
from namesrv_stream.route.table import RouteTable

#: Kinds of the rows that make up broker groups.
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

#: Topic → a broker name's queues by the last row about it; None if that row says that they were deleted.
QueuesOfTopics = Mapping[str, QueueData | None]
_NO_QUEUE_DATA: Final[Mapping[str, QueuesOfTopics]] = MappingProxyType({})
_TOPICS_AT_ONCE: Final = 2_000


class CommitRows:
    """The rows of one or more commits, by what they change. Each list keeps the order of the rows.

    Attributes:
        of_group: Broker name → rows about its group, except its queues.
        queue_data: Broker name → its queues by the last rows about them.
        of_settings: Partition → rows of kind ``setting``.
        others: All other rows.
        besides_queues: All rows except those about queues, which are by far the most.
    """

    def __init__(self, changes: Iterable[RouteChange]) -> None:
        self.of_group: dict[str, list[RouteChange]] = {}
        self.queue_data: dict[str, dict[str, QueueData | None]] = {}
        self.of_settings: dict[int, list[RouteChange]] = {}
        self.others: list[RouteChange] = []
        self.besides_queues: list[RouteChange] = []
        for row in changes:
            if row.kind == ChangeKind.QUEUE_DATA:
                # All groups share one string per topic.
                self.queue_data.setdefault(row.broker_name or "", {})[intern(row.topic or "")] = _queue_data(row)
                continue
            self.besides_queues.append(row)
            if row.kind in GROUP_KINDS:
                self.of_group.setdefault(row.broker_name or "", []).append(row)
            elif row.kind == ChangeKind.SETTING:
                self.of_settings.setdefault(row.partition, []).append(row)
            else:
                self.others.append(row)

    def names(self) -> Iterable[str]:
        """Return the names of the brokers whose groups change."""
        return dict.fromkeys((*self.of_group, *self.queue_data))

    def group_after(self, group: BrokerGroup) -> Generator[None, None, BrokerGroup]:
        """Return a group after its rows, in steps. It takes the rows about queues, so call it once for a group."""
        topics, rest = group.topics, self.queue_data.pop(group.broker_name, {})
        if rest:
            if topics or None in rest.values():
                topics, items = dict(topics), iter(rest.items())
                while some := list(islice(items, _TOPICS_AT_ONCE)):
                    for topic, queues in some:
                        _put(topics, topic, queues)
                    yield
                while rest:  # names that nothing else uses any more are freed in steps, too
                    for _ in range(min(_TOPICS_AT_ONCE, len(rest))):
                        rest.popitem()
                    yield
            else:
                topics = rest  # type: ignore[assignment]  # no value is None
            group = replace(group, topics=topics)
        return _with_rows(group, self.of_group.get(group.broker_name, ()))


def apply(
    table: RouteTable, changes: Iterable[RouteChange], queue_data: Mapping[str, QueuesOfTopics] = _NO_QUEUE_DATA
) -> None:
    """Apply rows in order.

    Args:
        table: Changed in place.
        changes: In log order within each partition.
        queue_data: Broker name → decoded rows of kind ``queue_data``, which are newer than those in ``changes``.
    """
    rows = CommitRows(changes)
    for row in rows.others:
        if row.kind == ChangeKind.KV:
            namespace = row.namespace or ""
            entries = apply_to_namespace(table.kv.get(namespace), row.gone, row.key, row.value)
            if entries is not None:
                table.kv[namespace] = entries
                table.kv_version += 1
        elif row.kind == ChangeKind.SERVER:
            table.servers[row.partition, row.server_id or ""] = (row.server_epoch or 0, row.value or "")
        elif row.kind == ChangeKind.GUARD:
            _put(table.held, lease_key(row), None if row.gone else decode_hold(row.value or ""))
    for partition, of_partition in rows.of_settings.items():
        table.replace_settings(partition, apply_to_settings(table.settings_of(partition), of_partition))
    table.replace_groups(
        _with_queue_data(result(rows.group_after(table.group(name))), queue_data.get(name, {}))
        for name in dict.fromkeys([*rows.names(), *queue_data])
    )


def _with_queue_data(group: BrokerGroup, later: QueuesOfTopics) -> BrokerGroup:
    if not later:
        return group
    topics: Mapping[str, Any] = {**group.topics, **later} if group.topics else later  # which many groups may share
    if None in topics.values():
        topics = {topic: queues for topic, queues in topics.items() if queues is not None}
    return replace(group, topics=topics)


def apply_to_group(group: BrokerGroup, rows: Iterable[RouteChange]) -> BrokerGroup:
    """Return the group after its rows."""
    return result(CommitRows(rows).group_after(group))


def _with_rows(group: BrokerGroup, rows: Iterable[RouteChange]) -> BrokerGroup:
    drafts: dict[str, Any] = {}

    def draft(name: str) -> dict[Any, Any]:
        if name not in drafts:
            drafts[name] = dict(getattr(group, name))
        mapping: dict[Any, Any] = drafts[name]
        return mapping

    fields: dict[str, Any] = {}
    for row in rows:
        match row.kind:
            case ChangeKind.BROKER_DATA:
                fields |= _broker_data(row)
            case ChangeKind.BROKER_LIVE:
                key = _live_key(row)
                _put(draft("live_brokers"), key, None if row.gone else _live(row, draft("live_brokers").get(key)))
            case ChangeKind.HOLDER:
                key = _live_key(row)
                live_brokers = draft("live_brokers")
                # Rows of one record keep diff's order; in route_state a holder may come before its broker_live.
                live = live_brokers.get(key)
                if live is not None or not row.gone:
                    live_brokers[key] = _with_holder(live, row)
            case ChangeKind.TOPIC_MAPPING:
                _put(draft("topic_mappings"), row.topic, None if row.gone else decode_mapping(row.value or ""))
            case ChangeKind.REGISTRATION:
                _put(draft("registrations"), _live_key(row), None if row.gone else _registration(row))
    return replace(group, **fields, **drafts) if fields or drafts else group


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
        contradictions=decode_names(row.value),
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
    """Return the entries of a KV namespace after a row; None for a namespace that was never written.

    ``entries`` is changed in place.

    As in Java's KVConfigManager, a namespace remains without its last key. The row of the namespace itself has no key.
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
    """Return one partition's settings, (namespace, name) → JSON text, after its rows."""
    return {**settings, **{(r.namespace or "", r.key or ""): r.value or "" for r in rows}}


def slices_of(
    changes: Iterable[RouteChange], next_offsets: Mapping[int, int], max_rows: int
) -> Iterator[tuple[list[RouteChange], Mapping[int, int]]]:
    """Split a commit between records of the log, so that each slice is a commit that the job could have made.

    Args:
        changes: Rows of the commit, in log order; not all need be in memory at once.
        next_offsets: Kafka partition → the first offset that the commit does not cover.
        max_rows: Limit for the rows of a slice; the rows of its last record may exceed it.

    Yields:
        Rows, and Kafka partition → the first offset that they do not cover; with the last rows, ``next_offsets``.
    """
    part: list[RouteChange] = []
    for change in changes:
        if len(part) >= max_rows and change[:2] != part[-1][:2]:  # of another record
            yield part, {row.partition: row.offset + 1 for row in part}
            part = []
        part.append(change)
    yield part, next_offsets
