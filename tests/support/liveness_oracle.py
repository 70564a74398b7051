"""Who lives, held by whom and kept by the guard: by the definitions, from the list of all events, each time anew.

Nothing is carried over but the events: no clock, no queue, no index. It knows one partition and no epochs.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from namesrv_stream.route.settings import FoldSettings


class Heard(NamedTuple):
    """One record: ``kind`` is register, proof, beat, close, goodbye, resumed, release or tick."""

    at_ms: int
    server_id: str
    kind: str
    addr: str = ""
    connection: int = 0
    cluster: str = ""


class Process(NamedTuple):
    """A broker process of the world."""

    cluster: str
    timeout_ms: int


@dataclass
class Alive:
    """A live broker: by server the event that heard it last, and the connection; how the guard keeps it."""

    holds: dict[str, tuple[int, int]] = field(default_factory=dict)
    ended: int | None = None
    kept: tuple[str, str] | None = None
    released: bool = False


class Closed(NamedTuple):
    """A broker that went with its last connection by event ``event``."""

    event: int
    server_id: str
    addr: str
    broker: Alive


class Oracle:
    """What is so after ``events``.

    Args:
        world: Address → process; addresses are in the order of the fold's keys.
        settings: Of the fold; they do not change.
    """

    def __init__(self, world: dict[str, Process], settings: FoldSettings) -> None:
        self.world = world
        self.settings = settings
        self.events: list[Heard] = []

    def replay(self) -> dict[str, Alive]:
        """Address → live broker after all events."""
        self.alive: dict[str, Alive] = {}
        self.closes: list[Closed] = []
        self.silent: set[str] = set()
        self.lost: set[str] = set()
        for index in range(len(self.events)):
            self._happen(index)
        return self.alive

    # ---- time ----

    def observed_ms(self, server_id: str | None, since: int, until: int) -> int:
        """Observed time of a server (None: of the partition) after event ``since`` up to ``until``."""
        mine = [i for i in range(until + 1) if server_id in (None, self.events[i].server_id)]
        steps = [(i, self.events[i].at_ms - self.events[j].at_ms) for j, i in pairwise(mine)]
        return sum(max(0, min(step, self.settings.max_gap_ms)) for i, step in steps if i > since)

    def age_ms(self, addr: str, server_id: str, now: int) -> int:
        return self.observed_ms(server_id, self.alive[addr].holds[server_id][0], now)

    def limit_ms(self, addr: str) -> int:
        times = 1 + self.settings.guard_hold_timeouts * (self.alive[addr].kept is not None)
        return self.world[addr].timeout_ms * times

    def heard_ms(self, index: int) -> int:
        """The partition's time at an event."""
        return self.observed_ms(None, -1, index)

    # ---- one event ----

    def _happen(self, now: int) -> None:
        event = self.events[now]
        self.silent.discard(event.server_id)
        self.lost.discard(event.server_id)
        if event.kind != "resumed":
            self._expire(event.server_id, now)
        self._watch(now)
        broker = self.alive.get(event.addr)
        held = broker.holds.get(event.server_id) if broker else None
        was_registered = any(e.kind == "register" and e.addr == event.addr for e in self.events[:now])
        if event.kind == "register" or (event.kind == "proof" and was_registered):
            self._hear(event, now, event.connection)
        elif event.kind == "beat" and held:
            self._hear(event, now, held[1])
        elif event.kind == "resumed":
            for addr in [a for a, b in self.alive.items() if event.server_id in b.holds]:
                connection = self.alive[addr].holds[event.server_id][1]
                self._hear(event._replace(addr=addr), now, connection)
        elif event.kind == "close" and broker and held and held[1] == event.connection:
            self._close(event, broker, now)
        elif event.kind == "goodbye" and held and event.connection >= held[1]:
            self._end(event.addr, event.server_id)
        elif event.kind == "goodbye" and not broker:
            self.closes = [c for c in self.closes if c.addr != event.addr]
        elif event.kind == "release":
            self._release(event.cluster, now)

    def _hear(self, event: Heard, now: int, connection: int) -> None:
        if event.addr not in self.alive:
            self.alive[event.addr] = Alive()
            self.closes = [c for c in self.closes if c.addr != event.addr]
        broker = self.alive[event.addr]
        broker.holds[event.server_id] = (now, connection)
        if broker.kept and broker.kept[0] == "disconnected" and broker.kept[1] != event.server_id:
            broker.holds.pop(broker.kept[1], None)
        broker.kept, broker.released = None, False

    def _close(self, event: Heard, broker: Alive, now: int) -> None:
        if broker.kept == ("disconnected", event.server_id):
            return
        is_last = not self._is_vouched_for_without(broker, event.server_id)
        if is_last and self._keep(event.addr, event.server_id, "disconnected", now):
            return
        self._end(event.addr, event.server_id)
        if is_last and not broker.released:
            broker.kept = None
            self.closes.append(Closed(now, event.server_id, event.addr, broker))

    def _release(self, cluster: str, now: int) -> None:
        for addr in sorted(a for a in self.alive if self.world[a].cluster == cluster):
            broker = self.alive[addr]
            kept = broker.kept
            broker.released |= kept is not None or self._is_fading(addr, now)
            if kept is None:
                continue
            broker.kept = None
            if kept[0] == "disconnected" and kept[1] in broker.holds:
                self._end(addr, kept[1])
            elif not self._is_vouched_for(broker.holds, broker.ended):
                del self.alive[addr]
        for server_id in sorted({e.server_id for e in self.events[: now + 1]}):
            self._expire(server_id, now)

    def _expire(self, server_id: str, now: int) -> None:
        def over_ms(addr: str) -> int:
            return self.age_ms(addr, server_id, now) - self.limit_ms(addr)

        due = [(-over_ms(a), a) for a, b in self.alive.items() if server_id in b.holds and over_ms(a) > 0]
        for _, addr in sorted(due):
            broker = self.alive[addr]
            if over_ms(addr) <= 0:
                continue
            is_last = not self._is_vouched_for_without(broker, server_id)
            if broker.kept or not is_last or not self._keep(addr, server_id, "expired", now):
                self._end(addr, server_id)

    def _watch(self, now: int) -> None:
        for server_id in sorted({e.server_id for e in self.events[: now + 1]} - self.lost):
            last = max(i for i in range(now + 1) if self.events[i].server_id == server_id)
            quiet_ms = self.observed_ms(None, last, now)
            if server_id not in self.silent and quiet_ms >= self.settings.server_silent_ms:
                self.silent.add(server_id)
                for addr in self._held_by(server_id):
                    broker = self.alive[addr]
                    if broker.kept or self._is_vouched_for(broker.holds, broker.ended):
                        continue
                    if not self._keep(addr, server_id, "server_silent", now):
                        del self.alive[addr]
            if server_id in self.silent and quiet_ms >= self.settings.server_lost_ms:
                self.lost.add(server_id)
                for addr in self._held_by(server_id):
                    broker = self.alive[addr]
                    del broker.holds[server_id]
                    if not self._is_vouched_for(broker.holds, broker.ended):
                        del self.alive[addr]

    # ---- holders ----

    def _held_by(self, server_id: str) -> list[str]:
        return sorted(a for a, b in self.alive.items() if server_id in b.holds)

    def _is_vouched_for(self, holds: dict[str, tuple[int, int]], ended: int | None) -> bool:
        if ended is None:
            return bool(holds)
        return any(s not in self.silent or self.heard_ms(heard) > ended for s, (heard, _) in holds.items())

    def _is_vouched_for_without(self, broker: Alive, server_id: str) -> bool:
        rest = {s: h for s, h in broker.holds.items() if s != server_id}
        return self._is_vouched_for(rest, self.heard_ms(broker.holds[server_id][0]))

    def _end(self, addr: str, server_id: str) -> None:
        broker = self.alive[addr]
        if not self._is_vouched_for_without(broker, server_id):
            del self.alive[addr]
            return
        broker.ended = max(self.heard_ms(broker.holds[server_id][0]), broker.ended or 0)
        broker.holds = {s: h for s, h in broker.holds.items() if s != server_id}

    # ---- the guard ----

    def _is_fading(self, addr: str, now: int) -> bool:
        broker = self.alive[addr]
        talking = [s for s in broker.holds if s not in self.silent]
        if any(2 * self.age_ms(addr, s, now) <= self.world[addr].timeout_ms for s in talking):
            return False
        seen = [self.heard_ms(broker.holds[s][0]) for s in talking] + [broker.ended] * (broker.ended is not None)
        silent = [self.heard_ms(broker.holds[s][0]) for s in broker.holds if s in self.silent]
        return bool(seen) and not any(heard > max(m for m in seen if m is not None) for heard in silent)

    def _keep(self, addr: str, server_id: str, goes_with: str, now: int) -> bool:
        cluster = self.world[addr].cluster
        if self.alive[addr].released or not self.settings.is_guarded(cluster):
            return False
        peers = [a for a in sorted(self.alive) if self.world[a].cluster == cluster]
        window_ms = self.settings.guard_close_window_ms
        closed = [
            c
            for c in self.closes
            if c.server_id == server_id
            and self.world[c.addr].cluster == cluster
            and self.observed_ms(server_id, c.event, now) <= window_ms
        ]
        ending = [a for a in peers if a == addr or self.alive[a].kept or self._is_fading(a, now)]
        count = len(ending) + len(closed)
        share = count / (len(peers) + len(closed))
        if count < self.settings.guard_min_brokers_of(1) or share <= self.settings.guard_share_percent / 100:
            return False
        for close in closed:
            self.closes.remove(close)
            close.broker.holds = {s: h for s, h in close.broker.holds.items() if s not in self.lost}
            close.broker.kept = ("disconnected", server_id)
            self.alive[close.addr] = close.broker
        self.alive[addr].kept = (goes_with, server_id)
        for other in ending:
            broker = self.alive[other]
            if broker.kept or broker.released:
                continue
            talking = [(self.age_ms(other, s, now), s) for s in broker.holds if s not in self.silent]
            broker.kept = ("expired", min(talking)[1]) if talking else (goes_with, server_id)
        return True
