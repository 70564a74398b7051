"""``compare`` checks whether name servers give the same answers, over remoting, which Java's NameServer speaks as well.

A broker registers at every name server separately, so their answers differ for some milliseconds after a registration.
Therefore differences are queried again until they have had time to disappear.
"""

import asyncio
import shlex
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from namesrv_stream.client import queries
from namesrv_stream.client.commands.query_options import TIMEOUT_MS, Target, emit, name_server_command
from namesrv_stream.client.name_servers import NameServers, is_address_server, parse_name_servers
from namesrv_stream.client.route import BrokerData, TopicRouteData
from namesrv_stream.errors import ConfigError, QueryNotFound, TopicNotExist
from namesrv_stream.logs import safe
from namesrv_stream.remoting.command import AclCredentials
from namesrv_stream.settings.installation import duration_option
from namesrv_stream.text_table import JsonOption, json_text

T = TypeVar("T")

_AT_ONCE: Final = 32
_PAUSE_S: Final = 0.5

#: The answer of one server about one key: fact → value.
Properties = Mapping[str, str]
_ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
_NOUNS = {"cluster": "cluster", "broker": "broker", "topic": "topic", "kv": "KV namespace"}


class Key(NamedTuple):
    """The subject of a query; ``kind`` is cluster, broker, topic or kv."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs between servers.

    Attributes:
        key: Its subject.
        property: Such as ``addresses of broker-a``.
        values: Server → value; None if the server does not have the subject.
    """

    key: Key
    property: str
    values: Mapping[str, str | None]


