"""Answers as text, in the columns and widths of RocketMQ's ``mqadmin``, as far as a name server knows them.

Source: rocketmq 5.3.3, ClusterListSubCommand, TopicRouteSubCommand.
"""

from collections.abc import Iterable

from namesrv_stream.client.route import ClusterInfo, TopicRouteData
from namesrv_stream.logs import safe

_CLUSTER_LIST = "{:<22}  {:<22}  {:<4}  {}"
_BROKER_LIST = "{:<22}  {:<22}  {:<22}  {:<6}  {:<12}  {}"
_ROUTE = "{:<45} {:<32} {:<50} {:<10} {:<11} {}"


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


def broker_list(info: ClusterInfo) -> str:
    """One line a broker name: its master, how many slaves, and its modes."""
    rows = []
    for broker in sorted(info.brokers.values(), key=lambda broker: (broker.cluster, broker.broker_name)):
        slaves = len(broker.broker_addrs) - (broker.master_addr is not None)
        acting = "yes" if broker.enable_acting_master else "no"
        master = broker.master_addr or "(none)"
        rows.append((broker.cluster, broker.broker_name, master, str(slaves), acting, broker.zone_name or ""))
    head = ("#Cluster Name", "#Broker Name", "#Master", "#Slaves", "#ActingMaster", "#Zone")
    return _table(_BROKER_LIST, [head, *rows])


def topic_route(route: TopicRouteData) -> str:
    """One line a broker name, and the queues of all of them, as ``mqadmin topicRoute -l``."""
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    rows = []
    reads = writes = 0
    for broker in route.broker_datas:
        queue = queues.get(broker.broker_name)
        if queue is None:
            continue
        reads += queue.read_queue_nums
        writes += queue.write_queue_nums
        addrs = "; ".join(f"{broker_id}:{addr}" for broker_id, addr in broker.broker_addrs.items())
        counts = (str(queue.read_queue_nums), str(queue.write_queue_nums), str(queue.perm))
        rows.append((broker.cluster, broker.broker_name, addrs, *counts))
    head = ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    rule = "-" * 158
    body = _table(_ROUTE, [head, *rows])
    total = _table(_ROUTE, [("Total:", str(len(rows)), "", str(reads), str(writes), "")])
    return f"{body}{rule}\n{total}"


def topic_list(topics: Iterable[str]) -> str:
    """One topic a line, as ``mqadmin topicList``."""
    return "".join(f"{safe(topic)}\n" for topic in topics)


def _table(line: str, rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(line.format(*map(safe, row)).rstrip() + "\n" for row in rows)
