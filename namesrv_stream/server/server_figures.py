"""Everything that a server tells Prometheus, gathered when it is asked."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from namesrv_stream import __version__
from namesrv_stream.metrics import Histogram, Samples
from namesrv_stream.remoting.codes import ResponseCode
from namesrv_stream.server.broker_figures import BrokerFigures
from namesrv_stream.server.core import Core
from namesrv_stream.server.fleet import Fleet
from namesrv_stream.server.http_figures import HttpFigures
from namesrv_stream.server.identity import Identity
from namesrv_stream.server.native.lane import LaneStatus
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.table_figures import TableFigures

_LAG_BOUNDS_MS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_000)


class ServerFigures:
    """Belongs to one event loop; ``text`` may be called any time.

    Attributes:
        http: Counted by the HTTP port, which says as well how many connections it has.
    """

    def __init__(
        self,
        identity: Identity,
        core: Core,
        fleet: Fleet,
        tables: TableFigures,
        native_lane: LaneStatus,
    ) -> None:
        self.view = fleet.view
        self.fleet = fleet
        self.gateway = core.gateway
        self.connections = core.connections
        self.tables = tables
        self.native_lane = native_lane
        self.http = HttpFigures()
        self.count_http_connections: Callable[[], int] = lambda: 0
        self._identity = identity
        self._requests = core.services.figures
        self._tls = core.services.tls
        self._loop_lag = Histogram(_LAG_BOUNDS_MS)
        self._brokers = BrokerFigures(fleet, identity.server_id, Steps())

    def beat_came_late(self, late_ms: float) -> None:
        """By so much the event loop's beat came after its time."""
        self._loop_lag.counts[bisect_left(_LAG_BOUNDS_MS, late_ms)] += 1
        self._loop_lag.total += late_ms

    async def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        sample_brokers = await self._brokers.sampler()
        samples = Samples()
        sample_brokers(samples)
        self._requests.sample(samples)
        self._tls.sample(samples)
        self.tables.sample(samples)
        self.http.sample(samples, self.count_http_connections())
        self._sample_remoting(samples)
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
        if connections.native_lane is not None:
            for lane in ("native_lane", "express"):  # the second is deprecated
                samples.add(f"rocketmq_namesrv_{lane}_connections", connections.native_lane.connections)
                samples.add(f"rocketmq_namesrv_{lane}_answers_bytes", connections.native_lane.known_bytes)
        samples.add("rocketmq_namesrv_native_lane_active", self.native_lane.is_active)
        denied = self._requests.count(ResponseCode.NO_PERMISSION)
        samples.add("rocketmq_namesrv_security_events_total", denied, "auth", "denied")

    def _sample_gateway(self, samples: Samples) -> None:
        gateway = self.gateway.status
        for name, value in (
            ("kafka_up", gateway.is_talking),
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
