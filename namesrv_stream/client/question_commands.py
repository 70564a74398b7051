"""Commands that ask a name server: ``topics``, ``clusters``, ``brokers``, and what ``route`` prints of now."""

from typing import Annotated

import typer

from namesrv_stream.client import mqadmin_tables, queries
from namesrv_stream.client.command_line import TIMEOUT_MS, JsonOption, Target, asks, emit, json_text
from namesrv_stream.client.held_text import HeldBroker, held_in, held_json, held_lines, held_on_route
from namesrv_stream.client.name_servers import NameServers
from namesrv_stream.client.route import ClusterInfo, TopicRouteData

ClusterOption = Annotated[str | None, typer.Option("--cluster", help="Only this cluster.", metavar="CLUSTER")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (topics, clusters, brokers):
        app.command()(asks(command))


def show_route(target: Target, topic: str, *, as_json: bool) -> None:
    """Print which brokers serve a topic now, and why some are held."""

    async def ask(servers: NameServers) -> tuple[TopicRouteData, list[HeldBroker]]:
        found = await queries.topic_route(servers, topic, TIMEOUT_MS)
        return found, list(held_on_route(found, await queries.held_brokers(servers, TIMEOUT_MS)))

    found, held = target.ask(ask)
    if as_json:
        emit(json_text(dict(found.raw) | ({"heldBrokers": held_json(held)} if held else {})))
    else:
        emit(mqadmin_tables.topic_route(found) + held_lines(held))


def topics(target: Target, cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """List all topics, or those of one cluster."""

    async def ask(servers: NameServers) -> tuple[str, ...]:
        if cluster is None:
            return await queries.topic_list(servers, TIMEOUT_MS)
        return await queries.topics_of_cluster(servers, cluster, TIMEOUT_MS)

    names = target.ask(ask)
    emit(json_text(list(names)) if as_json else mqadmin_tables.topic_list(names))


def clusters(target: Target, cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """List all clusters with their broker processes, and why some are held."""
    info, held = _cluster_info(target, cluster)
    if as_json:
        # Java's answer, and more only where there is more to say.
        emit(json_text(dict(info.raw) | ({"heldBrokers": held_json(held)} if held else {})))
    else:
        emit(mqadmin_tables.cluster_list(info) + held_lines(held))


def brokers(target: Target, cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """List all broker names, with their master and how many slaves they have, and why some are held."""
    info, held = _cluster_info(target, cluster)
    if as_json:
        table = {name: dict(fields) for name, fields in (info.raw.get("brokerAddrTable") or {}).items()}
        for broker in held_json(held):
            table[broker["broker_name"]].setdefault("held", []).append(broker)
        emit(json_text(table))
    else:
        emit(mqadmin_tables.broker_list(info) + held_lines(held))


def _cluster_info(target: Target, cluster: str | None) -> tuple[ClusterInfo, list[HeldBroker]]:
    info, holds = target.ask(lambda servers: queries.brokers_and_holds(servers, TIMEOUT_MS))
    if cluster is not None:
        info = info.of_cluster(cluster)
    return info, list(held_in(info, holds))
