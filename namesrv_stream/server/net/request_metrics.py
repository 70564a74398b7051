"""Counts and latencies of requests. They are plain numbers, so counting is cheap enough for every request."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from operator import add
from typing import Final

from namesrv_stream.metrics import LATENCY_BOUNDS_NS, Histogram, Samples
from namesrv_stream.remoting.command import RequestCode, ResponseCode

ROUTE: Final = (int(RequestCode.GET_ROUTEINFO_BY_TOPIC), int(ResponseCode.SUCCESS))

#: Classes of requests, as rocketmq-rust names them: a route query of a client, requests by or about brokers. All
#: others are ``admin``, even those that change nothing.
_TYPE_OF: Final[Mapping[int, str]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: "route-read",
    **dict.fromkeys(
        (
            RequestCode.REGISTER_BROKER,
            RequestCode.UNREGISTER_BROKER,
            RequestCode.QUERY_DATA_VERSION,
            RequestCode.BROKER_HEARTBEAT,
            RequestCode.GET_BROKER_MEMBER_GROUP,
            RequestCode.GET_BROKER_CLUSTER_INFO,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        ),
        "broker-control",
    ),
}
_RESULT_OF: Final[Mapping[int, str]] = {
    ResponseCode.SUCCESS: "success",
    **dict.fromkeys((ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION, ResponseCode.GO_AWAY), "rejected"),
}
_UNKNOWN: Final = -1  # keeps the number of series bounded, whatever codes peers send


class RequestMetrics:
    """Counts and latencies by request and response code.

    Args:
        lane: Returns the figures of the route queries that the lane answered: counts by ``LATENCY_BOUNDS_NS``, followed
            by the count above the last bound, and their total nanoseconds.
    """

    __slots__ = ("_by_code", "_lane")

    def __init__(self, lane: Callable[[], tuple[Sequence[int], float]] | None = None) -> None:
        self._lane = lane
        self._by_code = {ROUTE: Histogram(LATENCY_BOUNDS_NS)}

    def answered(self, request_code: int, response_code: int, took_ns: int) -> None:
        """Count an answer, and ``took_ns``, the time since the processing of its request began."""
        histogram = self._by_code.get((request_code, response_code))
        if histogram is None:
            request_code = request_code if request_code in _REQUEST_CODES else _UNKNOWN
            histogram = self._by_code.setdefault((request_code, response_code), Histogram(LATENCY_BOUNDS_NS))
        histogram.add(took_ns)

    def count(self, response_code: ResponseCode) -> int:
        return sum(sum(found.counts) for (_, response), found in self._with_lane().items() if response == response_code)

    def sample(self, samples: Samples) -> None:
        route = Histogram(LATENCY_BOUNDS_NS)
        for (request_code, response_code), histogram in sorted(self._with_lane().items()):
            request, response = _name(RequestCode, request_code), _name(ResponseCode, response_code)
            kind, result = _TYPE_OF.get(request_code, "admin"), _RESULT_OF.get(response_code, "error")
            samples.add("rocketmq_namesrv_requests_total", sum(histogram.counts), kind, request, response, result)
            samples.add_histogram("rocketmq_rpc_latency", histogram, 1e-6, "nameserver", "remoting", request, response)
            if request_code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                route = _sum(route, histogram.counts, histogram.total)
        samples.add_histogram("rocketmq_namesrv_route_end_to_end_latency", route, 1e-3)

    def _with_lane(self) -> Mapping[tuple[int, int], Histogram]:
        if self._lane is None:
            return self._by_code
        return {**self._by_code, ROUTE: _sum(self._by_code[ROUTE], *self._lane())}


def _sum(histogram: Histogram, counts: Sequence[int], total: float) -> Histogram:
    return Histogram(LATENCY_BOUNDS_NS, map(add, histogram.counts, counts), histogram.total + total)


_REQUEST_CODES: Final = frozenset(map(int, RequestCode))


def _name(codes: type[IntEnum], code: int) -> str:
    """Return RocketMQ's label for a code: the constant's name in lower case."""
    try:
        return codes(code).name.lower()
    except ValueError:
        return "unknown"
