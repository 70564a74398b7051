"""What a process counts for Prometheus: every metric of ours stands here, with its kind, unit and labels.

Labels are bounded: never a topic or an address.
"""

from collections.abc import Mapping
from typing import Final, Literal

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Gauge, generate_latest

#: Of the text that ``Metrics.text`` makes.
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

#: Gauges with the one label ``cluster``.
ClusterGauge = Literal[
    # Brokers. No value for a cluster means 0.
    "namesrv_held_brokers",
]

_CLUSTER_GAUGES: Final[Mapping[ClusterGauge, str]] = {
    "namesrv_held_brokers": "Brokers that the mass-expiry guard keeps although they seem to have ended.",
}


class Metrics:
    """The figures of one process, in a registry of their own; may be used from any thread."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(name, text, ["cluster"], registry=self._registry) for name, text in _CLUSTER_GAUGES.items()
        }

    def set_by_cluster(self, name: ClusterGauge, values: Mapping[str, int]) -> None:
        """Set a gauge for these clusters; the others lose it."""
        gauge = self._gauges[name]
        gauge.clear()
        for cluster, value in sorted(values.items()):
            gauge.labels(cluster).set(value)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return bytes(generate_latest(self._registry))
