"""Everything that a server tells Prometheus, gathered when it is asked."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from namesrv_stream import __version__
from namesrv_stream.metrics import Histogram, Samples
from namesrv_stream.remoting.codes import ResponseCode
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.view import RouteView
from namesrv_stream.server.connections import Connections
from namesrv_stream.server.gateway import Gateway
from namesrv_stream.server.http_figures import HttpFigures
from namesrv_stream.server.identity import Identity
from namesrv_stream.server.request_figures import RequestFigures
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.table_figures import TableFigures
from namesrv_stream.server.tls import ServerTls

_LAG_BOUNDS_MS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_000)
#: Clusters with figures of their own, those of the most brokers; brokers name their clusters as they like.
_MAX_CLUSTERS: Final = 100
_OTHER_CLUSTERS: Final = "(other)"
_STATES: Final = ("alive", "held", "gone")


class ServerFigures:
    """Belongs to one event loop; ``text`` may be called any time.

    Attributes:
        http: Counted by the HTTP port, which says as well how many connections it has.

    Args:
        identity: The server's.
        view: What it answers from.
        queue_limit: Most records that may wait for Kafka.
    """

    def __init__(
        self,
        identity: Identity,
        view: RouteView,
        gateway: Gateway,
        connections: Connections,
        requests: RequestFigures,
        tables: TableFigures,
        tls: ServerTls,
        queue_limit: int,
    ) -> None:
        self.view = view
        self.gateway = gateway
        self.connections = connections
        self.tables = tables
        self.http = HttpFigures()
        self.count_http_connections: Callable[[], int] = lambda: 0
        self._identity = identity
        self._requests = requests
        self._tls = tls
        self._queue_limit = queue_limit
        self._loop_lag = Histogram(_LAG_BOUNDS_MS)
        self._steps = Steps()

    def beat_came_late(self, late_ms: float) -> None:
        """By so much the event loop's beat came after its time."""
        self._loop_lag.counts[bisect_left(_LAG_BOUNDS_MS, late_ms)] += 1
        self._loop_lag.total += late_ms

    async def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        by_cluster = await self._count_brokers()
        samples = Samples()
        self._requests.sample(samples)
        self._tls.sample(samples)
        self.tables.sample(samples)
        self.http.sample(samples, self.count_http_connections())
        self._sample_remoting(samples)
        self._sample_brokers(samples, by_cluster)
        self._sample_gateway(samples)
        samples.add("rocketmq_namesrv_info", 1, self._identity.server_id, __version__)
        samples.add_histogram("rocketmq_namesrv_event_loop_lag_seconds", self._loop_lag, 1e-3)
        return samples.text()

    def _sample_remoting(self, samples: Samples) -> None:
        connections = self.connections
        samples.add("rocketmq_namesrv_active_connections", len(connections))
        for result, count in (
            ("admitted", connections.admitted),
            *connections.refused.items(),
            ("broken", connections.broken_count),
            ("closed", connections.admitted - len(connections)),
        ):
            samples.add("rocketmq_namesrv_connection_events_total", max(0, count), result)
        samples.add("rocketmq_namesrv_partial_frames_bytes", connections.unfinished.size)
        samples.add("rocketmq_namesrv_unread_answers_bytes", connections.unread_bytes())
        if connections.express is not None:
            samples.add("rocketmq_namesrv_express_connections", connections.express.lent)
            samples.add("rocketmq_namesrv_express_answers_bytes", connections.express.known_bytes)
        denied = self._requests.count(ResponseCode.NO_PERMISSION)
        samples.add("rocketmq_namesrv_security_events_total", denied, "auth", "denied")

    async def _count_brokers(self) -> Counter[tuple[str, str]]:
        """(cluster, state) → broker processes."""
        held = dict(self.view.table.held)
        counts: Counter[tuple[str, str]] = Counter()
        async for found in self._steps.lists(_states(list(self.view.table.groups.values()), held.keys())):
            counts.update(found)
        return counts

    def _sample_brokers(self, samples: Samples, counts: Counter[tuple[str, str]]) -> None:
        sizes: Counter[str] = Counter()
        for (cluster, _), count in counts.items():
            sizes[cluster] += count
        shown = {cluster for cluster, _ in sizes.most_common(_MAX_CLUSTERS)}
        merged = Counter({(cluster, state): 0 for cluster in shown for state in _STATES})
        for (cluster, state), count in counts.items():
            merged[cluster if cluster in shown else _OTHER_CLUSTERS, state] += count
        for (cluster, state), count in sorted(merged.items()):
            samples.add("rocketmq_namesrv_brokers", count, cluster, state)
        active = sum(count for (_, state), count in counts.items() if state != "gone")
        samples.add("rocketmq_namesrv_active_brokers", active)
        samples.add("rocketmq_namesrv_topics", self.view.table.topic_count)

    def _sample_gateway(self, samples: Samples) -> None:
        gateway = self.gateway.standing
        for name, value in (
            ("kafka_up", gateway.is_talking),
            ("kafka_sessions_lost_total", gateway.lost_sessions),
            ("blind", gateway.is_blind),
            ("publish_queue_records", gateway.queued_records),
            ("publish_queue_bytes", gateway.queued_bytes),
            ("publish_queue_limit_records", self._queue_limit),
            ("publish_oldest_seconds", gateway.oldest_age_ms / 1000),
            ("pending_events", self.view.pending_count),
        ):
            samples.add(f"rocketmq_namesrv_{name}", value)
        samples.add("rocketmq_namesrv_unsaid_facts", gateway.unsaid_brokers, "brokers")
        samples.add("rocketmq_namesrv_unsaid_facts", gateway.unsaid_changes, "changes")
        for partition, offset in sorted(self.view.next_offsets.items()):
            samples.add("rocketmq_namesrv_next_offset", offset, str(partition))


def _states(groups: Iterable[BrokerGroup], held: Iterable[LeaseKey]) -> Iterable[tuple[str, str]]:
    """(cluster, state) of each broker process that is live or whose registration is kept."""
    keys = set(held)
    for group in groups:
        for key in group.lives:
            yield key.cluster, "held" if LeaseKey(group.broker_name, key) in keys else "alive"
        for key in group.registrations:
            if key not in group.lives:
                yield key.cluster, "gone"
