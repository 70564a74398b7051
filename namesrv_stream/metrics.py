"""What a server tells Prometheus: every metric stands here, with its kind, labels and meaning.

Names that exist elsewhere are kept: ``rocketmq_rpc_latency`` is RocketMQ's own (5.1 and later, brokers and proxies, in
milliseconds), and where the name server of rocketmq-rust has a metric, its name, labels and unit are taken, so that its
Grafana board shows ours as well. All others are ``rocketmq_namesrv_*`` in seconds and bytes. Labels are bounded: never
a topic, a broker or an address.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

#: Of the text that ``Samples.text`` makes.
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class Metric(NamedTuple):
    """What a metric is."""

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()


METRICS: Final[Mapping[str, Metric]] = {
    # ---- requests over remoting ----
    "rocketmq_namesrv_requests_total": Metric(
        "counter",
        "Requests answered, oneway ones included.",
        ("request_type", "request_code", "response_code", "result"),
    ),
    "rocketmq_rpc_latency": Metric(
        "histogram",
        "Milliseconds from the moment a request is taken from its socket until its answer is handed to it.",
        ("node_type", "protocol_type", "request_code", "response_code"),
    ),
    "rocketmq_namesrv_route_end_to_end_latency": Metric(
        "histogram", "The same in microseconds, of route queries (GET_ROUTEINFO_BY_TOPIC) only."
    ),
    "rocketmq_namesrv_active_connections": Metric("gauge", "Open remoting connections."),
    "rocketmq_namesrv_connection_events_total": Metric(
        "counter",
        "Remoting connections admitted, closed, rejected (too many, or rejected_address: of one address), broken "
        "(protocol errors); of those closed by us: idle, late, crowded, slow_reader, unread.",
        ("result",),
    ),
    "rocketmq_namesrv_partial_frames_bytes": Metric("gauge", "Held of frames and handshakes that are not complete."),
    "rocketmq_namesrv_unread_answers_bytes": Metric("gauge", "Answers that wait for peers to read them."),
    "rocketmq_namesrv_express_connections": Metric(
        "gauge", "Connections on which the express lane answers; absent without one."
    ),
    "rocketmq_namesrv_express_answers_bytes": Metric("gauge", "Answers that the express lane knows; likewise."),
    "rocketmq_namesrv_security_events_total": Metric(
        "counter",
        "Requests refused for who asked (auth, denied); TLS handshakes (tls_handshake) and reloads of the certificate "
        "(tls_reload), ok and failed; peers without TLS that must have it (tls_plain, denied).",
        ("operation", "result"),
    ),
    "rocketmq_namesrv_tls_certificate_expires_seconds": Metric(
        "gauge", "End of the certificate in use, epoch seconds."
    ),
    # ---- what is served ----
    "rocketmq_namesrv_brokers": Metric(
        "gauge",
        "Broker processes: alive, held (by the mass-expiry guard), gone (ended within the last day).",
        ("cluster", "state"),
    ),
    "rocketmq_namesrv_active_brokers": Metric("gauge", "Broker processes in the routes: alive or held."),
    "rocketmq_namesrv_topics": Metric("gauge", "Topics that some broker offers."),
    "rocketmq_namesrv_changes_total": Metric(
        "counter", "Committed rows of route_changes that were taken over.", ("kind", "cause", "gone")
    ),
    # ---- the way into the log ----
    "rocketmq_namesrv_kafka_up": Metric("gauge", "1 while Kafka takes this server's records of all partitions."),
    "rocketmq_namesrv_kafka_sessions_lost_total": Metric("counter", "How often Kafka stopped to take records."),
    "rocketmq_namesrv_blind": Metric(
        "gauge", "1 while a closed connection proves nothing, for some partition at least: no Kafka, or a standstill."
    ),
    "rocketmq_namesrv_publish_queue_records": Metric("gauge", "Records that Kafka has not acknowledged."),
    "rocketmq_namesrv_publish_queue_bytes": Metric("gauge", "The same in bytes."),
    "rocketmq_namesrv_publish_queue_limit_records": Metric("gauge", "Of these, most that may be."),
    "rocketmq_namesrv_publish_oldest_seconds": Metric("gauge", "For how long the oldest of them waits."),
    "rocketmq_namesrv_pending_events": Metric("gauge", "Accepted events that no commit of the job covers yet."),
    "rocketmq_namesrv_unsaid_facts": Metric("gauge", "Brokers and changes to tell Kafka when it is back.", ("of",)),
    # ---- the tables ----
    "rocketmq_namesrv_snapshot_age_seconds": Metric("gauge", "Since the last commit of the job that was taken over."),
    "rocketmq_namesrv_snapshot_version": Metric("gauge", "Version of route_changes that is served; -1 for none."),
    "rocketmq_namesrv_snapshot_commits_total": Metric("counter", "Commits of the job that were taken over."),
    "rocketmq_namesrv_snapshot_reloads_total": Metric("counter", "How often the tables were opened anew."),
    "rocketmq_namesrv_tables_readable": Metric("gauge", "0 while the tables cannot be read."),
    "rocketmq_namesrv_event_lag_seconds": Metric(
        "gauge", "Age, by Kafka's stamp, of the newest record that is folded, of the partition that is most behind."
    ),
    "rocketmq_namesrv_next_offset": Metric("gauge", "First offset that is not served.", ("partition",)),
    # ---- the job, as its commits tell ----
    "rocketmq_namesrv_job_started_seconds": Metric("gauge", "When the job was started, epoch seconds."),
    "rocketmq_namesrv_job_batch_seconds": Metric("histogram", "Micro-batches: to fold and to commit one."),
    "rocketmq_namesrv_job_records_total": Metric("counter", "Records folded since the job's start."),
    "rocketmq_namesrv_job_dead_letters_total": Metric("counter", "Records and items refused since the job's start."),
    # ---- this process ----
    "rocketmq_namesrv_info": Metric("gauge", "Always 1.", ("server_id", "software")),
    "rocketmq_namesrv_event_loop_lag_seconds": Metric("histogram", "How late each beat of the event loop came."),
    # ---- the HTTP port ----
    "rocketmq_namesrv_http_requests_total": Metric("counter", "Answers of the HTTP port.", ("route", "status")),
    "rocketmq_namesrv_http_inflight": Metric("gauge", "Requests being answered, streams not included."),
    "rocketmq_namesrv_http_connections": Metric("gauge", "Open connections."),
    "rocketmq_namesrv_http_events_total": Metric(
        "counter", "Peers that were turned away: connection or request refused, slow, stalled.", ("event",)
    ),
    "rocketmq_namesrv_change_streams": Metric("gauge", "Open streams of /changes, and questions that wait there."),
    "rocketmq_namesrv_change_resets_total": Metric("counter", "Followers that had to begin anew.", ("reason",)),
}


class Histogram:
    """Counts by upper bound; costs a search in a short tuple a value.

    Attributes:
        bounds: Upper bounds, ascending; values above the last one are counted apart.
        counts: Values by bound, those above the last one at the end.
        total: Sum of the values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float], counts: Iterable[int] = (), total: float = 0) -> None:
        self.bounds = tuple(bounds)
        self.counts = list(counts) or [0] * (len(self.bounds) + 1)
        self.total = total


class Samples(Collector):
    """The values of one scrape; a name that is not in ``METRICS``, or a wrong number of labels, is a fault of ours."""

    def __init__(self) -> None:
        self._families = {name: _FAMILIES[m.kind](name, m.text, labels=m.labels) for name, m in METRICS.items()}

    def add(self, name: str, value: float, *labels: str) -> None:
        """One value of a counter or gauge."""
        if len(labels) != len(METRICS[name].labels):
            raise ValueError(f"{name} has the labels {METRICS[name].labels}")
        self._families[name].add_metric(labels, value)

    def add_histogram(self, name: str, histogram: Histogram, scale: float, *labels: str) -> None:
        """One histogram; ``scale`` makes of its values the metric's unit."""
        if len(labels) != len(METRICS[name].labels):
            raise ValueError(f"{name} has the labels {METRICS[name].labels}")
        buckets, seen = [], 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            seen += count
            buckets.append(("+Inf" if bound == float("inf") else f"{bound * scale:.10g}", seen))
        self._families[name].add_metric(labels, buckets, sum_value=histogram.total * scale)

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        return self._families.values()

    def text(self) -> bytes:
        """All of it in Prometheus' text format, with what the operating system says of the process."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        return bytes(generate_latest(registry))


_FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
