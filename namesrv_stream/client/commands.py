"""Commands that ask a name server: ``route``, ``topics``, ``clusters``, ``brokers``, and mqadmin's names for them."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import orjson
import typer

from namesrv_stream.client import mqadmin_tables, queries
from namesrv_stream.client.name_servers import NameServers, parse_name_servers
from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import load_settings

T = TypeVar("T")

_TIMEOUT_MS = 5_000  # mqadmin's

NameServersOption = Annotated[
    str,
    typer.Option(
        "--name-servers",
        "-n",
        envvar="NAMESRV_ADDR",
        help="Name servers. Default: the configured port on this machine.",
        metavar="'HOST:PORT;…'",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")]
TopicArgument = Annotated[str | None, typer.Argument(help="The topic.", metavar="TOPIC", show_default=False)]
TopicOption = Annotated[
    str | None, typer.Option("--topic", "-t", help="The same, as mqadmin takes it.", metavar="TOPIC")
]
ClusterOption = Annotated[str | None, typer.Option("--cluster", "-c", help="Of this cluster only.", metavar="CLUSTER")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line; mqadmin's names work and are not listed."""
    app.command()(route)
    app.command()(topics)
    app.command()(clusters)
    app.command()(brokers)
    app.command("topicRoute", hidden=True)(topic_route)
    app.command("topicList", hidden=True)(topics)
    app.command("clusterList", hidden=True)(clusters)


def route(
    topic: TopicArgument = None,
    topic_option: TopicOption = None,
    name_servers: NameServersOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show which brokers serve a topic."""
    wanted = topic or topic_option
    if not wanted:
        raise ConfigError("command line", "TOPIC", "is missing")
    found = _ask(name_servers, lambda servers: queries.topic_route(servers, wanted, _TIMEOUT_MS))
    _print(_json(dict(found.raw)) if as_json else mqadmin_tables.topic_route(found))


def topic_route(
    topic: TopicArgument = None,
    topic_option: TopicOption = None,
    name_servers: NameServersOption = "",
    as_list: Annotated[bool, typer.Option("--list", "-l", help="A table instead of JSON.")] = False,
) -> None:
    """Show which brokers serve a topic, as `mqadmin topicRoute` does: JSON unless asked for a table."""
    route(topic, topic_option, name_servers, as_json=not as_list)


def topics(name_servers: NameServersOption = "", cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """List all topics, or those of one cluster."""

    async def ask(servers: NameServers) -> tuple[str, ...]:
        if cluster is None:
            return await queries.topic_list(servers, _TIMEOUT_MS)
        return await queries.topics_of_cluster(servers, cluster, _TIMEOUT_MS)

    names = _ask(name_servers, ask)
    _print(_json(list(names)) if as_json else mqadmin_tables.topic_list(names))


def clusters(name_servers: NameServersOption = "", cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """List all clusters with their broker processes."""
    info = _ask(name_servers, lambda servers: queries.cluster_info(servers, _TIMEOUT_MS))
    if cluster is not None:
        info = info.of_cluster(cluster)
    _print(_json(dict(info.raw)) if as_json else mqadmin_tables.cluster_list(info))


def brokers(name_servers: NameServersOption = "", cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """List all broker names, with their master and how many slaves they have."""
    info = _ask(name_servers, lambda servers: queries.cluster_info(servers, _TIMEOUT_MS))
    if cluster is not None:
        info = info.of_cluster(cluster)
    _print(_json(info.raw.get("brokerAddrTable") or {}) if as_json else mqadmin_tables.broker_list(info))


def default_name_servers() -> str:
    """The server of the configuration, on this machine."""
    return f"127.0.0.1:{load_settings().settings.remoting.listen_port or 9876}"


def _ask(name_servers: str, question: Callable[[NameServers], Awaitable[T]]) -> T:
    addrs = parse_name_servers(name_servers or default_name_servers())

    async def ask() -> T:
        servers = NameServers(addrs)
        try:
            return await question(servers)
        finally:
            await servers.close()

    return asyncio.run(ask())


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode() + "\n"


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
