"""Brokers by cluster for Prometheus: how many there are, and how near the most silent one is to its expiry."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from namesrv_stream.metrics import Samples
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.settings import FoldSettings, effective_texts
from namesrv_stream.route.view import RouteView
from namesrv_stream.server.gateway import Gateway
from namesrv_stream.server.steps import Steps

#: Clusters with figures of their own, those of the most brokers; brokers name their clusters as they like.
_MAX_CLUSTERS: Final = 100
_OTHER_CLUSTERS: Final = "(other)"
_STATES: Final = ("alive", "held", "gone")


class _Process(NamedTuple):
    """A broker process; ``age_ms`` is None where this server does not hear it."""

    cluster: str
    state: str
    age_ms: int | None = None
    timeout_ms: int = 0


class _Silence(NamedTuple):
    """The oldest heartbeat of a cluster's brokers; ``share`` is the largest part of a timeout that has passed."""

    age_ms: int = 0
    share: float = 0.0

    def and_of(self, age_ms: int, share: float) -> "_Silence":
        return _Silence(max(self.age_ms, age_ms), max(self.share, share))


class BrokerFigures:
    """Belongs to one event loop.

    Args:
        view: What the server answers from.
        gateway: Which hears brokers.
        server_id: The server's own.
        steps: In which brokers are counted.
    """

    def __init__(self, view: RouteView, gateway: Gateway, server_id: str, steps: Steps) -> None:
        self._view = view
        self._gateway = gateway
        self._server_id = server_id
        self._steps = steps

    async def sampler(self) -> Callable[[Samples], None]:
        """Count all brokers, in steps; what it returns adds the figures to a scrape."""
        counts: Counter[tuple[str, str]] = Counter()
        silences: dict[str, _Silence] = {}
        groups = list(self._view.table.groups.values())
        settings = FoldSettings().with_texts(effective_texts(self._view.table.settings))
        async for some in self._steps.lists(p for group in groups for p in self._processes(group, settings)):
            counts.update((process.cluster, process.state) for process in some)
            for cluster, _, age_ms, timeout_ms in some:
                if age_ms is not None:
                    silence = silences.get(cluster, _Silence())
                    silences[cluster] = silence.and_of(age_ms, age_ms / timeout_ms)
        return lambda samples: self._sample(samples, counts, silences)

    def _processes(self, group: BrokerGroup, settings: FoldSettings) -> Iterator[_Process]:
        """Those that are live or whose registration is kept."""
        held, hearings, observed_ms = self._view.table.held, self._gateway.last_heartbeats, self._gateway.observed_ms
        for live_key, live in group.lives.items():
            key = LeaseKey(group.broker_name, live_key)
            # One that has gone over to another server is still known here, and grows no older for that.
            age_ms = hearings.age_ms(key, observed_ms) if self._server_id in live.holders else None
            timeout_ms = settings.effective_timeout_ms(live.timeout_ms)
            yield _Process(live_key.cluster, "held" if key in held else "alive", age_ms, timeout_ms)
        for live_key in group.registrations:
            if live_key not in group.lives:
                yield _Process(live_key.cluster, "gone")

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
        samples.add("rocketmq_namesrv_topics", self._view.table.topic_count)


def _largest(counts: Counter[tuple[str, str]]) -> set[str]:
    """Clusters that have figures of their own."""
    sizes: Counter[str] = Counter()
    for (cluster, _), count in counts.items():
        sizes[cluster] += count
    return {cluster for cluster, _ in sizes.most_common(_MAX_CLUSTERS)}
