"""A server's metrics, collected when Prometheus scrapes it; their names and HELP texts are in ``metric_catalogue``.

Code that causes an event counts it in ``Counters``, and ``net.request_metrics`` counts requests. All other values are
read here from the components that know them, those of brokers in steps (``steps``).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from namesrv_stream import __version__
from namesrv_stream.metrics import Histogram, Samples
from namesrv_stream.remoting.command import ResponseCode
from namesrv_stream.server.core import Core
from namesrv_stream.server.native.lane import LaneStatus
from namesrv_stream.server.net.connections import CONNECTION_EVENTS
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.commit_applier import HistoryAge, TableStatus
from namesrv_stream.server.view.fleet import Fleet

#: Maximum number of clusters with their own series, largest first; brokers can send any number of cluster names.
_MAX_CLUSTERS: Final = 100
_OTHER_CLUSTERS: Final = "(other)"
#: The label of the state that ``Broker.state`` and ``/brokers`` call ``ended``; a released label does not change.
_ENDED: Final = "gone"
_STATES: Final = ("alive", "held", _ENDED)
_LAG_BOUNDS_MS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_000)


#: Age of the oldest heartbeat in a cluster, and the largest elapsed fraction of a broker's timeout.
_Silence = tuple[int, float]


def _worse(one: _Silence | None, other: _Silence) -> _Silence:
    return other if one is None else (max(one[0], other[0]), max(one[1], other[1]))


@dataclass(slots=True)
class HttpLoad:
    """The current load of the HTTP port: requests that are being answered, followers of /changes, open connections."""

    inflight: int = 0
    streams: int = 0
    connections: Callable[[], int] = lambda: 0


class ServerMetrics:
    """Collects a server's metrics. Only one event loop may use it; ``text`` may be called at any time."""

    def __init__(
        self,
        identity: Identity,
        core: Core,
        fleet: Fleet,
        tables: TableStatus,
        history_age: HistoryAge,
        native_lane: LaneStatus,
        hang_restarts: int = 0,
    ) -> None:
        self.view = fleet.view
        self.fleet = fleet
        self.gateway = core.gateway
        self.connections = core.connections
        self.tables = tables
        self._history_age = history_age
        self.native_lane = native_lane
        self.hang_restarts = hang_restarts
        self.counters = core.services.counters
        self.unmapped = core.unmapped
        self.http = HttpLoad()
        self._identity = identity
        self._server = core.name_server
        self._requests = core.services.request_metrics
        self._tls = core.services.tls
        self._loop_lag = Histogram(_LAG_BOUNDS_MS)
        self._steps = Steps()

    def beat_came_late(self, late_ms: float) -> None:
        self._loop_lag.add(late_ms)

    async def text(self) -> bytes:
        counts, silences, contradicting = await self._count_brokers()
        unread_bytes = sum(await self._steps.all(connection.unread_bytes for connection in list(self.connections)))
        samples = Samples()
        self._sample_brokers(samples, counts, silences)
        samples.add("rocketmq_namesrv_contradicting_brokers", contradicting)
        self._requests.sample(samples)
        self.counters.sample(samples)
        self._tls.sample(samples)
        self.tables.sample(samples)
        self._history_age.sample(samples)
        self._sample_remoting(samples, unread_bytes)
        for name, brokers in sorted(self.unmapped.by_view.items()):
            samples.add("rocketmq_namesrv_view_unmapped_addresses", len(brokers), name)
        self._sample_gateway(samples)
        samples.add("rocketmq_namesrv_hang_restarts_total", self.hang_restarts)
        samples.add("rocketmq_namesrv_info", 1, self._identity.server_id, __version__)
        samples.add_histogram("rocketmq_namesrv_event_loop_lag_seconds", self._loop_lag, 1e-3)
        return samples.text()

    async def _count_brokers(self) -> tuple[Counter[tuple[str, str]], Mapping[str, "_Silence"], int]:
        """Count brokers by cluster and state, and those with contradictions; find each cluster's oldest heartbeat.

        Clusters beyond the largest ones count as one. It works in steps.
        """
        counts: Counter[tuple[str, str]] = Counter()
        sizes: Counter[str] = Counter()
        silences: dict[str, _Silence] = {}
        contradicting = 0
        groups = list(self.view.table.groups.values())
        async for some in self._steps.lists(self.fleet.live(groups)):
            for broker in some:
                cluster = broker.key.live_key.cluster
                counts[cluster, broker.state] += 1
                sizes[cluster] += 1
                contradicting += bool(broker.contradictions)
                # A broker that now uses another server is still known here, but its age here means nothing.
                if broker.age_ms is not None and self._identity.server_id in broker.servers:
                    share = broker.age_ms / broker.expires_after_ms
                    silences[cluster] = _worse(silences.get(cluster), (broker.age_ms, share))
        ended = (live_key for group in groups for live_key in group.registrations if live_key not in group.live_brokers)
        async for keys in self._steps.lists(ended):
            counts.update((live_key.cluster, _ENDED) for live_key in keys)
            sizes.update(live_key.cluster for live_key in keys)
        largest = await self._steps.sorted(sizes.items(), key=lambda item: -item[1])
        shown = {cluster for cluster, _ in largest[:_MAX_CLUSTERS]}
        by_state = Counter({(cluster, state): 0 for cluster in shown for state in _STATES})
        async for several in self._steps.lists(counts.items()):
            for (cluster, state), count in several:
                by_state[cluster if cluster in shown else _OTHER_CLUSTERS, state] += count
        oldest: dict[str, _Silence] = {}
        async for heard in self._steps.lists(silences.items()):
            for cluster, silence in heard:
                name = cluster if cluster in shown else _OTHER_CLUSTERS
                oldest[name] = _worse(oldest.get(name), silence)
        return by_state, oldest, contradicting

    def _sample_brokers(
        self, samples: Samples, counts: Counter[tuple[str, str]], silences: Mapping[str, "_Silence"]
    ) -> None:
        for (cluster, state), count in sorted(counts.items()):
            samples.add("rocketmq_namesrv_brokers", count, cluster, state)
        for cluster, (age_ms, share) in sorted(silences.items()):
            samples.add("rocketmq_namesrv_oldest_heartbeat_age_seconds", age_ms / 1000, cluster)
            samples.add("rocketmq_namesrv_oldest_heartbeat_timeout_ratio", share, cluster)
        active = sum(count for (_, state), count in counts.items() if state != _ENDED)
        samples.add("rocketmq_namesrv_active_brokers", active)
        samples.add("rocketmq_namesrv_draining_brokers", self.fleet.draining)
        samples.add("rocketmq_namesrv_topics", self.view.table.topic_count)
        listed = sum(server.is_listed for server in self.fleet.name_servers())
        samples.add("rocketmq_namesrv_listed_servers", listed)

    def _sample_remoting(self, samples: Samples, unread_bytes: int) -> None:
        samples.add("rocketmq_namesrv_asked_topics", len(self._server.asked))
        connections = self.connections
        samples.add("rocketmq_namesrv_active_connections", len(connections))
        closed = self.counters.value(CONNECTION_EVENTS, "admitted") - len(connections)
        samples.add(CONNECTION_EVENTS, max(0, closed), "closed")
        samples.add("rocketmq_namesrv_partial_frames_bytes", connections.partial_frames.size)
        samples.add("rocketmq_namesrv_unread_answers_bytes", unread_bytes)
        if connections.lane is not None:
            for lane in ("native_lane", "express"):  # the second name is deprecated
                samples.add(f"rocketmq_namesrv_{lane}_connections", connections.lane.connections)
                samples.add(f"rocketmq_namesrv_{lane}_answers_bytes", connections.lane.known_bytes)
        samples.add("rocketmq_namesrv_native_lane_active", self.native_lane.is_active)
        denied = self._requests.count(ResponseCode.NO_PERMISSION)
        samples.add("rocketmq_namesrv_security_events_total", denied, "auth", "denied")
        samples.add("rocketmq_namesrv_http_inflight", self.http.inflight)
        samples.add("rocketmq_namesrv_http_connections", self.http.connections())
        samples.add("rocketmq_namesrv_change_streams", self.http.streams)

    def _sample_gateway(self, samples: Samples) -> None:
        gateway = self.gateway.status
        for name, value in (
            ("kafka_up", gateway.is_connected),
            ("kafka_sessions_lost_total", gateway.lost_sessions),
            ("blind", gateway.is_blind),
            ("publish_queue_records", gateway.queued_records),
            ("publish_queue_bytes", gateway.queued_bytes),
            ("publish_queue_limit_records", self.gateway.limits.queue_records),
            ("publish_oldest_seconds", gateway.oldest_age_ms / 1000),
            ("pending_events", self.view.pending_count),
        ):
            samples.add(f"rocketmq_namesrv_{name}", value)
        for name in ("unpublished_events", "unsaid_facts"):
            samples.add(f"rocketmq_namesrv_{name}", gateway.unpublished_brokers, "brokers")
            samples.add(f"rocketmq_namesrv_{name}", gateway.unpublished_changes, "changes")
        for partition, offset in sorted(self.view.next_offsets.items()):
            samples.add("rocketmq_namesrv_next_offset", offset, str(partition))
