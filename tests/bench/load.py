"""Puts a load on a name server with the compiled load generator, and returns the measurements.

A stream without a rate is a closed loop: a user sends the next request when it has its answer. While the server is
stalled, no user sends a request, so a long stall counts as few slow requests. Rows that measure stalls use a rate: then
each request's latency counts from the time at which it was due.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

#: Seconds that a run may take beyond its planned duration; the load generator waits 120 s for the preparation.
_GRACE_S: Final = 130


class Choice(StrEnum):
    """How the next frame of a kind is chosen."""

    UNIFORM = "uniform"
    ZIPF = "zipf"
    IN_TURN = "turn"
    ONCE = "once"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request.

    Attributes:
        name: Its name in the result.
        frames: A file that ``write_frames`` has written.
        choice: How the next frame is chosen.
        share: Its share of the stream's requests, relative to the shares of the other kinds.
        has_body: Whether an answer without a JSON object in its body is an error.
    """

    name: str
    frames: Path
    choice: Choice = Choice.UNIFORM
    share: float = 1
    has_body: bool = False

    def __str__(self) -> str:
        """Return the text that the load generator reads."""
        return f"{self.name}:{self.frames}:{self.choice}:{self.share!r}:{'body' if self.has_body else 'any'}"


@dataclass(frozen=True, slots=True)
class Stream:
    """Users that send requests.

    Attributes:
        kinds: Kinds of their requests.
        connections: Number of their connections; 0 if all frames go over links.
        depth: Users per connection, or in total if there are none; each has at most one outstanding request.
        rate: Requests per second; 0 for a closed loop.
        at_s: Start in seconds after the beginning of the measurement; None: the stream starts with the warm-up.
    """

    kinds: tuple[Kind, ...]
    connections: int
    depth: int = 1
    rate: float = 0
    at_s: float | None = None

    def __str__(self) -> str:
        """Return the text that the load generator reads."""
        at = "" if self.at_s is None else f":{self.at_s!r}"
        return f"{self.connections}:{self.depth}:{self.rate!r}{at}"


@dataclass(frozen=True, slots=True)
class Load:
    """One run.

    Attributes:
        streams: The streams of requests.
        before: Requests that are sent once and answered before the load, such as registrations; their connections stay
            open until the end.
        seconds: Duration of the measurement.
        warm_up_s: Seconds of the same load before the measurement.
        drain_s: Seconds to wait for the last answers.
        seed: Seed of all random choices.
    """

    streams: tuple[Stream, ...]
    before: Kind | None = None
    seconds: float = 5
    warm_up_s: float = 1
    drain_s: float = 10
    seed: int = 1


@dataclass(frozen=True, slots=True)
class KindSeen:
    """The measurements of one kind of request; latencies in µs.

    Attributes:
        sent: Requests sent during the measurement.
        answered: Answers since the beginning of the measurement, including those to its last requests.
        per_second: Answers per second during the measurement.
        span_s: Seconds from when the first answered request was due to the last answer.
        refused: Answers with another code than 0; the last such code is ``last_refusal``.
        empty: Answers without the required body.
        lost: Requests that got no answer.
        histogram_ns: Pairs of a latency in ns and the number of answers with it.
    """

    sent: int
    answered: int
    per_second: float
    span_s: float
    mean_us: float
    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float
    bytes_sent: int
    bytes_received: int
    refused: int
    last_refusal: int
    empty: int
    lost: int
    histogram_ns: tuple[tuple[int, int], ...] = field(repr=False)

    def slower_than(self, us: float) -> int:
        """Return the number of answers that took longer."""
        return sum(count for ns, count in self.histogram_ns if ns > us * 1000)

    def summary(self) -> dict[str, float]:
        """Return all measurements but the histogram."""
        return {name: value for name, value in asdict(self).items() if name != "histogram_ns"}


@dataclass(frozen=True, slots=True)
class Seen:
    """The measurements of a run.

    Attributes:
        seconds: Duration of the measurement.
        before_s: Seconds that ``Load.before`` took.
        cpu_s: The load generator's own processor time during the measurement.
        longest_turn_us: The longest that answers may have waited for the load generator itself, µs.
        mismatched: Answers over a connection without a matching request.
        malformed: Frames that are invalid or not answers.
        disconnected: Connections that the server closed.
        unanswered: Requests without an answer ``Load.drain_s`` after the end.
        unsent: Requests that were due by the rate and never sent, because all users were waiting.
        kinds: The measurements of each kind, by name.
    """

    seconds: float
    before_s: float
    cpu_s: float
    longest_turn_us: float
    mismatched: int
    malformed: int
    disconnected: int
    unanswered: int
    unsent: int
    kinds: Mapping[str, KindSeen]

    @property
    def errors(self) -> int:
        """Return the number of all errors; a broken connection and its unanswered requests count separately."""
        refused = sum(kind.refused + kind.empty + kind.lost for kind in self.kinds.values())
        return refused + self.mismatched + self.malformed + self.disconnected


def run_load(program: Path, addr: str, load: Load) -> Seen:
    """Put a load on a name server.

    Args:
        program: The compiled load generator.
        addr: ``host:port`` of the name server.
        load: The load.

    Returns:
        The measurements, including errors.

    Raises:
        subprocess.CalledProcessError: It could not connect, or the preparation was not answered.
    """
    printed = subprocess.run(
        command(program, addr, load),
        check=True,
        stdout=subprocess.PIPE,
        timeout=load.seconds + load.warm_up_s + load.drain_s + _GRACE_S,
    ).stdout
    return _seen(json.loads(printed))


def command(program: Path, addr: str, load: Load) -> list[str]:
    """Return the command line of a run."""
    host, _, port = addr.rpartition(":")
    options = {"--seed": load.seed, "--warm-up": load.warm_up_s, "--seconds": load.seconds, "--drain": load.drain_s}
    parts = [str(program), host, port, *(str(part) for option in options.items() for part in option)]
    if load.before is not None:
        parts += ["--before", str(load.before)]
    for stream in load.streams:
        parts += ["--stream", str(stream)]
        for kind in stream.kinds:
            parts += ["--kind", str(kind)]
    return parts


def _seen(printed: dict[str, Any]) -> Seen:
    kinds = {
        name: KindSeen(**{**kind, "histogram_ns": tuple((ns, count) for ns, count in kind["histogram_ns"])})
        for name, kind in printed.pop("kinds").items()
    }
    return Seen(**{one.name: printed[one.name] for one in fields(Seen) if one.name != "kinds"}, kinds=kinds)