@dataclass(slots=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        compared: Kind → number of compared subjects.
        differences: Sorted by kind and name.
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
    """Compare what the servers answer about all their clusters, brokers, topics and KV entries.

    Args:
        addrs: ``host:port`` of at least two servers.
        credentials: Credentials that sign the requests; None for unsigned requests.
        namespaces: Namespaces of KV entries to compare; the protocol has no list of them.
        timeout_ms: Time limit of every request, in milliseconds.
        patience_s: Seconds for which differences are queried again.

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
        found.differences = sorted(differences, key=lambda d: (d.key, d.property))
        return found
    finally:
        await asyncio.gather(*(server.close() for server in servers.values()))


class _Asking:
    def __init__(self, servers: Mapping[str, NameServers], timeout_ms: int, turn: asyncio.Semaphore) -> None:
        self._servers = servers
        self._timeout_ms = timeout_ms
        self._turn = turn

    async def all_keys(self, namespaces: Sequence[str]) -> set[Key]:
        """Return all subjects that at least one server has."""
        keys = {Key("kv", namespace) for namespace in namespaces}
        for info in await self._each(lambda server: queries.cluster_info(server, self._timeout_ms)):
            keys |= {Key("cluster", name) for name in info.clusters} | {Key("broker", name) for name in info.brokers}
        for topics in await self._each(lambda server: queries.topic_list(server, self._timeout_ms)):
            keys |= {Key("topic", name) for name in topics}
        return keys

    async def differences(self, keys: Iterable[Key]) -> list[Difference]:
        """Return the facts of these subjects that differ."""
        wanted = sorted(keys)
        infos: list[Mapping[Key, Properties]] = []
        if any(key.kind in ("cluster", "broker") for key in wanted):
            answers = await self._each(lambda server: queries.cluster_info(server, self._timeout_ms))
            for info in answers:
                clusters = {Key("cluster", name): {"broker names": shlex.join(m)} for name, m in info.clusters.items()}
                infos.append(
                    clusters | {Key("broker", name): _broker_properties(b) for name, b in info.brokers.items()}
                )
        found = await asyncio.gather(*(self._properties(key, infos) for key in wanted))
        return [d for key, properties in zip(wanted, found, strict=True) for d in self._compared(key, properties)]

    async def _properties(self, key: Key, infos: Sequence[Mapping[Key, Properties]]) -> Sequence[Properties]:
        if key.kind in ("cluster", "broker"):
            return [info.get(key, {}) for info in infos]
        ask = self._route if key.kind == "topic" else self._kv
        async with self._turn:
            return await self._each(lambda server: ask(server, key.name))

    async def _route(self, server: NameServers, topic: str) -> Properties:
        try:
            return _route_properties(await queries.topic_route(server, topic, self._timeout_ms))
        except TopicNotExist:
            return {}

    async def _kv(self, server: NameServers, namespace: str) -> Properties:
        try:
            return await queries.kv_table(server, namespace, self._timeout_ms)
        except QueryNotFound:
            return {}

    async def _each(self, question: Callable[[NameServers], Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*(question(server) for server in self._servers.values())))

    def _compared(self, key: Key, properties: Sequence[Properties]) -> list[Difference]:
        names = dict.fromkeys(name for one in properties for name in one)
        rows = [
            Difference(key, n, dict(zip(self._servers, (f.get(n) for f in properties), strict=True))) for n in names
        ]
        return [row for row in rows if len(set(row.values.values())) > 1]


def _route_properties(route: TopicRouteData) -> Properties:
    properties = {
        f"queues of {q.broker_name}": f"{q.read_queue_nums} read, {q.write_queue_nums} write, perm {q.perm}"
        + (f", flag {q.topic_sys_flag}" if q.topic_sys_flag else "")
        for q in route.queue_datas
    }
    for broker in route.broker_datas:
        properties |= {
            f"{property} of {broker.broker_name}": value for property, value in _broker_properties(broker).items()
        }
    if route.order_topic_conf is not None:
        properties["order"] = route.order_topic_conf
    for mapping in route.queue_mappings or ():
        queues = " ".join(map(str, sorted(mapping.logical_queue_ids)))
        properties[f"logical queues of {mapping.broker_name}"] = (
            f"{queues} of {mapping.total_queues}, epoch {mapping.epoch}"
        )
    return properties


def _broker_properties(broker: BrokerData) -> dict[str, str]:
    properties = {
        "addresses": shlex.join(f"{broker_id}={addr}" for broker_id, addr in sorted(broker.broker_addrs.items())),
        "cluster": broker.cluster,
    }
    if broker.zone_name is not None:
        properties["zone"] = broker.zone_name
    if broker.enable_acting_master:
        properties["acting master"] = "enabled"
    return properties


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("compare")(name_server_command(compare_servers))


def compare_servers(
    target: Target,
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace", help="A namespace of KV entries to compare, in addition to RocketMQ's own.", metavar="NAME"
        ),
    ] = None,
    patience: Annotated[
        int,
        duration_option(
            "--patience", help="How long to wait for differences to disappear.", bare="s", most_ms=3_600_000
        ),
    ] = "5s",  # type: ignore[assignment] # typer parses the default too
    as_json: JsonOption = False,
) -> None:
    """Compare the content of name servers of any make.

    It compares clusters, brokers, routes and KV entries of name servers of this product and of RocketMQ.
    """

    async def ask(servers: NameServers) -> Comparison:
        return await compare(addrs, target.credentials, target.tls, names, TIMEOUT_MS, patience / 1000)

    names = dict.fromkeys([_ORDER_NAMESPACE, *(namespaces or ())])
    addrs = _addrs(target)
    found = target.ask(ask)
    if as_json:
        rows = [
            {"kind": d.key.kind, "name": d.key.name, "fact": d.property, "values": dict(d.values)}
            for d in found.differences
        ]
        emit(json_text({"compared": found.compared, "differences": rows}))
    else:
        _print(addrs, found)
    if found.differences:
        raise typer.Exit(1)


def _addrs(target: Target) -> tuple[str, ...]:
    if is_address_server(target.name_servers):
        raise ConfigError("command line", "-n", "expected the name servers themselves, host:port;host:port")
    addrs = parse_name_servers(target.name_servers)
    if len(addrs) < 2:
        raise ConfigError("command line", "-n", "expected at least two name servers, host:port;host:port")
    return addrs


def _print(addrs: tuple[str, ...], found: Comparison) -> None:
    what = ", ".join(_count(n, _NOUNS[kind]) for kind, n in found.compared.items())
    if not found.differences:
        emit(f"equal: {what}\n")
        return
    table = Table("what", "name", "fact", *map(escape, addrs), box=None, pad_edge=False)
    for difference in found.differences:
        values = [difference.values[addr] for addr in addrs]
        cells = [
            difference.key.kind,
            difference.key.name,
            difference.property,
            *("-" if v is None else v for v in values),
        ]
        table.add_row(*(escape(safe(cell)) for cell in cells))
    console = Console(highlight=False, width=10_000)
    with console.capture() as capture:
        console.print(table, crop=False)
    emit("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
    emit(f"\n{_count(len(found.differences), 'difference')} in {what}\n")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
