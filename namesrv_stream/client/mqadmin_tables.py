"""Answers as text, in the columns and widths of RocketMQ's ``mqadmin``, as far as a name server knows them.

Source: rocketmq 5.3.3, ClusterListSubCommand, TopicRouteSubCommand, TopicListSubCommand, WipeWritePermSubCommand,
AddWritePermSubCommand, GetNamesrvConfigCommand.
"""

from collections.abc import Iterable, Mapping, Sequence

from namesrv_stream.client.admin import Imported
from namesrv_stream.client.name_servers import Outcome
from namesrv_stream.client.route import ClusterInfo, TopicRouteData

_CLUSTER_LIST = "{:<22}  {:<22}  {:<4}  {}"
_ROUTE = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}\n"
_TOPIC_HEAD = "{:<20}  {:<48}  {:<48}\n"
_TOPIC = "{:<20.20}  {:<64.64}  {:<64}\n"
_KV = "{:<50}  {}"


def cluster_list(info: ClusterInfo) -> str:
    """One line a broker process, as ``mqadmin clusterList`` without what only the broker itself could say."""
    rows = [
        (cluster, name, str(broker_id), addr)
        for cluster, names in info.clusters.items()
        for name in names
        if name in info.brokers
        for broker_id, addr in info.brokers[name].broker_addrs.items()
    ]
    return _table(_CLUSTER_LIST, [("#Cluster Name", "#Broker Name", "#BID", "#Addr"), *rows])


def topic_route(route: TopicRouteData) -> str:
    """One line a broker name, and the queues of all of them: what ``mqadmin topicRoute -l`` prints."""
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    lines = [_ROUTE.format("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")]
    reads = writes = 0
    for broker in route.broker_datas:
        queue = queues.get(broker.broker_name)
        if queue is None:  # mqadmin ends with a NullPointerException
            continue
        reads += queue.read_queue_nums
        writes += queue.write_queue_nums
        addrs = "{" + ", ".join(f"{broker_id}={addr}" for broker_id, addr in broker.broker_addrs.items()) + "}"
        names = (printable(broker.cluster), printable(broker.broker_name), printable(addrs))
        lines.append(_ROUTE.format(*names, queue.read_queue_nums, queue.write_queue_nums, queue.perm))
    total = _ROUTE.format("Total:", len(queues), "", reads, writes, "")
    return f"{''.join(lines)}{'-' * 158}\n{total}"


def topic_list(topics: Iterable[str]) -> str:
    """One topic a line, as ``mqadmin topicList``."""
    return "".join(f"{printable(topic)}\n" for topic in topics)


def topic_cluster_list(clusters_of: Iterable[tuple[str, str]]) -> str:
    """Cluster and topic, as ``mqadmin topicList -c``; the consumer groups, which brokers know, are left empty."""
    rows = (_TOPIC.format(printable(cluster), printable(topic), "") for cluster, topic in clusters_of)
    return _TOPIC_HEAD.format("#Cluster Name", "#Topic", "#Consumer Group") + "".join(rows)


def kv_table(table: Mapping[str, str]) -> str:
    """One line an entry."""
    return _table(_KV, [("#Key", "#Value"), *table.items()])


def write_perm(verb: str, broker: str, outcomes: Sequence[Outcome[int]]) -> str:
    """One line a name server, as ``mqadmin wipeWritePerm`` and ``addWritePerm``.

    Args:
        verb: ``wipe`` or ``add``.
        broker: The broker's name.
        outcomes: How many of its topics each server has changed.
    """
    return "".join(
        f"{verb} write perm of broker[{printable(broker)}] in name server[{outcome.addr}] "
        + ("Failed\n" if outcome.value is None else f"OK, {outcome.value}\n")
        for outcome in outcomes
    )


def name_server_config(configs: Mapping[str, Mapping[str, str]]) -> str:
    """A paragraph a name server, as ``mqadmin getNamesrvConfig``, by key in order."""
    return "".join(
        f"============{addr}============\n"
        + "".join(f"{printable(key):<50}=  {printable(value)}\n" for key, value in sorted(config.items()))
        for addr, config in configs.items()
    )


def imported(outcomes: Sequence[Outcome[Imported]]) -> str:
    """One line for each name server that took an import."""
    return "".join(
        f"{outcome.addr}: {value.added} added, {value.changed} changed, {value.unchanged} unchanged\n"
        for outcome in outcomes
        if (value := outcome.value) is not None
    )


def printable(text: str) -> str:
    """``text`` from a peer, control characters escaped so that they do nothing to the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _table(line: str, rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(line.format(*map(printable, row)).rstrip() + "\n" for row in rows)
