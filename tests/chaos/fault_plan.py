"""Plans of faults; the seed determines a plan."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.chaos.parts import ALL, JOB, KAFKA, SERVERS

KILL: Final = "kill"
KILL_JVM: Final = "kill_jvm"
FREEZE: Final = "freeze"
CUT: Final = "cut"
DISK_FULL: Final = "disk_full"
DUPLICATE: Final = "duplicate"
REORDER: Final = "reorder"
POISON: Final = "poison"
QUIET: Final = "quiet"

#: Faults of the log's content, which need no repair.
LIES: Final = (DUPLICATE, REORDER, POISON)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        parts: The affected parts.
        hold_s: Duration of the fault.
        pause_s: Pause from the end of this fault to the next one; parts may still be starting then.
    """

    kind: str
    parts: tuple[str, ...] = ()
    hold_s: float = 0.0
    pause_s: float = 0.0

    @property
    def kills(self) -> int:
        """Number of processes that the plan kills."""
        return len(self.parts) if self.kind == KILL else int(self.kind == KILL_JVM)


def short_plan(seed: int, timeout_s: float) -> tuple[Fault, ...]:
    """Plan each kind of fault once, in an order chosen by the seed; faults of servers come while the job restarts.

    Args:
        seed: Any number.
        timeout_s: A broker's usual timeout; Kafka is unavailable for one and a half of it, like 3 minutes of 120 s.
    """
    draw = random.Random(seed)
    first, second = draw.sample(SERVERS, 2)
    before = [Fault(FREEZE, (JOB,), 3.0, 0.5), Fault(KILL, (KAFKA,), 1.5 * timeout_s, 0.5)]
    servers = [
        Fault(KILL, (first,), 1.0, 0.5),
        Fault(CUT, (second,), 4.0, 0.5),
        Fault(FREEZE, (second,), 4.0, 0.5),
    ]
    lies = [Fault(lie, pause_s=0.2) for lie in LIES]
    return (
        *draw.sample(before, len(before)),
        Fault(KILL, ALL, 0.5, 1.0),
        *draw.sample(servers, len(servers)),
        *draw.sample(lies, len(lies)),
    )


def long_plan(seed: int, kills: int, timeout_s: float) -> tuple[Fault, ...]:
    """Plan random faults until they have ``kills`` kills, with quiet periods in which lags are measured."""
    draw = random.Random(f"{seed}/plan")
    faults: list[Fault] = []
    while sum(fault.kills for fault in faults) < kills:
        faults += draw.sample(_hand(draw, timeout_s), 7)
        faults.append(Fault(QUIET, hold_s=2 * timeout_s))
    return tuple(faults)


def _hand(draw: random.Random, timeout_s: float) -> list[Fault]:
    """Return the faults to choose from, with random parameters; kills and freezes are included more than once."""

    def hold_s(most: float) -> float:
        # From very short to long; most durations are short.
        return round(0.2 + (most - 0.2) * draw.random() ** 3, 1)

    def pause_s() -> float:
        return round(draw.choice((0.0, 0.5, 3.0, timeout_s)) * draw.random(), 1)

    def one(kind: str, parts: Iterable[str], most_s: float) -> Fault:
        return Fault(kind, (draw.choice(tuple(parts)),), hold_s(most_s), pause_s())

    some = tuple(sorted(draw.sample(ALL, draw.randint(2, 3))))
    return [
        *(one(KILL, ALL, 2 * timeout_s) for _ in range(4)),
        *(one(FREEZE, ALL, 6 * timeout_s) for _ in range(3)),
        Fault(KILL, some, hold_s(timeout_s), pause_s()),
        Fault(FREEZE, some, hold_s(2 * timeout_s), pause_s()),
        Fault(KILL, ALL, hold_s(timeout_s), pause_s()),
        Fault(FREEZE, ALL, hold_s(4 * timeout_s), pause_s()),
        Fault(KILL, (KAFKA,), 1.5 * timeout_s, pause_s()),
        Fault(KILL_JVM, (JOB,), 0.0, pause_s()),
        Fault(DISK_FULL, (JOB,), hold_s(3 * timeout_s) + 2, pause_s()),
        *(one(CUT, SERVERS, 3 * timeout_s) for _ in range(2)),
        *(Fault(lie, pause_s=pause_s()) for lie in LIES),
    ]
