"""When a broker that is being drained can be stopped: a pure function of the answers of name servers and broker.

A broker is safe to stop if all of these are true:

- No name server has answered with its write permission for two poll intervals of the clients, so every client that
  polls has replaced the old route.
- The broker has stored no message for the quiet time, according to its own counter. This covers clients that poll less
  often or not at all, and requests under way.
- All name servers and the broker answered the last time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from namesrv_stream.instants import duration
from namesrv_stream.text_table import counted

#: After this many poll intervals a client has replaced an old route, even if one poll fails.
POLLS: Final = 2
#: Servers share a wipe within a second. If one still has the permission after this time, a registration restored it.
_PATIENCE_MS: Final = 5_000


class Step(StrEnum):
    """The steps of a drain, in order."""

    WIPING = "wiping"  # some name server still answers with the write permission
    POLLING = "polling"  # no name server does; clients may still have the old route
    QUIETING = "quieting"  # clients have polled; the broker still stores messages, or a peer does not answer
    SAFE = "safe"


class PutCounter(NamedTuple):
    """Number of messages, of all topics, that a broker has stored since its process started; and that start."""

    started: str
    puts: int


@dataclass(frozen=True, slots=True)
class Observation:
    """The answers of all peers (name servers and the broker) to one round of queries; times in milliseconds.

    Attributes:
        began_ms: When the first peer was asked, by a monotonic clock.
        ended_ms: When the last one had answered or failed, by the same clock.
        writable: Name server → number of the broker's topics that it answers with the write permission.
        unanswered: Name server → why it did not answer.
        counter: The broker's counter; None if the broker did not answer.
        broker_failure: Why the broker did not answer; "" if it did.
    """

    began_ms: int
    ended_ms: int
    writable: Mapping[str, int]
    unanswered: Mapping[str, str] = field(default_factory=dict)
    counter: PutCounter | None = None
    broker_failure: str = ""


@dataclass(frozen=True, slots=True)
class DrainState:
    """What is known after the observations so far; times are in milliseconds of a monotonic clock.

    Attributes:
        poll_interval_ms: Interval at which clients query routes.
        quiet_ms: How long the broker must store no message to count as quiet.
        wiped_at_ms: Time of the last wipe.
        wipes: Number of wipes.
        hidden_at_ms: Since when no name server answers with the write permission; None if one does.
        put_at_ms: When the counter was last seen to have changed; its first reading counts as a change. None if the
            broker has never answered.
        must_wipe: Whether a registration has restored the permission, so that it must be wiped again.
        counter: The last known counter.
        last: The last observation; None before the first.
    """

    poll_interval_ms: int
    quiet_ms: int
    wiped_at_ms: int
    wipes: int = 1
    hidden_at_ms: int | None = None
    put_at_ms: int | None = None
    must_wipe: bool = False
    counter: PutCounter | None = None
    last: Observation | None = None

    def after(self, seen: Observation) -> "DrainState":
        """Return the state after an observation."""
        is_writable = any(seen.writable.values())
        hidden_at_ms = self.hidden_at_ms
        if is_writable:
            hidden_at_ms = None
        elif hidden_at_ms is None and not seen.unanswered:
            hidden_at_ms = seen.ended_ms
        counter, put_at_ms = self.counter, self.put_at_ms
        if seen.counter is not None and seen.counter != counter:
            counter, put_at_ms = seen.counter, seen.ended_ms
        is_restored = self.hidden_at_ms is not None or seen.ended_ms - self.wiped_at_ms >= _PATIENCE_MS
        return replace(
            self,
            hidden_at_ms=hidden_at_ms,
            put_at_ms=put_at_ms,
            must_wipe=is_writable and is_restored,
            counter=counter,
            last=seen,
        )

    def wiped_again(self, at_ms: int) -> "DrainState":
        """Return the state after another wipe."""
        return replace(self, wiped_at_ms=at_ms, wipes=self.wipes + 1, must_wipe=False)

    @property
    def step(self) -> Step:
        """The present step."""
        if self.last is None or self.hidden_at_ms is None:
            return Step.WIPING
        if self.poll_left_ms > 0:
            return Step.POLLING
        return Step.QUIETING if self.obstacles() else Step.SAFE

    @property
    def poll_left_ms(self) -> int:
        """For how many more milliseconds clients may have the old route, if nothing restores the permission."""
        return max(0, POLLS * self.poll_interval_ms - (self.hidden_for_ms or 0))

    @property
    def hidden_for_ms(self) -> int | None:
        """For how long no name server has answered with the write permission; None if one does."""
        return self._since(self.hidden_at_ms)

    @property
    def quiet_for_ms(self) -> int | None:
        """How long the broker has stored no message, at least; None if the broker has never answered."""
        return self._since(self.put_at_ms)

    def _since(self, at_ms: int | None) -> int | None:
        # A state seen at the end of one observation is proved only until the beginning of the next.
        return None if self.last is None or at_ms is None else max(0, self.last.began_ms - at_ms)

    def obstacles(self) -> Sequence[str]:
        """Return why the broker cannot be stopped yet, a clause for each reason; none if it can."""
        seen = self.last
        if seen is None:
            return ["nothing is known yet"]
        found = [f"name server {addr} does not answer ({why})" for addr, why in seen.unanswered.items()]
        for addr, topics in seen.writable.items():
            if topics:
                found.append(f"name server {addr} answers with the write permission for {counted(topics, 'topic')}")
        if self.hidden_at_ms is not None and self.poll_left_ms:
            found.append(f"clients may have the old route for another {duration(self.poll_left_ms)}")
        if seen.counter is None:
            found.append(f"the broker does not answer ({seen.broker_failure})")
        elif self.quiet_for_ms is not None and self.quiet_for_ms < self.quiet_ms:
            quiet = f"{duration(self.quiet_for_ms)} of {duration(self.quiet_ms)}"
            found.append(f"the broker has stored no message for {quiet}")
        return found
