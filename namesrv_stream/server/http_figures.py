"""What the HTTP port counts of itself."""

from collections import Counter
from typing import Final

from namesrv_stream.metrics import Samples

#: Counted from zero, so that the first event is seen as a rise.
_EVENTS: Final = (
    *("connection_refused", "request_broken", "request_late", "request_refused", "host_refused"),
    *("stream_refused", "slow_reader", "answer_failed"),
)
_RESETS: Final = ("tables", "too_old")


class HttpFigures:
    """Plain numbers, read at a scrape.

    Attributes:
        inflight: Requests being answered, streams not among them.
        streams: Followers of /changes, those that wait for an answer included.
    """

    def __init__(self) -> None:
        self.inflight = 0
        self.streams = 0
        self._answers: Counter[tuple[str, int]] = Counter()
        self._events: Counter[str] = Counter(dict.fromkeys(_EVENTS, 0))
        self._resets: Counter[str] = Counter(dict.fromkeys(_RESETS, 0))

    def answered(self, route: str, status: int) -> None:
        """One answer; ``route`` is its template, of which there are few, and not its path."""
        self._answers[route, status] += 1

    def event(self, name: str) -> None:
        """A peer was turned away."""
        self._events[name] += 1

    def reset(self, reason: str) -> None:
        """A follower of /changes had to begin anew."""
        self._resets[reason] += 1

    def sample(self, samples: Samples, connections: int) -> None:
        """Add all figures to a scrape."""
        for (route, status), count in sorted(self._answers.items()):
            samples.add("rocketmq_namesrv_http_requests_total", count, route, str(status))
        for event, count in sorted(self._events.items()):
            samples.add("rocketmq_namesrv_http_events_total", count, event)
        for reason, count in sorted(self._resets.items()):
            samples.add("rocketmq_namesrv_change_resets_total", count, reason)
        samples.add("rocketmq_namesrv_http_inflight", self.inflight)
        samples.add("rocketmq_namesrv_http_connections", connections)
        samples.add("rocketmq_namesrv_change_streams", self.streams)
