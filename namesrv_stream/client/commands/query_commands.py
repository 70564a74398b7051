"""Commands that query a name server: ``topics``, ``clusters``, ``brokers``, and ``route`` without a past time."""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from namesrv_stream.client import queries
from namesrv_stream.client.commands import answer_text
from namesrv_stream.client.commands.answer_text import HeldBroker, held_in, held_json, held_lines, held_on_route
from namesrv_stream.client.commands.query_options import TIMEOUT_MS, Target, emit, name_server_command
from namesrv_stream.client.name_servers import NameServers
from namesrv_stream.client.route import ClusterInfo, TopicRouteData
from namesrv_stream.route.topic_route import is_system_topic
from namesrv_stream.text_table import JsonOption, WideOption, json_text

ClusterOption = Annotated[str | None, typer.Option("--cluster", help="Only this cluster.", metavar="CLUSTER")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (topics, clusters, brokers):
        app.command()(name_server_command(command))


def show_route(
    target: Target,
    topic: str,
    *,
    as_json: bool,
    print_table: Callable[[TopicRouteData], None],
) -> None:
    """Print which brokers serve a topic now, and why some are protected."""

    async def ask(servers: NameServers) -> tuple[TopicRouteData, list[HeldBroker]]:
        found = await queries.topic_route(servers, topic, TIMEOUT_MS)
        return found, list(held_on_route(found, await queries.held_brokers(servers, TIMEOUT_MS)))

    found, held = target.ask(ask)
    if as_json:
        emit(json_text(dict(found.raw) | ({"heldBrokers": held_json(held)} if held else {})))
    else:
        print_table(found)
        emit(held_lines(held))


def topics(
    target: Target,
    cluster: ClusterOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Include the topics that are RocketMQ's own.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the users' topics.

    Without --all, RocketMQ's own topics are left out: system topics, the names of clusters and brokers, and consumer
    groups' topics for retries and dead letters.
    """

    async def ask(servers: NameServers) -> tuple[Sequence[str], int]:
        names = await all_topics(servers, cluster)
        if everything:
            return names, 0
        info = await queries.cluster_info(servers, TIMEOUT_MS)
        users = [name for name in names if not is_system_topic(name, info.clusters, info.brokers)]
        return users, len(names) - len(users)

    names, hidden = target.ask(ask)
    emit(json_text(list(names)) if as_json else answer_text.topic_list(names))
    if hidden and not as_json and (not names or sys.stdout.isatty()):
        print(f"{hidden} topics of RocketMQ itself are not shown; --all shows them", file=sys.stderr)


async def all_topics(servers: NameServers, cluster: str | None = None) -> Sequence[str]:
    """Return the names of all topics, or of those of a cluster."""
    if cluster is None:
        return await queries.topic_list(servers, TIMEOUT_MS)
    return await queries.topics_of_cluster(servers, cluster, TIMEOUT_MS)


def clusters(
    target: Target, cluster: ClusterOption = None, wide: WideOption = False, as_json: JsonOption = False
) -> None:
    """List the clusters with their broker processes."""
    info, held = cluster_info(target, cluster)
    if as_json:
        # Java's answer; the protected brokers are added only if there are some.
        emit(json_text(dict(info.raw) | ({"heldBrokers": held_json(held)} if held else {})))
    else:
        answer_text.print_clusters(info, wide=wide)
        emit(held_lines(held))


def brokers(
    target: Target, cluster: ClusterOption = None, wide: WideOption = False, as_json: JsonOption = False
) -> None:
    """List the broker names with their masters."""
    info, held = cluster_info(target, cluster)
    if as_json:
        table = {name: dict(fields) for name, fields in (info.raw.get("brokerAddrTable") or {}).items()}
        for broker in held_json(held):
            table[broker["broker_name"]].setdefault("held", []).append(broker)
        emit(json_text(table))
    else:
        answer_text.print_brokers(info, wide=wide)
        emit(held_lines(held))


def cluster_info(target: Target, cluster: str | None) -> tuple[ClusterInfo, list[HeldBroker]]:
    """Return all clusters, or only the named one, and the protected brokers in them."""
    info, holds = target.ask(lambda servers: queries.brokers_and_holds(servers, TIMEOUT_MS))
    if cluster is not None:
        info = info.of_cluster(cluster)
    return info, list(held_in(info, holds))
