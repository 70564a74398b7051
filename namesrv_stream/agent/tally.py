"""What an agent has done so far, for its status line and for tests."""

from collections import deque
from dataclasses import dataclass, field

_LATENCIES_KEPT = 10_000  # the newest registrations; enough for a p99 of 100 of them


@dataclass(slots=True)
class Tally:
    """Counts since the start. A link is one (broker, name server).

    Attributes:
        links: All of them.
        connected: Those with a connection.
        registered: Those whose newest registration was accepted over the connection they have.
        registrations: Accepted registrations.
        refused: Registrations answered with an error.
        timed_out: Registrations that were not answered in time.
        connections_lost: Connections that ended though nobody here wanted it.
        unregistered: Accepted unregistrations.
        latencies_ms: Of the newest registrations, milliseconds.
    """

    links: int = 0
    connected: int = 0
    registered: int = 0
    registrations: int = 0
    refused: int = 0
    timed_out: int = 0
    connections_lost: int = 0
    unregistered: int = 0
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES_KEPT))

    def latency_ms(self, quantile: float) -> float:
        """A quantile of the newest registrations' latency, milliseconds; 0 before the first."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(int(len(ordered) * quantile), len(ordered) - 1)] if ordered else 0.0

    def line(self) -> str:
        """One line for people."""
        return (
            f"connected={self.connected}/{self.links} registered={self.registered}/{self.links}"
            f" registrations={self.registrations} refused={self.refused} timed_out={self.timed_out}"
            f" connections_lost={self.connections_lost}"
            f" latency_p50_ms={self.latency_ms(0.5):.1f} latency_p99_ms={self.latency_ms(0.99):.1f}"
        )
