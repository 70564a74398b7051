"""Brokers by cluster for Prometheus: how many there are, and how near the most silent one is to its expiry."""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from namesrv_stream.metrics import Samples
from namesrv_stream.server.fleet import Fleet
from namesrv_stream.server.steps import Steps

#: Clusters with figures of their own, those of the most brokers; brokers name their clusters as they like.
_MAX_CLUSTERS: Final = 100
_OTHER_CLUSTERS: Final = "(other)"
_STATES: Final = ("alive", "held", "gone")


class _Silence(NamedTuple):
    """The oldest heartbeat of a cluster's brokers; ``share`` is the largest part of a timeout that has passed."""

    age_ms: int = 0
    share: float = 0.0

    def and_of(self, age_ms: int, share: float) -> "_Silence":
        return _Silence(max(self.age_ms, age_ms), max(self.share, share))


class BrokerFigures:
    """Belongs to one event loop."""

    def __init__(self, fleet: Fleet, server_id: str, steps: Steps) -> None:
        self._fleet = fleet
        self._server_id = server_id
        self._steps = steps

    async def sampler(self) -> Callable[[Samples], None]:
        """Count all brokers, in steps; what it returns adds the figures to a scrape."""
        counts: Counter[tuple[str, str]] = Counter()
        silences: dict[str, _Silence] = {}
        groups, read = list(self._fleet.view.table.groups.values()), self._fleet.reader()
        async for some in self._steps.lists(broker for group in groups for broker in read(group)):
            for broker in some:
                cluster = broker.key.live_key.cluster
                counts[cluster, broker.state] += 1
                # One that has gone over to another server is still known here, and grows no older for that.
                if broker.age_ms is not None and self._server_id in broker.servers:
                    share = broker.age_ms / broker.expires_after_ms
                    silences[cluster] = silences.get(cluster, _Silence()).and_of(broker.age_ms, share)
        ended = (live_key for group in groups for live_key in group.registrations if live_key not in group.lives)
        async for keys in self._steps.lists(ended):
            counts.update((live_key.cluster, "gone") for live_key in keys)
        return lambda samples: self._sample(samples, counts, silences)

    def _sample(self, samples: Samples, counts: Counter[tuple[str, str]], silences: dict[str, _Silence]) -> None:
        shown = _largest(counts)
        by_state = Counter({(cluster, state): 0 for cluster in shown for state in _STATES})
        for (cluster, state), count in counts.items():
            by_state[cluster if cluster in shown else _OTHER_CLUSTERS, state] += count
        for (cluster, state), count in sorted(by_state.items()):
            samples.add("rocketmq_namesrv_brokers", count, cluster, state)
        oldest: dict[str, _Silence] = {}
        for cluster, silence in silences.items():
            name = cluster if cluster in shown else _OTHER_CLUSTERS
            oldest[name] = oldest.get(name, _Silence()).and_of(*silence)
        for cluster, silence in sorted(oldest.items()):
            samples.add("rocketmq_namesrv_oldest_heartbeat_age_seconds", silence.age_ms / 1000, cluster)
            samples.add("rocketmq_namesrv_oldest_heartbeat_timeout_ratio", silence.share, cluster)
        active = sum(count for (_, state), count in counts.items() if state != "gone")
        samples.add("rocketmq_namesrv_active_brokers", active)
        samples.add("rocketmq_namesrv_topics", self._fleet.view.table.topic_count)


def _largest(counts: Counter[tuple[str, str]]) -> set[str]:
    """Clusters that have figures of their own."""
    sizes: Counter[str] = Counter()
    for (cluster, _), count in counts.items():
        sizes[cluster] += count
    return {cluster for cluster, _ in sizes.most_common(_MAX_CLUSTERS)}
