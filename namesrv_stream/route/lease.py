"""A broker process as the fold keeps it alive, and the clocks that it ages by."""

from dataclasses import dataclass, field
from typing import NamedTuple

from namesrv_stream.route.hold import Hold
from namesrv_stream.route.model import Holder, LiveKey


class LeaseKey(NamedTuple):
    """One broker process: a broker name with its key in brokerLiveTable."""

    broker_name: str
    live_key: LiveKey


@dataclass(slots=True)
class LeaseHolder:
    """One server's hold on a broker.

    Attributes:
        seen_ms: That server's observed time when it last heard the broker.
        heard_ms: The partition's observed time then.
        queued_ms: Deadline under which the holder stands in its server's queue; the true one is never earlier.
    """

    holder: Holder
    seen_ms: int
    heard_ms: int
    queued_ms: int = -1


@dataclass(slots=True)
class Lease:
    """Liveness of one broker process.

    Attributes:
        asked_timeout_ms: What the broker asked for; None for the default.
        settled: Whether folding its registration once more would change nothing.
        ended_heard_ms: Partition time at which those servers last had heard the broker that have ended their hold.
        hold: That the guard keeps it; None where there is no need.
        released: An operator knows that it is dead: the guard keeps it no more, unless it is heard.
    """

    asked_timeout_ms: int | None
    registration_hash: str
    settled: bool = False
    holders: dict[str, LeaseHolder] = field(default_factory=dict)
    ended_heard_ms: int | None = None
    hold: Hold | None = None
    released: bool = False


class RecentClose(NamedTuple):
    """A broker that went with its last connection a moment ago, for the case that it was one of many.

    Attributes:
        closed_ms: Observed time of the server at which it was closed.
        reason: As the server told it.
        lease: As it was.
    """

    key: LeaseKey
    closed_ms: int
    reason: str
    lease: Lease


@dataclass(slots=True)
class ServerClock:
    """Observed time of one server, which is what its brokers age by.

    Attributes:
        server_epoch: Of its newest start.
        observed_ms: Sum of the steps between its records, each cut at ``max_gap_ms``.
        previous_at_ms: LogAppendTime of its last record, even where that was lower than one before.
        heard_ms: The partition's observed time at its last record.
        silent: Whether nothing came from it for ``server_silent_ms`` while others talked.
        lost: Whether nothing came for ``server_lost_ms``; it then holds nothing.
        closes: Of the last ``guard_close_window_ms`` of its time, oldest first.
    """

    server_epoch: int
    observed_ms: int
    previous_at_ms: int
    heard_ms: int
    silent: bool = False
    lost: bool = False
    closes: list[RecentClose] = field(default_factory=list)
