"""Do name servers know the same? Asked over remoting, so of any make: the Java NameServer beside ours.

Name servers never talk to each other, and a broker registers at each by itself: for some milliseconds after each
registration they differ, and nothing is wrong. So what differs is asked again until it has had time to settle.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from namesrv_stream.client import queries
from namesrv_stream.client.name_servers import NameServers
from namesrv_stream.client.route import BrokerData, TopicRouteData
from namesrv_stream.errors import QueryNotFound, TopicNotExist
from namesrv_stream.remoting.acl import AclCredentials

T = TypeVar("T")

_AT_ONCE: Final = 32
_PAUSE_S: Final = 0.5

#: What one server says of one thing: fact → value.
Facts = Mapping[str, str]


class Key(NamedTuple):
    """One thing that servers are asked about: kind is cluster, broker, topic or kv."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact of which servers say different things.

    Attributes:
        key: What it is about.
        fact: Such as ``addresses of broker-a``.
        values: Server → what it says; None where it knows nothing of it.
    """

    key: Key
    fact: str
    values: Mapping[str, str | None]


@dataclass(slots=True)
class Comparison:
    """What came of it.

    Attributes:
        compared: Kind → how many things were compared.
        differences: In order of kind and name.
    """

    compared: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)


async def compare(
    addrs: Sequence[str],
    credentials: AclCredentials | None,
    tls: ssl.SSLContext | None,
    namespaces: Iterable[str],
    timeout_ms: int,
    patience_s: float,
) -> Comparison:
    """Ask each server for all that it knows, topic by topic.

    Args:
        addrs: ``host:port`` of at least two servers.
        credentials: Signs the requests; None for none.
        tls: How to speak TLS; None for plain.
        namespaces: Of KV entries to compare; the protocol has no list of them.
        timeout_ms: Milliseconds that a server has for each answer.
        patience_s: How long what differs is asked again.

    Raises:
        NameServersUnreachable: One of them did not answer.
        UnexpectedAnswer: One refused, or its answer cannot be read.
    """
    servers = {addr: NameServers([addr], credentials=credentials, tls=tls) for addr in addrs}
    try:
        asking = _Asking(servers, timeout_ms, asyncio.Semaphore(_AT_ONCE))
        keys = await asking.all_keys(tuple(namespaces))
        found = Comparison({kind: sum(k.kind == kind for k in keys) for kind in ("cluster", "broker", "topic", "kv")})
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + patience_s
        differences = await asking.differences(keys)
        while differences and loop.time() < deadline_s:
            await asyncio.sleep(_PAUSE_S)
            differences = await asking.differences({d.key for d in differences})
        found.differences = sorted(differences, key=lambda d: (d.key, d.fact))
        return found
    finally:
        await asyncio.gather(*(server.close() for server in servers.values()))


class _Asking:
    def __init__(self, servers: Mapping[str, NameServers], timeout_ms: int, turn: asyncio.Semaphore) -> None:
        self._servers = servers
        self._timeout_ms = timeout_ms
        self._turn = turn

    async def all_keys(self, namespaces: Sequence[str]) -> set[Key]:
        """Whatever one of the servers knows of."""
        keys = {Key("kv", namespace) for namespace in namespaces}
        for info in await self._each(lambda server: queries.cluster_info(server, self._timeout_ms)):
            keys |= {Key("cluster", name) for name in info.clusters} | {Key("broker", name) for name in info.brokers}
        for topics in await self._each(lambda server: queries.topic_list(server, self._timeout_ms)):
            keys |= {Key("topic", name) for name in topics}
        return keys

    async def differences(self, keys: Iterable[Key]) -> list[Difference]:
        """The facts of these things on which the servers do not agree."""
        wanted = sorted(keys)
        infos: list[Mapping[Key, Facts]] = []
        if any(key.kind in ("cluster", "broker") for key in wanted):
            answers = await self._each(lambda server: queries.cluster_info(server, self._timeout_ms))
            for info in answers:
                clusters = {Key("cluster", name): {"broker names": " ".join(m)} for name, m in info.clusters.items()}
                infos.append(clusters | {Key("broker", name): _broker_facts(b) for name, b in info.brokers.items()})
        found = await asyncio.gather(*(self._facts(key, infos) for key in wanted))
        return [d for key, facts in zip(wanted, found, strict=True) for d in self._compared(key, facts)]

    async def _facts(self, key: Key, infos: Sequence[Mapping[Key, Facts]]) -> Sequence[Facts]:
        if key.kind in ("cluster", "broker"):
            return [info.get(key, {}) for info in infos]
        ask = self._route if key.kind == "topic" else self._kv
        async with self._turn:
            return await self._each(lambda server: ask(server, key.name))

    async def _route(self, server: NameServers, topic: str) -> Facts:
        try:
            return _route_facts(await queries.topic_route(server, topic, self._timeout_ms))
        except TopicNotExist:
            return {}

    async def _kv(self, server: NameServers, namespace: str) -> Facts:
        try:
            return await queries.kv_table(server, namespace, self._timeout_ms)
        except QueryNotFound:
            return {}

    async def _each(self, question: Callable[[NameServers], Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*(question(server) for server in self._servers.values())))

    def _compared(self, key: Key, facts: Sequence[Facts]) -> list[Difference]:
        names = dict.fromkeys(name for one in facts for name in one)
        rows = [Difference(key, n, dict(zip(self._servers, (f.get(n) for f in facts), strict=True))) for n in names]
        return [row for row in rows if len(set(row.values.values())) > 1]


def _route_facts(route: TopicRouteData) -> Facts:
    facts = {
        f"queues of {q.broker_name}": f"{q.read_queue_nums} read, {q.write_queue_nums} write, perm {q.perm}"
        + (f", flag {q.topic_sys_flag}" if q.topic_sys_flag else "")
        for q in route.queue_datas
    }
    for broker in route.broker_datas:
        facts |= {f"{fact} of {broker.broker_name}": value for fact, value in _broker_facts(broker).items()}
    if route.order_topic_conf is not None:
        facts["order"] = route.order_topic_conf
    for mapping in route.queue_mappings or ():
        queues = " ".join(map(str, sorted(mapping.logical_queue_ids)))
        facts[f"logical queues of {mapping.broker_name}"] = f"{queues} of {mapping.total_queues}, epoch {mapping.epoch}"
    return facts


def _broker_facts(broker: BrokerData) -> dict[str, str]:
    facts = {
        "addresses": " ".join(f"{broker_id}={addr}" for broker_id, addr in sorted(broker.broker_addrs.items())),
        "cluster": broker.cluster,
    }
    if broker.zone_name is not None:
        facts["zone"] = broker.zone_name
    if broker.enable_acting_master:
        facts["acting master"] = "enabled"
    return facts
