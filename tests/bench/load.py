"""Puts a load on a name server with the compiled load generator and tells what came of it.

Where a stream has no rate the loop is closed: a user asks again when he has his answer, so while the server stands
still nobody asks, and a long stop counts as few slow requests. The rows that look for such stops use a rate: then each
request's latency counts from when it was due.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

#: Seconds that a run may take beyond what it was asked for: the load generator waits 120 for what comes before.
_GRACE_S: Final = 130


class Choice(StrEnum):
    """Which frame of a kind is sent next."""

    UNIFORM = "uniform"
    ZIPF = "zipf"
    IN_TURN = "turn"
    ONCE = "once"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request.

    Attributes:
        name: For the result.
        frames: A file that ``write_frames`` wrote.
        choice: See there.
        share: Of its stream's requests, relative to the shares of the others.
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
    """Users who ask.

    Attributes:
        kinds: What they ask.
        connections: Connections of theirs; 0 where all frames go over links.
        depth: Users on each, or in all where there are none; each has one request outstanding at most.
        rate: Requests a second; 0 for a closed loop.
        at_s: Seconds after the beginning of the measurement; None: with the warm-up.
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
        streams: Who asks.
        before: Sent once and answered before all else, such as registrations; their connections stay until the end.
        seconds: Time measured.
        warm_up_s: Seconds of the same load before that.
        drain_s: Seconds to wait for the last answers.
        seed: Of all choices.
    """

    streams: tuple[Stream, ...]
    before: Kind | None = None
    seconds: float = 5
    warm_up_s: float = 1
    drain_s: float = 10
    seed: int = 1


@dataclass(frozen=True, slots=True)
class KindSeen:
    """What came of one kind of request; latencies in µs.

    Attributes:
        sent: Requests sent in the time measured.
        answered: Answers since the measurement began, those to its last requests included.
        per_second: Answers a second within it.
        span_s: Seconds from when the first answered request was due to the last answer.
        refused: Answers with another code than 0; the last such code is ``last_refusal``.
        empty: Answers without the body that belongs to them.
        lost: Requests that got no answer.
        histogram_ns: Pairs of latency in ns and how many had it.
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
        """How many took longer."""
        return sum(count for ns, count in self.histogram_ns if ns > us * 1000)

    def summary(self) -> dict[str, float]:
        """All but the histogram."""
        return {name: value for name, value in asdict(self).items() if name != "histogram_ns"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of a run.

    Attributes:
        seconds: Time measured.
        before_s: Seconds that ``Load.before`` took.
        cpu_s: The load generator's own processor time within the time measured.
        longest_turn_us: The longest that answers may have waited for the load generator itself, µs.
        mismatched: Answers to what nobody had asked there.
        malformed: Bytes that are no frame, or no answer.
        disconnected: Connections that the server closed.
        unanswered: Requests without an answer ``Load.drain_s`` after the end.
        unsent: Requests that were due by the rate and never sent, because all users were waiting.
        kinds: By name.
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
        """All of them; a request that got no answer because its connection broke counts beside that."""
        refused = sum(kind.refused + kind.empty + kind.lost for kind in self.kinds.values())
        return refused + self.mismatched + self.malformed + self.disconnected


def run_load(program: Path, addr: str, load: Load) -> Seen:
    """Put a load on a name server.

    Args:
        program: The compiled load generator.
        addr: ``host:port`` of the name server.
        load: What to ask.

    Returns:
        What it saw, errors included.

    Raises:
        subprocess.CalledProcessError: It could not connect, or got no answer to what comes before.
    """
    printed = subprocess.run(
        command(program, addr, load),
        check=True,
        stdout=subprocess.PIPE,
        timeout=load.seconds + load.warm_up_s + load.drain_s + _GRACE_S,
    ).stdout
    return _seen(json.loads(printed))


def command(program: Path, addr: str, load: Load) -> list[str]:
    """The command line of a run."""
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
