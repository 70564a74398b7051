"""A server's routes at the scale of a large installation, made without a log: it takes seconds, and not minutes."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import DRAINED_BROKERS, BrokerLive, DrainRecord, Holder, LiveKey, QueueData
from namesrv_stream.route.registration_json import RetainedRegistration, encode_registration
from namesrv_stream.route.steps import finish
from namesrv_stream.route.table import RouteTable
from tests.support.builders import RW, a_registration
from tests.support.http_rig import HttpRig

LARGEST: Final = "largest"
#: A broker with as many topics that ended within the last day.
LARGEST_ENDED: Final = "largest-ended"
SHARED_TOPIC: Final = "shared-0"
KV_NAMESPACE: Final = "many"
_SHARED_TOPICS: Final = 10


class Scale(NamedTuple):
    """How large a fleet is; ``largest`` is the number of topics of the largest broker, and of the largest ended one."""

    brokers: int
    topics_of_each: int
    clusters: int
    largest: int
    ended: int
    kv_entries: int
    commits: int
    partitions: int = 16


def a_large_server(scale: Scale) -> HttpRig:
    """Return a server with such a fleet. Every topic was asked for."""
    served = HttpRig(partitions=scale.partitions)
    served.rig.talk()
    table = a_large_table(scale)
    topics = list(table.topics())
    offsets = dict.fromkeys(range(scale.partitions), 1)
    served.reload(table, offsets)
    for _ in range(scale.commits):
        offsets = {partition: offset + 1 for partition, offset in offsets.items()}
        finish(served.feed.committed((), offsets))
    served.rig.server.asked = dict.fromkeys(topics, served.rig.clock.monotonic_ms())
    return served


def a_large_table(scale: Scale) -> RouteTable:
    """Return the routes of such a fleet. Many topics are in an order configuration."""
    table = RouteTable()
    table.replace_groups(_groups(scale))
    table.kv[KV_NAMESPACE] = {f"key-{number:06d}": f"value {number}" for number in range(scale.kv_entries)}
    topics = list(table.topics())
    table.kv["ORDER_TOPIC_CONFIG"] = {topic: f"{LARGEST}:8;nobody:8" for topic in topics[: scale.brokers]}
    record = DrainRecord("2026-11-20T00:00:00Z", "me@here", dict.fromkeys(_topics_of_largest(scale), 6))
    table.kv[DRAINED_BROKERS] = {LARGEST: record.encode()}
    return table


async def end_brokers(served: HttpRig, scale: Scale) -> None:
    """Let the server know why the ended brokers ended."""
    await served.recent_events.begin({})
    names = [*(_ended_name(number) for number in range(scale.ended)), LARGEST_ENDED]
    served.recent_events.committed(
        RouteChange(
            *(0, number, 0, served.rig.clock.now_ms(), ChangeKind.BROKER_LIVE, True, Cause.EXPIRED),
            cluster=_cluster(scale, number),
            broker_name=name,
            broker_addr=_addr(number),
        )
        for number, name in enumerate(names)
    )


def cluster_name(number: int) -> str:
    return f"cluster-{number:05d}"


def broker_name(number: int) -> str:
    return f"broker-{number:05d}"


def _ended_name(number: int) -> str:
    return f"ended-{number:05d}"


def _cluster(scale: Scale, number: int) -> str:
    return cluster_name(number % scale.clusters)


def _addr(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:10911"


def _topics_of_largest(scale: Scale) -> dict[str, QueueData]:
    return {f"topic-of-largest-{number:06d}": RW for number in range(scale.largest)}


def _groups(scale: Scale) -> Iterator[BrokerGroup]:
    shared = {f"shared-{number}": RW for number in range(_SHARED_TOPICS)}
    for number in range(scale.brokers):
        own = {f"topic-{number:05d}-with-a-name-{topic:05d}": RW for topic in range(scale.topics_of_each)}
        yield _group(broker_name(number), _cluster(scale, number), _addr(number), own | shared)
    topics = _topics_of_largest(scale)
    yield _group(LARGEST, cluster_name(0), "10.255.0.1:10911", topics, contradictions=tuple(topics))
    yield _ended(LARGEST_ENDED, _cluster(scale, scale.ended), _addr(scale.ended), topics)
    for number in range(scale.ended):
        yield _ended(_ended_name(number), _cluster(scale, number), _addr(number), {"TopicTest": RW})


def _group(
    name: str, cluster: str, addr: str, topics: dict[str, QueueData], contradictions: tuple[str, ...] = ()
) -> BrokerGroup:
    registration = a_registration(addr, broker_name=name, cluster=cluster, topics=topics)
    live = BrokerLive(
        registration.data_version,
        registration.timeout_ms,
        registration.ha_server_addr,
        (),
        registration.registration_hash,
        {"s1": Holder(7, 1)},
        contradictions,
    )
    return BrokerGroup(
        name,
        cluster=cluster,
        clusters=frozenset({cluster}),
        broker_addrs={0: addr},
        live_brokers={registration.live_key: live},
        topics=topics,
        registrations=_retained(name, cluster, addr, topics),
    )


def _ended(name: str, cluster: str, addr: str, topics: dict[str, QueueData]) -> BrokerGroup:
    return BrokerGroup(name, registrations=_retained(name, cluster, addr, topics))


def _retained(name: str, cluster: str, addr: str, topics: dict[str, QueueData]) -> dict[LiveKey, RetainedRegistration]:
    registration = a_registration(addr, broker_name=name, cluster=cluster, topics=topics, timeout_ms=30_000)
    text = encode_registration(registration)
    return {registration.live_key: RetainedRegistration(registration.registration_hash, 0, text)}
