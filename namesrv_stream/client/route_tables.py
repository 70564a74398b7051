"""Clusters, brokers and routes as tables that fit the terminal; mqadmin's own are in ``mqadmin_tables``."""

from typing import Final

from rich.table import Table
from rich.text import Text

from namesrv_stream.client.mqadmin_tables import printable
from namesrv_stream.client.route import ClusterInfo, TopicRouteData
from namesrv_stream.text_table import TextColumn, print_lines, print_table, table_lines, terminal_width

_NONE: Final = "-"
_CLUSTER: Final = TextColumn("CLUSTER", is_text=True)
#: Never shortened: names of brokers differ at their ends.
_BROKER: Final = TextColumn("BROKER")


def print_clusters(info: ClusterInfo, *, wide: bool = False) -> None:
    """One line for every broker process."""
    rows = [
        (printable(cluster), printable(name), str(broker_id), printable(addr))
        for cluster, names in info.clusters.items()
        for name in names
        if name in info.brokers
        for broker_id, addr in info.brokers[name].broker_addrs.items()
    ]
    print_table([_CLUSTER, _BROKER, TextColumn("ID"), TextColumn("ADDRESS")], rows, wide=wide)


def print_brokers(info: ClusterInfo, *, wide: bool = False) -> None:
    """One line for every broker name: its master, the number of its slaves, whether a slave may act as master."""
    rows = []
    for broker in sorted(info.brokers.values(), key=lambda broker: (broker.cluster, broker.broker_name)):
        slaves = len(broker.broker_addrs) - (broker.master_addr is not None)
        acting = "yes" if broker.enable_acting_master else "no"
        names = (broker.cluster, broker.broker_name, broker.master_addr or _NONE)
        rows.append((*map(printable, names), str(slaves), acting, printable(broker.zone_name or _NONE)))
    columns = [
        *(_CLUSTER, _BROKER, TextColumn("MASTER"), TextColumn("SLAVES")),
        *(TextColumn("ACTING-MASTER", is_optional=True), TextColumn("ZONE", is_optional=True)),
    ]
    print_table(columns, rows, wide=wide)


def print_route(route: TopicRouteData, *, wide: bool = False) -> None:
    """One line for every broker name: its queues of the topic, and its addresses by brokerId."""
    for line in route_lines(route, terminal_width(wide=wide)):
        print_lines(line)


def route_lines(route: TopicRouteData, width: int | None) -> list[Table | Text]:
    """The same for a width; None for no limit."""
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    rows = []
    for broker in route.broker_datas:
        queue = queues.get(broker.broker_name)
        addrs = " ".join(f"{broker_id}={addr}" for broker_id, addr in broker.broker_addrs.items())
        counts = (_NONE,) * 3 if queue is None else (queue.read_queue_nums, queue.write_queue_nums, queue.perm)
        rows.append((printable(broker.cluster), printable(broker.broker_name), *map(str, counts), printable(addrs)))
    columns = [
        *(_CLUSTER, _BROKER, TextColumn("READ"), TextColumn("WRITE"), TextColumn("PERM")),
        TextColumn("ADDRESSES", is_text=True),
    ]
    return table_lines(columns, rows, width)
