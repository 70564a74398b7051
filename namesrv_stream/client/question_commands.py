"""Commands that ask a name server: ``route``, ``topics``, ``clusters``, ``brokers``."""

from typing import Annotated

import typer

from namesrv_stream.client import mqadmin_tables, queries
from namesrv_stream.client.command_line import TIMEOUT_MS, JsonOption, Target, asks, emit, json_text
from namesrv_stream.client.name_servers import NameServers
from namesrv_stream.client.route import ClusterInfo
from namesrv_stream.errors import ConfigError

ClusterOption = Annotated[str | None, typer.Option("--cluster", "-c", help="Of this cluster only.", metavar="CLUSTER")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (route, topics, clusters, brokers):
        app.command()(asks(command))


def route(
    target: Target,
    topic: Annotated[str | None, typer.Argument(help="The topic.", metavar="TOPIC", show_default=False)] = None,
    topic_option: Annotated[
        str | None, typer.Option("--topic", "-t", help="The same, as mqadmin takes it.", metavar="TOPIC")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which brokers serve a topic."""
    wanted = topic or topic_option
    if not wanted:
        raise ConfigError("command line", "TOPIC", "is missing")
    found = target.ask(lambda servers: queries.topic_route(servers, wanted, TIMEOUT_MS))
    emit(json_text(dict(found.raw)) if as_json else mqadmin_tables.topic_route(found))


def topics(target: Target, cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """List all topics, or those of one cluster."""

    async def ask(servers: NameServers) -> tuple[str, ...]:
        if cluster is None:
            return await queries.topic_list(servers, TIMEOUT_MS)
        return await queries.topics_of_cluster(servers, cluster, TIMEOUT_MS)

    names = target.ask(ask)
    emit(json_text(list(names)) if as_json else mqadmin_tables.topic_list(names))


def clusters(target: Target, cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """List all clusters with their broker processes."""
    info = _cluster_info(target, cluster)
    emit(json_text(dict(info.raw)) if as_json else mqadmin_tables.cluster_list(info))


def brokers(target: Target, cluster: ClusterOption = None, as_json: JsonOption = False) -> None:
    """List all broker names, with their master and how many slaves they have."""
    info = _cluster_info(target, cluster)
    emit(json_text(info.raw.get("brokerAddrTable") or {}) if as_json else mqadmin_tables.broker_list(info))


def _cluster_info(target: Target, cluster: str | None) -> ClusterInfo:
    info = target.ask(lambda servers: queries.cluster_info(servers, TIMEOUT_MS))
    return info if cluster is None else info.of_cluster(cluster)
