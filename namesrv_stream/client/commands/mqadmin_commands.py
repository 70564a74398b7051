"""mqadmin's own names and flags for namesrv-stream's commands; ``namesrv-stream mqadmin --help`` lists them.

Source: rocketmq 5.3.3, package ``org.apache.rocketmq.tools.command``.
"""

import asyncio
from typing import Annotated

import typer

from namesrv_stream.client import admin, queries
from namesrv_stream.client.commands import admin_commands, answer_text, query_commands
from namesrv_stream.client.commands.answer_text import held_lines, printable
from namesrv_stream.client.commands.query_options import TIMEOUT_MS, Target, emit, name_server_command
from namesrv_stream.client.name_servers import NameServers
from namesrv_stream.errors import ConfigError, TopicNotExist
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG
from namesrv_stream.text_table import JsonOption, json_text

_ROUTES_AT_ONCE = 64

TopicOption = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", show_default=False)]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-s", metavar="NAMESPACE", show_default=False)]
KeyOption = Annotated[str, typer.Option("--key", "-k", metavar="KEY", show_default=False)]
ValueOption = Annotated[str, typer.Option("--value", "-v", metavar="VALUE", show_default=False)]
BrokerOption = Annotated[str, typer.Option("--brokerName", "-b", metavar="BROKER", show_default=False)]


def register(app: typer.Typer, mqadmin_app: typer.Typer) -> None:
    """Add the names to ``app``, where help does not list them, and to ``mqadmin_app``, where it does."""
    for name, command in (
        ("topicList", topic_list),
        ("topicClusterList", topic_cluster_list),
        ("clusterList", cluster_list),
        ("updateKvConfig", update_kv_config),
        ("deleteKvConfig", delete_kv_config),
        ("updateOrderConf", update_order_conf),
        ("wipeWritePerm", wipe_write_perm),
        ("addWritePerm", add_write_perm),
        ("getNamesrvConfig", get_namesrv_config),
        ("updateNamesrvConfig", update_namesrv_config),
    ):
        app.command(name, hidden=True)(name_server_command(command, is_of_mqadmin=True))
        mqadmin_app.command(name)(name_server_command(command, is_of_mqadmin=True))


