"""The values of metrics: counters, histograms, and their output in Prometheus' text format."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from namesrv_stream.metric_catalogue import METRICS

#: The type of the text that ``Samples.text`` returns.
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
#: Upper bounds of latencies in nanoseconds. 1, 3, 5, 10 and 100 ms, 1 and 3 s are those of RocketMQ's own
#: rocketmq_rpc_latency.
LATENCY_BOUNDS_NS: Final = tuple(
    int(ms * 1_000_000) for ms in (0.05, 0.1, 0.25, 0.5, 1, 3, 5, 10, 25, 50, 100, 250, 1_000, 3_000)
)


class Histogram:
    """Counts values by upper bound; adding a value costs one search in a short tuple.

    Attributes:
        bounds: Upper bounds, ascending; values above the last one are counted separately.
        counts: Number of values by bound; the last item counts those above all bounds.
        total: Sum of the values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float], counts: Iterable[int] = (), total: float = 0) -> None:
        self.bounds = tuple(bounds)
        self.counts = list(counts) or [0] * (len(self.bounds) + 1)
        self.total = total

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Counters:
    """Counts events by counter (a name in ``METRICS``) and label values; belongs to one event loop.

    A name that is not in ``METRICS``, or a wrong number of labels, is a bug.
    """

    def __init__(self) -> None:
        zeros = ((name, *labels) for name, metric in METRICS.items() for labels in metric.from_zero)
        self._counts: Counter[tuple[str, ...]] = Counter(dict.fromkeys(zeros, 0))

    def count(self, name: str, *labels: str) -> None:
        """Add one to a metric with these label values."""
        _check_labels(name, labels)
        self._counts[name, *labels] += 1

    def value(self, name: str, *labels: str) -> int:
        """Return the count of a metric with these label values."""
        return self._counts[name, *labels]

    def sample(self, samples: "Samples") -> None:
        """Add all counts to a scrape."""
        for (name, *labels), count in sorted(self._counts.items()):
            samples.add(name, count, *labels)


class Samples(Collector):
    """The values of one scrape; a name that is not in ``METRICS``, or a wrong number of labels, is a bug."""

    def __init__(self) -> None:
        self._families = {name: _FAMILIES[m.kind](name, m.text, labels=m.labels) for name, m in METRICS.items()}

    def add(self, name: str, value: float, *labels: str) -> None:
        """Append a sample of a counter or gauge."""
        _check_labels(name, labels)
        self._families[name].add_metric(labels, value)

    def add_histogram(self, name: str, histogram: Histogram, scale: float, *labels: str) -> None:
        """Append a histogram; ``scale`` converts its values to the unit of the metric."""
        _check_labels(name, labels)
        buckets, seen = [], 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            seen += count
            buckets.append(("+Inf" if bound == float("inf") else f"{bound * scale:.10g}", seen))
        self._families[name].add_metric(labels, buckets, sum_value=histogram.total * scale)

    def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        return self._families.values()

    def text(self) -> bytes:
        """Return all values in Prometheus' text format, with those that the operating system has about the process."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        return bytes(generate_latest(registry))


_FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


def _check_labels(name: str, labels: Sequence[str]) -> None:
    if len(labels) != len(METRICS[name].labels):
        raise ValueError(f"{name} has the labels {METRICS[name].labels}")
