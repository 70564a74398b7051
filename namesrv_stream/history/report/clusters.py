"""What a cluster's brokers come to together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from namesrv_stream.history.availability import Availability, Rates
from namesrv_stream.history.outages import Outage, Scope


@dataclass(frozen=True, slots=True)
class ClusterFigures(Rates):
    """The brokers of a cluster, or of all.

    Attributes:
        cluster: None for all.
        brokers: How many were to be up in that time.
        up: How many were at its end.
        known_ms: For how long they were to be up, all together.
        up_ms: How much of that they were.
        interruptions: How often they went while they were to be up.
        failures: How often they went without a goodbye.
        repairs_ms: How long each absence took from which one came back.
        dark_ms: For how long no broker of the cluster was up; of all clusters, the sum.
    """

    cluster: str | None
    brokers: int
    up: int
    known_ms: int
    up_ms: int
    interruptions: int
    failures: int
    repairs_ms: Sequence[int]
    dark_ms: int


def cluster_figures(
    availabilities: Iterable[Availability], outages: Iterable[Outage], since_ms: int, until_ms: int
) -> list[ClusterFigures]:
    """Of each cluster, by name.

    Args:
        availabilities: Of the brokers.
        outages: Of the same time.
        since_ms: Epoch milliseconds.
        until_ms: Epoch milliseconds.
    """
    members: dict[str, list[Availability]] = {}
    for one in availabilities:
        members.setdefault(one.key.live_key.cluster, []).append(one)
    dark_ms = _dark_ms(outages, members, since_ms, until_ms)
    return [_figures(cluster, own, dark_ms[cluster]) for cluster, own in sorted(members.items())]


def total_figures(clusters: Sequence[ClusterFigures]) -> ClusterFigures:
    """Of all of them."""
    return ClusterFigures(
        cluster=None,
        brokers=sum(c.brokers for c in clusters),
        up=sum(c.up for c in clusters),
        known_ms=sum(c.known_ms for c in clusters),
        up_ms=sum(c.up_ms for c in clusters),
        interruptions=sum(c.interruptions for c in clusters),
        failures=sum(c.failures for c in clusters),
        repairs_ms=[ms for c in clusters for ms in c.repairs_ms],
        dark_ms=sum(c.dark_ms for c in clusters),
    )


def _figures(cluster: str, members: Sequence[Availability], dark_ms: int) -> ClusterFigures:
    return ClusterFigures(
        cluster=cluster,
        brokers=len(members),
        up=sum(a.is_up for a in members),
        known_ms=sum(a.known_ms for a in members),
        up_ms=sum(a.up_ms for a in members),
        interruptions=sum(a.interruptions for a in members),
        failures=sum(a.failures for a in members),
        repairs_ms=[ms for a in members for ms in a.repairs_ms],
        dark_ms=dark_ms,
    )


def _dark_ms(
    outages: Iterable[Outage], members: Mapping[str, Sequence[Availability]], since_ms: int, until_ms: int
) -> dict[str, int]:
    """Cluster → for how long all of it was gone, up to the goodbye of the last that was to be up."""
    of_clusters: dict[str, list[Outage]] = {}
    of_brokers: dict[str, list[Outage]] = {}
    for outage in outages:
        if outage.scope in (Scope.CLUSTER, Scope.BROKER):
            found = of_clusters if outage.scope is Scope.CLUSTER else of_brokers
            found.setdefault(outage.cluster or "", []).append(outage)
    dark_ms = {}
    for cluster, own in members.items():
        # An outage of a cluster that has but one broker is told as that broker's.
        whole = of_clusters.get(cluster, of_brokers.get(cluster, []) if len(own) == 1 else [])
        end_ms = min(until_ms, max(a.end_ms for a in own))
        lengths = (min(o.end_ms or end_ms, end_ms) - max(o.begin_ms, since_ms) for o in whole)
        dark_ms[cluster] = sum(max(0, length_ms) for length_ms in lengths)
    return dark_ms