def topic_list(
    target: Target,
    has_clusters: Annotated[
        bool, typer.Option("--clusterModel", "-c", help="Show the cluster of every topic.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List all topics."""
    if not has_clusters:
        names = target.ask(query_commands.all_topics)
        emit(json_text(list(names)) if as_json else answer_text.topic_list(names))
        return
    rows = target.ask(_topics_with_clusters)
    emit(json_text({topic: cluster for cluster, topic in rows}) if as_json else answer_text.topic_cluster_list(rows))


def cluster_list(
    target: Target,
    cluster: Annotated[str | None, typer.Option("--clusterName", "-c", metavar="CLUSTER")] = None,
    as_json: JsonOption = False,
) -> None:
    """List all clusters with their broker processes."""
    if as_json:
        return query_commands.clusters(target, cluster, as_json=True)
    info, held = query_commands.cluster_info(target, cluster)
    emit(answer_text.cluster_list(info) + held_lines(held))


def topic_cluster_list(target: Target, topic: TopicOption, as_json: JsonOption = False) -> None:
    """List the clusters that serve a topic."""
    # Differs from RocketMQ: all clusters, not only that of the first broker.
    found = target.ask(lambda servers: queries.topic_route(servers, topic, TIMEOUT_MS))
    names = sorted({broker.cluster for broker in found.broker_datas})
    emit(json_text(names) if as_json else answer_text.topic_list(names))


def update_kv_config(
    target: Target, namespace: NamespaceOption, key: KeyOption, value: ValueOption, as_json: JsonOption = False
) -> None:
    """Set one entry of the key-value table."""
    if as_json:
        return admin_commands.kv_put(target, namespace.strip(), key.strip(), value.strip(), as_json)
    target.ask(lambda servers: admin.put_kv(servers, namespace.strip(), key.strip(), value.strip(), TIMEOUT_MS))
    emit("create or update kv config to namespace success.\n")


def delete_kv_config(target: Target, namespace: NamespaceOption, key: KeyOption, as_json: JsonOption = False) -> None:
    """Remove one entry of the key-value table, if it exists."""
    addrs = target.ask(lambda servers: admin.delete_kv(servers, namespace.strip(), key.strip(), TIMEOUT_MS))
    if as_json:
        return admin_commands.report(f"deleted {key}", addrs, as_json)
    emit("delete kv config from namespace success.\n")


def update_order_conf(
    target: Target,
    topic: TopicOption,
    method: Annotated[str, typer.Option("--method", "-m", metavar="put|get|delete", show_default=False)],
    order_conf: Annotated[str, typer.Option("--orderConf", "-v", metavar="BROKER:COUNT;…")] = "",
    as_json: JsonOption = False,
) -> None:
    """Read or change the queues of an ordered topic."""
    topic, order_conf, namespace = topic.strip(), order_conf.strip(), ORDER_TOPIC_CONFIG
    if method == "get":
        conf = target.ask(lambda servers: queries.kv_value(servers, namespace, topic, TIMEOUT_MS))
        outcome = f"get orderConf success. topic=[{topic}], orderConf=[{conf}]"
    elif method == "put":
        if not order_conf:
            raise ConfigError("command line", "-v", "is missing: expected broker:count, several separated by ;")
        target.ask(lambda servers: admin.put_kv(servers, namespace, topic, order_conf, TIMEOUT_MS))
        conf, outcome = order_conf, f"update orderConf success. topic=[{topic}], orderConf=[{order_conf}]"
    elif method == "delete":
        target.ask(lambda servers: admin.delete_kv(servers, namespace, topic, TIMEOUT_MS))
        conf, outcome = "", f"delete orderConf success. topic=[{topic}]"
    else:
        raise ConfigError("command line", "-m", f"is {method!r}: expected put, get or delete")
    emit(json_text({"topic": topic, "orderConf": conf}) if as_json else f"{printable(outcome)}\n")


def wipe_write_perm(target: Target, broker: BrokerOption, as_json: JsonOption = False) -> None:
    """Remove a broker's write permission."""
    admin_commands.change_write_perm("wipe", target, broker.strip(), as_json, is_of_mqadmin=True)


def add_write_perm(target: Target, broker: BrokerOption, as_json: JsonOption = False) -> None:
    """Restore a broker's write permission."""
    admin_commands.change_write_perm("add", target, broker.strip(), as_json, is_of_mqadmin=True)


def get_namesrv_config(target: Target, as_json: JsonOption = False) -> None:
    """Show the configuration of every name server."""
    admin_commands.config_get(target, None, as_json)


def update_namesrv_config(target: Target, key: KeyOption, value: ValueOption, as_json: JsonOption = False) -> None:
    """Change one setting at run time."""
    key, value = key.strip(), value.strip()
    if as_json:
        return admin_commands.config_set(target, key, value, as_json)
    addrs = target.ask(lambda servers: admin.update_name_server_config(servers, {key: value}, TIMEOUT_MS))
    emit(f"update name server config success![{', '.join(addrs)}]\n{printable(key)} : {printable(value)}\n")


async def _topics_with_clusters(servers: NameServers) -> list[tuple[str, str]]:
    """Return cluster and name of every topic, without the retry and dead-letter topics, as mqadmin does."""
    names = await queries.topic_list(servers, TIMEOUT_MS)
    turn = asyncio.Semaphore(_ROUTES_AT_ONCE)

    async def cluster_of(topic: str) -> str:
        async with turn:
            try:
                found = await queries.topic_route(servers, topic, TIMEOUT_MS)
            except TopicNotExist:  # deleted since the list was read
                return ""
        return found.broker_datas[0].cluster if found.broker_datas else ""

    wanted = [name for name in names if not name.startswith(("%RETRY%", "%DLQ%"))]
    return list(zip(await asyncio.gather(*map(cluster_of, wanted)), wanted, strict=True))
