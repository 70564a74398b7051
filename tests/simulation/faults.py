"""Injects faults at random moments. Between its beginning and its end, a fault *disturbs* the installation."""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

from tests.simulation.costly_peers import COSTLY_PEERS
from tests.simulation.fleet import Fleet, Slot
from tests.simulation.operators import Clients
from tests.simulation.part_faults import LAST_FAULTS, PART_FAULTS, End
from tests.simulation.peer_faults import PEER_FAULTS
from tests.simulation.runtime.process import SECOND
from tests.simulation.world import Part, World

#: The faults that a seed draws from.
KINDS: Final = {**PART_FAULTS, **PEER_FAULTS, **COSTLY_PEERS}
#: What brokers do themselves, and what no part notices: the installation must work as well as without them.
HARMLESS: Final = frozenset(
    {"brokers die", "brokers restart", "unreadable records", "tables backed up", "signing clients", *COSTLY_PEERS}
)
#: While one of these is active, a server may start without the end of the log.
OF_KAFKA: Final = frozenset(
    {kind for kind in KINDS if "Kafka" in kind} | {*LAST_FAULTS, "partition without leader", "acknowledgements lost"}
)
NO_LEADER: Final = "partition without leader"
PERIOD: Final = 150
#: Two servers with one id run at least so long, unless one of them ends.
_REFUSAL: Final = 170 * SECOND
#: Kafka does not answer for at least so long when it loses records or the topic: it starts again, or elects a leader.
_LOSS: Final = 3 * SECOND


@dataclass(frozen=True, slots=True)
class Tempo:
    """How often faults begin, and how long they last; a seed draws one. Times are seconds before they are scaled.

    Attributes:
        mean_interval: Mean time between two faults.
        durations: A fault lasts about one of these times.
        burst: Faults begin in the first so many seconds of each ``PERIOD``.
    """

    mean_interval: float
    durations: tuple[float, ...] = (0.3, 2, 6, 20, 60, 150)
    burst: int = PERIOD


#: Slow faults, some of which are longer than every timeout, and bursts of short ones.
TEMPOS: Final = (
    Tempo(8),
    Tempo(30),
    Tempo(0.15, (0.02, 0.05, 0.2, 0.5), burst=30),
    Tempo(0.2, (0.02, 0.1, 0.3, 1, 2), burst=50),
    Tempo(0.4, (0.05, 0.3, 1, 2, 6), burst=90),
)


class Faults:
    """Injects faults at random moments.

    Attributes:
        counts: Number of injected faults by kind.
        active: Kinds of the faults that have not ended.
    """

    def __init__(self, world: World, fleet: Fleet, clients: Clients, kinds: list[str], tempo: Tempo) -> None:
        self.world, self.fleet, self.clients, self._tempo = world, fleet, clients, tempo
        self.draws: random.Random = world.scheduler.random
        self.counts: Counter[str] = Counter()
        self.leaderless = 0  # the partition that had no leader last
        self._kafka_fails_since = 0
        self._kinds = kinds
        self._ends: dict[int, tuple[str, End]] = {}
        self._numbers = iter(range(1 << 30))

    @property
    def active(self) -> list[str]:
        return [kind for kind, _ in self._ends.values()]

    def schedule(self, begin: int, end: int, unit: int) -> None:
        """Inject faults between two times, which are multiples of ``unit``."""
        at = float(begin)
        while True:
            at += self.draws.expovariate(1 / self._tempo.mean_interval) * unit
            if at >= end:
                return
            if (at - begin) / unit % PERIOD < self._tempo.burst:
                self.world.scheduler.at(round(at), None, self._inject_any)

    def _inject_any(self) -> None:
        self.inject(self.draws.choice(self._kinds))

    def inject(self, kind: str) -> None:
        if kind in self.active:
            return
        end = {**KINDS, **LAST_FAULTS}[kind](self)
        if end is None:
            return
        self.world.scheduler.trace(f"fault {kind}")
        self.counts[kind] += 1
        number = next(self._numbers)
        self._ends[number] = (kind, end)
        self._disturb(kind)
        self.world.scheduler.after(self._duration(kind), lambda: self._end(number))

    def _duration(self, kind: str) -> int:
        if kind == "server with the same id":
            return _REFUSAL * self.world.plan.scale
        longest = self.world.plan.scale
        scale = self.draws.choice((1, longest if kind in HARMLESS else min(longest, 30)))
        drawn = round(self.draws.choice(self._tempo.durations) * scale * (0.5 + self.draws.random()) * SECOND)
        return max(drawn, _LOSS * longest) if kind in LAST_FAULTS else drawn

    def _end(self, number: int) -> None:
        found = self._ends.pop(number, None)
        if found is not None:
            self.world.scheduler.trace(f"fault {found[0]} ends")
            found[1]()
            self._disturb(found[0])
            disturbing = [kind for kind in self.active if kind not in HARMLESS]
            if all(kind == NO_LEADER for kind in disturbing):
                self.world.calm(self.leaderless if disturbing else None)

    def _disturb(self, kind: str) -> None:
        """A partition without a leader disturbs no other one."""
        if kind in OF_KAFKA:
            is_active = not OF_KAFKA.isdisjoint(self.active)
            if is_active and self.world.kafka_since is not None:
                self._kafka_fails_since = self.world.scheduler.now
            elif not is_active and self.world.kafka_since is None:
                self.world.stalls.append(("Kafka", self._kafka_fails_since, self.world.scheduler.now))
            self.world.kafka_since = None if is_active else self.world.scheduler.now
        if kind not in HARMLESS:
            self.world.disturbed(self.leaderless if kind == NO_LEADER else None)

    def end_all(self) -> None:
        for number in list(self._ends):
            self._end(number)

    # ---- draws ----

    def server(self) -> Part:
        return self.draws.choice(self.world.servers)

    def brokers(self) -> list[Slot]:
        """Return one broker, a part of them, those of a cluster, or all."""
        slots = self.fleet.slots
        how = self.draws.randrange(4)
        if how == 0:
            return [self.draws.choice(slots)]
        if how == 1:
            return [slot for slot in slots if self.draws.random() < 0.3]
        if how == 2:
            cluster = self.draws.choice(slots).cluster
            return [slot for slot in slots if slot.cluster == cluster]
        return list(slots)
