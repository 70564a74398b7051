"""Formats answers of name servers in mqadmin's columns or as tables that fit the terminal, and lists protected brokers.

Source: rocketmq 5.3.3, ClusterListSubCommand, TopicRouteSubCommand, TopicListSubCommand, WipeWritePermSubCommand,
AddWritePermSubCommand, GetNamesrvConfigCommand.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.table import Table
from rich.text import Text

from namesrv_stream.client.admin import Imported
from namesrv_stream.client.name_servers import Outcome
from namesrv_stream.client.route import BrokerData, ClusterInfo, TopicRouteData
from namesrv_stream.instants import instant
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.model import Hold
from namesrv_stream.route.table import held_key
from namesrv_stream.text_table import TextColumn, print_lines, print_table, table_lines, terminal_width

_CLUSTER_LIST = "{:<22}  {:<22}  {:<4}  {}"
_ROUTE = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}\n"
_TOPIC_HEAD = "{:<20}  {:<48}  {:<48}\n"
_TOPIC = "{:<20.20}  {:<64.64}  {:<64}\n"
_KV = "{:<50}  {}"
_NONE: Final = "-"
_CLUSTER: Final = TextColumn("CLUSTER", is_text=True)
#: Never shortened, because names of brokers differ at their ends.
_BROKER: Final = TextColumn("BROKER")
_WHY: Final = {
    Cause.EXPIRED.value: "was near its timeout",
    Cause.DISCONNECTED.value: "lost its connection",
    Cause.SERVER_SILENT.value: "was known only to a silent name server",
}


def cluster_list(info: ClusterInfo) -> str:
    """Return one line for every broker process: ``mqadmin clusterList`` without the columns that only brokers know."""
    rows = [
        (cluster, name, str(broker_id), addr)
        for cluster, names in info.clusters.items()
        for name in names
        if name in info.brokers
        for broker_id, addr in info.brokers[name].broker_addrs.items()
    ]
    return _table(_CLUSTER_LIST, [("#Cluster Name", "#Broker Name", "#BID", "#Addr"), *rows])


def topic_route(route: TopicRouteData) -> str:
    """Return one line for every broker name, and one with the sums of queues, as ``mqadmin topicRoute -l``."""
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
    """Return one line for every topic, as ``mqadmin topicList`` prints it."""
    return "".join(f"{printable(topic)}\n" for topic in topics)


def topic_cluster_list(clusters_of: Iterable[tuple[str, str]]) -> str:
    """Return one line for every pair of cluster and topic, as ``mqadmin topicList -c``.

    The column of consumer groups, which only brokers know, stays empty.
    """
    rows = (_TOPIC.format(printable(cluster), printable(topic), "") for cluster, topic in clusters_of)
    return _TOPIC_HEAD.format("#Cluster Name", "#Topic", "#Consumer Group") + "".join(rows)


def kv_table(table: Mapping[str, str]) -> str:
    """Return one line for every entry."""
    return _table(_KV, [("#Key", "#Value"), *table.items()])


def write_perm(verb: str, broker: str, outcomes: Sequence[Outcome[int]]) -> str:
    """Return one line for every name server, as ``mqadmin wipeWritePerm`` and ``addWritePerm``.

    Args:
        verb: ``wipe`` or ``add``.
        outcomes: Number of the broker's topics at every server.
    """
    return "".join(
        f"{verb} write perm of broker[{printable(broker)}] in name server[{outcome.addr}] "
        + ("Failed\n" if outcome.value is None else f"OK, {outcome.value}\n")
        for outcome in outcomes
    )


def name_server_config(configs: Mapping[str, Mapping[str, str]]) -> str:
    """Return a paragraph for every name server, as ``mqadmin getNamesrvConfig`` prints it, sorted by key."""
    return "".join(
        f"============{addr}============\n"
        + "".join(f"{printable(key):<50}=  {printable(value)}\n" for key, value in sorted(config.items()))
        for addr, config in configs.items()
    )


def imported(outcomes: Sequence[Outcome[Imported]]) -> str:
    """Return one line for every name server that accepted all entries of an import."""
    return "".join(
        f"{outcome.addr}: {value.added} added, {value.changed} changed, {value.unchanged} unchanged\n"
        for outcome in outcomes
        if (value := outcome.value) is not None
    )


def printable(text: str) -> str:
    """Return text from a peer with its control characters escaped so that they cannot affect the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _table(line: str, rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(line.format(*map(printable, row)).rstrip() + "\n" for row in rows)


def print_clusters(info: ClusterInfo, *, wide: bool = False) -> None:
    """Print one line for every broker process."""
    rows = [
        (printable(cluster), printable(name), str(broker_id), printable(addr))
        for cluster, names in info.clusters.items()
        for name in names
        if name in info.brokers
        for broker_id, addr in info.brokers[name].broker_addrs.items()
    ]
    print_table([_CLUSTER, _BROKER, TextColumn("ID"), TextColumn("ADDRESS")], rows, wide=wide)


def print_brokers(info: ClusterInfo, *, wide: bool = False) -> None:
    """Print one line for every broker name: its master, the number of its slaves, whether a slave may act as master."""
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
    """Print one line for every broker name: its queues of the topic, and its addresses by brokerId."""
    for line in route_lines(route, terminal_width(wide=wide)):
        print_lines(line)


def route_lines(route: TopicRouteData, width: int | None) -> list[Table | Text]:
    """Return the lines of ``print_route`` for a width; None for no limit."""
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


class HeldBroker(NamedTuple):
    """A broker process in an answer, and why it is protected."""

    cluster: str
    broker_name: str
    broker_addr: str
    hold: Hold


def held_in(info: ClusterInfo, holds: Mapping[str, Hold]) -> Iterator[HeldBroker]:
    """Yield the protected ones of all brokers."""
    for cluster, names in info.clusters.items():
        for name in names:
            if name in info.brokers:
                yield from _held_of(cluster, info.brokers[name], holds)


def held_on_route(route: TopicRouteData, holds: Mapping[str, Hold]) -> Iterator[HeldBroker]:
    """Yield the protected ones of the brokers that serve a topic."""
    for broker in route.broker_datas:
        yield from _held_of(broker.cluster, broker, holds)


def _held_of(cluster: str, broker: BrokerData, holds: Mapping[str, Hold]) -> Iterator[HeldBroker]:
    for addr in broker.broker_addrs.values():
        hold = holds.get(held_key(cluster, broker.broker_name, addr))
        if hold is not None:
            yield HeldBroker(cluster, broker.broker_name, addr, hold)


def held_lines(held: Iterable[HeldBroker]) -> str:
    """Return a line for every protected broker, to print below a table."""
    return "".join(f"{_line(broker)}\n" for broker in held)


def _line(broker: HeldBroker) -> str:
    hold = broker.hold
    who = f"{broker.cluster} {broker.broker_name} {broker.broker_addr}"
    # The guard also protects brokers that are near the timeout when the first of many reaches it.
    why = _WHY.get(hold.goes_with, "was in doubt")
    mass = f"{why} when {hold.ending} of {hold.brokers} brokers seemed to fail at once ({hold.reason})"
    return printable(f"protected: {who} until {instant(hold.until_ms)} or later: {mass}")


def held_json(held: Iterable[HeldBroker]) -> list[dict[str, Any]]:
    """Return the protected brokers as JSON; instants are log time in epoch milliseconds."""
    return [
        {
            "cluster": broker.cluster,
            "broker_name": broker.broker_name,
            "broker_addr": broker.broker_addr,
            **broker.hold._asdict(),
        }
        for broker in held
    ]
