"""JSON of broker groups, as the fold's host stores them. It keeps everything, including the order of topics."""

from typing import Any

import orjson

from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import BrokerLive, DataVersion, Holder, LiveKey, shared_queue_data
from namesrv_stream.route.registration_json import RetainedRegistration, mapping_fields, mapping_from

GROUP_VERSION = 2


def encode_group(group: BrokerGroup) -> bytes:
    """Return the group as JSON."""
    return orjson.dumps(
        {
            "group_version": GROUP_VERSION,
            "broker_name": group.broker_name,
            "cluster": group.cluster,
            "clusters": sorted(group.clusters),
            "zone_name": group.zone_name,
            "enable_acting_master": group.enable_acting_master,
            "broker_addrs": list(group.broker_addrs.items()),
            "lives": [_live_fields(key, live) for key, live in group.lives.items()],
            "topics": {t: list(q) for t, q in group.topics.items()},
            "topic_mappings": {t: mapping_fields(m) for t, m in group.topic_mappings.items()},
            "registrations": [[*k, r.registration_hash, r.broker_id, r.text] for k, r in group.registrations.items()],
        }
    )


def decode_group(data: bytes) -> BrokerGroup:
    """Inverse of ``encode_group``; reads version 1 as well.

    Raises:
        ValueError: The group was written by another version of the fold.
    """
    fields: dict[str, Any] = orjson.loads(data)
    if fields["group_version"] == 1:
        fields = _from_version_1(fields)
    if fields["group_version"] != GROUP_VERSION:
        raise ValueError(f"broker group of version {fields['group_version']}, this code reads {GROUP_VERSION}")
    return BrokerGroup(
        broker_name=fields["broker_name"],
        cluster=fields["cluster"],
        clusters=frozenset(fields["clusters"]),
        zone_name=fields["zone_name"],
        enable_acting_master=fields["enable_acting_master"],
        broker_addrs=dict(fields["broker_addrs"]),
        lives=dict(_live_from(*live) for live in fields["lives"]),
        topics={t: shared_queue_data(*numbers) for t, numbers in fields["topics"].items()},
        topic_mappings={t: mapping_from(m) for t, m in fields["topic_mappings"].items()},
        registrations={LiveKey(c, a): RetainedRegistration(*r) for c, a, *r in fields["registrations"]},
    )


def _from_version_1(fields: dict[str, Any]) -> dict[str, Any]:
    """Convert a group of version 1, in which registrations are objects instead of texts."""
    registrations = [
        [*key, r["registration_hash"], r["broker_id"], orjson.dumps(r).decode()] for *key, r in fields["registrations"]
    ]
    return fields | {"group_version": 2, "registrations": registrations}


def _live_fields(key: LiveKey, live: BrokerLive) -> list[Any]:
    return [
        *key,
        list(live.data_version),
        live.timeout_ms,
        live.ha_server_addr,
        list(live.filter_servers),
        live.registration_hash,
        [[server_id, *holder] for server_id, holder in live.holders.items()],
    ]


def _live_from(
    cluster: str,
    broker_addr: str,
    data_version: list[int],
    timeout_ms: int | None,
    ha_server_addr: str,
    filter_servers: list[str],
    registration_hash: str,
    holders: list[tuple[str, int, int]],
) -> tuple[LiveKey, BrokerLive]:
    live = BrokerLive(
        data_version=DataVersion(*data_version),
        timeout_ms=timeout_ms,
        ha_server_addr=ha_server_addr,
        filter_servers=tuple(filter_servers),
        registration_hash=registration_hash,
        holders={server_id: Holder(epoch, connection_id) for server_id, epoch, connection_id in holders},
    )
    return LiveKey(cluster, broker_addr), live
