"""Clusters, brokers and routes as tables that are as wide as their content; mqadmin's own are in ``mqadmin_tables``."""

from collections.abc import Iterable, Sequence
from typing import Final

from namesrv_stream.client.mqadmin_tables import printable
from namesrv_stream.client.route import ClusterInfo, TopicRouteData

_NONE: Final = "-"


def clusters_table(info: ClusterInfo) -> str:
    """One line for every broker process."""
    rows = [
        (cluster, name, str(broker_id), addr)
        for cluster, names in info.clusters.items()
        for name in names
        if name in info.brokers
        for broker_id, addr in info.brokers[name].broker_addrs.items()
    ]
    return plain_table(("CLUSTER", "BROKER", "ID", "ADDRESS"), rows)


def brokers_table(info: ClusterInfo) -> str:
    """One line for every broker name: its master, the number of its slaves, whether a slave may act as master."""
    rows = []
    for broker in sorted(info.brokers.values(), key=lambda broker: (broker.cluster, broker.broker_name)):
        slaves = len(broker.broker_addrs) - (broker.master_addr is not None)
        acting = "yes" if broker.enable_acting_master else "no"
        master = broker.master_addr or _NONE
        rows.append((broker.cluster, broker.broker_name, master, str(slaves), acting, broker.zone_name or _NONE))
    return plain_table(("CLUSTER", "BROKER", "MASTER", "SLAVES", "ACTING-MASTER", "ZONE"), rows)


def route_table(route: TopicRouteData) -> str:
    """One line for every broker name: its addresses by brokerId, and its queues of the topic."""
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    rows = []
    for broker in route.broker_datas:
        queue = queues.get(broker.broker_name)
        addrs = " ".join(f"{broker_id}={addr}" for broker_id, addr in broker.broker_addrs.items())
        counts = (_NONE,) * 3 if queue is None else (queue.read_queue_nums, queue.write_queue_nums, queue.perm)
        rows.append((broker.cluster, broker.broker_name, *map(str, counts), addrs))
    return plain_table(("CLUSTER", "BROKER", "READ", "WRITE", "PERM", "ADDRESSES"), rows)


def plain_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lines of columns two spaces apart, control characters escaped."""
    lines = [tuple(head), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines)
