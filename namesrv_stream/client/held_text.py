"""Brokers that the mass-expiry guard holds, beside what name servers answer about them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from namesrv_stream.client.mqadmin_tables import printable
from namesrv_stream.client.route import BrokerData, ClusterInfo, TopicRouteData
from namesrv_stream.instants import instant
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.model import Hold
from namesrv_stream.route.table import held_key

_WHY: Final = {
    Cause.EXPIRED.value: "was near its timeout",
    Cause.DISCONNECTED.value: "lost its connection",
    Cause.SERVER_SILENT.value: "was known only to a server that fell silent",
}


class HeldBroker(NamedTuple):
    """One broker process of an answer, and why it is held."""

    cluster: str
    broker_name: str
    broker_addr: str
    hold: Hold


def held_in(info: ClusterInfo, holds: Mapping[str, Hold]) -> Iterator[HeldBroker]:
    """Those of all brokers that are held."""
    for cluster, names in info.clusters.items():
        for name in names:
            if name in info.brokers:
                yield from _held_of(cluster, info.brokers[name], holds)


def held_on_route(route: TopicRouteData, holds: Mapping[str, Hold]) -> Iterator[HeldBroker]:
    """Those of a topic's brokers that are held."""
    for broker in route.broker_datas:
        yield from _held_of(broker.cluster, broker, holds)


def _held_of(cluster: str, broker: BrokerData, holds: Mapping[str, Hold]) -> Iterator[HeldBroker]:
    for addr in broker.broker_addrs.values():
        hold = holds.get(held_key(cluster, broker.broker_name, addr))
        if hold is not None:
            yield HeldBroker(cluster, broker.broker_name, addr, hold)


def held_lines(held: Iterable[HeldBroker]) -> str:
    """A line for each, to stand below a table; nothing where none is held."""
    return "".join(f"{_line(broker)}\n" for broker in held)


def _line(broker: HeldBroker) -> str:
    hold = broker.hold
    who = f"{broker.cluster} {broker.broker_name} {broker.broker_addr}"
    # The rule asks who is near the timeout when the first of many reaches it, so a silence may be shorter than that.
    why = _WHY.get(hold.goes_with, "was in doubt")
    mass = f"{why} when {hold.ending} of {hold.brokers} brokers fell silent at once ({hold.reason})"
    return printable(f"held: {who} until {instant(hold.until_ms)} or later: {mass}")


def held_json(held: Iterable[HeldBroker]) -> list[dict[str, Any]]:
    """For scripts; instants in epoch milliseconds, log time."""
    return [
        {
            "cluster": broker.cluster,
            "broker_name": broker.broker_name,
            "broker_addr": broker.broker_addr,
            **broker.hold._asdict(),
        }
        for broker in held
    ]
