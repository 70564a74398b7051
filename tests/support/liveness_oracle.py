"""An oracle of liveness: which brokers are live, which servers hold them and which ones the guard holds.

It stores only the events, and computes everything from the definitions on each call: it has no clock, queue or index.
It supports one partition, and only brokerId 0 of each broker name.
"""

from itertools import pairwise

from namesrv_stream.route.events import DIRECT, JOB
from namesrv_stream.route.liveness_settings import FoldSettings
from tests.support.simulated_liveness import BrokerProcess, ClosedBroker, LiveBroker, LogEvent, ServerLease


class Oracle:
    """The state after ``events``.

    Args:
        processes: Address → process; addresses are in the order of the fold's keys.
        settings: Settings of the fold before the first event.
    """

    def __init__(self, processes: dict[str, BrokerProcess], settings: FoldSettings) -> None:
        self.processes = processes
        self.begin = settings
        self.events: list[LogEvent] = []
        #: Earlier results; no later event changes them.
        self._observed_ms: dict[tuple[str | None, int, int], int] = {}

    def replay(self) -> dict[str, LiveBroker]:
        """Address → live broker after all events; ``masters`` is then broker name → address in its route."""
        self.settings = self.begin
        self.applied = 0
        self.gaps_ms: list[int] = []
        self.alive: dict[str, LiveBroker] = {}
        self.masters: dict[str, str] = {}
        self.closes: list[ClosedBroker] = []
        self.silent: set[str] = set()
        self.lost: set[str] = set()
        self.came_ms: dict[str, int] = {}
        self.known: set[str] = set()
        for index in range(len(self.events)):
            self._apply(index)
        return self.alive

    # ---- time ----

    def observed_ms(self, server_id: str | None, since: int, until: int) -> int:
        """Return the observed time of a server (None: of the partition) after event ``since`` up to ``until``."""
        asked = (server_id, since, until)
        if asked not in self._observed_ms:
            mine = [i for i in range(until + 1) if self._moves(server_id, i)]
            steps = [(i, self.events[i].at_ms - self.events[j].at_ms) for j, i in pairwise(mine)]
            if server_id is not None:
                steps = [(i, step) for i, step in steps if self.events[i].kind not in ("started", "resumed")]
            self._observed_ms[asked] = sum(max(0, min(step, self.gaps_ms[i])) for i, step in steps if i > since)
        return self._observed_ms[asked]

    def age_ms(self, addr: str, server_id: str, now: int) -> int:
        since = self.alive[addr].leases[server_id][0]
        return self.observed_ms(server_id, since, now) - (self._ahead_ms(since) if server_id == DIRECT else 0)

    def _ahead_ms(self, index: int) -> int:
        """Return the time since the last tick of the job, at an event of a direct publisher."""
        movers = [i for i in range(index + 1) if self._moves(DIRECT, i)]
        at_ms = max(event.at_ms for event in self.events[: index + 1])
        return max(0, min(at_ms - self.events[movers[-1]].at_ms, self.gaps_ms[index])) if movers else 0

    def timeout_ms(self, addr: str) -> int:
        """Return the timeout in the broker's last registration, between minimum and maximum."""
        asked_ms = self._registered(addr, self.applied)[-1].timeout_ms
        wanted_ms = self.settings.default_timeout_ms if asked_ms is None else asked_ms
        return max(self.settings.min_timeout_ms, min(self.settings.max_timeout_ms, wanted_ms))

    def limit_ms(self, addr: str) -> int:
        times = 1 + self.settings.guard_hold_timeouts * (self.alive[addr].kept is not None)
        return self.timeout_ms(addr) * times

    def partition_ms(self, index: int) -> int:
        """Return the partition's time at an event."""
        return self.observed_ms(None, -1, index)

    def _moves(self, server_id: str | None, index: int) -> bool:
        """Whether an event advances or starts a clock."""
        source = self.events[index].server_id
        if server_id is None:
            return source not in (DIRECT, JOB)
        if server_id != DIRECT:
            return source == server_id
        first = next((i for i, e in enumerate(self.events) if e.server_id in (DIRECT, JOB)), None)
        return source == JOB or index == first

    def _registered(self, addr: str, before: int) -> list[LogEvent]:
        return [e for e in self.events[:before] if e.kind == "register" and e.addr == addr]

    # ---- one event ----

    def _apply(self, now: int) -> None:
        event = self.events[now]
        self.gaps_ms.append(self.settings.max_gap_ms)
        at_ms = max(each.at_ms for each in self.events[: now + 1])
        self.known |= {a for a in self.alive if at_ms - self.came_ms[a] >= self.settings.guard_known_ms}
        if event.server_id != DIRECT:
            mover = DIRECT if event.server_id == JOB else event.server_id
            self.silent.discard(mover)
            self.lost.discard(mover)
            if event.kind == "tick":
                self._expire(mover, now)
            if mover != DIRECT:
                self._watch(now)
        self.applied = now + 1
        broker = self.alive.get(event.addr)
        held = broker.leases.get(event.server_id) if broker else None
        registered = self._registered(event.addr, now)
        is_known = event.kind == "proof" and bool(registered) and registered[-1].timeout_ms == event.timeout_ms
        if event.kind == "register" or is_known:
            self.masters[self.processes[event.addr].broker_name] = event.addr
            self._renew(event, now)
        elif event.kind == "proof" and held:
            self._renew(event, now)
        elif event.kind == "beat" and held:
            self._renew(event._replace(epoch=held[1][0], connection=held[1][1]), now)
        elif event.kind == "close" and broker and held and held[1] == event.over:
            self._close(event, broker, now)
        elif event.kind == "unregister" and held and event.over >= held[1]:
            self._end_lease(event.addr, event.server_id)
        elif event.kind == "unregister" and not broker:
            self._forget_closes(event.addr)
        elif event.kind == "release":
            self._release(event.cluster, now)
        elif event.kind == "settings":
            self.settings = self.settings.with_values(event.values)
            for cluster in sorted({self.processes[a].cluster for a, b in self.alive.items() if b.kept}):
                if not self.settings.is_guarded(cluster):
                    self._release(cluster, now)

    def _renew(self, event: LogEvent, now: int) -> None:
        if event.addr not in self.alive:
            self.alive[event.addr] = LiveBroker()
            self._forget_closes(event.addr)
            self.came_ms[event.addr] = max(each.at_ms for each in self.events[: now + 1])
            if not self.settings.guard_known_ms:
                self.known.add(event.addr)
        broker = self.alive[event.addr]
        held = broker.leases.get(event.server_id)
        is_late = held is not None and event.epoch < held[1][0]
        broker.leases[event.server_id] = (now, held[1] if held and is_late else event.over)
        if broker.kept and broker.kept[0] == "disconnected" and broker.kept[1] != event.server_id:
            broker.leases.pop(broker.kept[1], None)
        broker.kept, broker.released = None, False

    def _close(self, event: LogEvent, broker: LiveBroker, now: int) -> None:
        if broker.kept == ("disconnected", event.server_id):
            return
        is_last = not self._is_vouched_for_without(broker, event.server_id)
        if is_last and self._keep(event.addr, event.server_id, "disconnected", now):
            return
        self._end_lease(event.addr, event.server_id)
        if is_last and not broker.released and self.settings.is_guarded(self.processes[event.addr].cluster):
            broker.kept = None
            self.closes.append(ClosedBroker(now, event.server_id, event.addr, broker))

    def _release(self, cluster: str, now: int) -> None:
        for addr in sorted(a for a in self.alive if self.processes[a].cluster == cluster):
            broker = self.alive[addr]
            kept = broker.kept
            broker.released |= kept is not None or self._is_fading(addr, now)
            if kept is None:
                continue
            broker.kept = None
            if kept[0] == "disconnected" and kept[1] in broker.leases:
                self._end_lease(addr, kept[1])
            elif not self._is_vouched_for(broker.leases, broker.ended):
                self._remove(addr)
        for server_id in sorted(self._servers(now)):
            self._expire(server_id, now)

    def _expire(self, server_id: str, now: int) -> None:
        def over_ms(addr: str) -> int:
            return self.age_ms(addr, server_id, now) - self.limit_ms(addr)

        due = [(-over_ms(a), a) for a in self._held_by(server_id) if over_ms(a) > 0]
        for _, addr in sorted(due):
            broker = self.alive[addr]
            if over_ms(addr) <= 0:
                continue
            is_last = not self._is_vouched_for_without(broker, server_id)
            if broker.kept or not is_last or not self._keep(addr, server_id, "expired", now):
                self._end_lease(addr, server_id)

    def _watch(self, now: int) -> None:
        quiet_ms = {}
        for server_id in self._servers(now) - self.lost - {DIRECT}:
            last = max(i for i in range(now + 1) if self.events[i].server_id == server_id)
            quiet_ms[server_id] = self.observed_ms(None, last, now)
        silent = {s for s, ms in quiet_ms.items() if ms >= self.settings.server_silent_ms} - self.silent
        self.silent |= silent
        for server_id in sorted(silent):
            for addr in self._held_by(server_id):
                broker = self.alive[addr]
                if broker.kept or self._is_vouched_for(broker.leases, broker.ended):
                    continue
                if not self._keep(addr, server_id, "server_silent", now):
                    self._remove(addr)
        lost = {s for s, ms in quiet_ms.items() if s in self.silent and ms >= self.settings.server_lost_ms}
        for server_id in sorted(lost):
            self.lost.add(server_id)
            for addr in self._held_by(server_id):
                broker = self.alive[addr]
                del broker.leases[server_id]
                if not self._is_vouched_for(broker.leases, broker.ended):
                    self._remove(addr)

    # ---- holders ----

    def _servers(self, now: int) -> set[str]:
        """Return all servers with a record; the job's clock applies to direct publishers."""
        return {DIRECT if e.server_id == JOB else e.server_id for e in self.events[: now + 1]}

    def _held_by(self, server_id: str) -> list[str]:
        return sorted(a for a, b in self.alive.items() if server_id in b.leases)

    def _is_vouched_for(self, holds: dict[str, ServerLease], ended: int | None) -> bool:
        """Whether a server that is not silent holds it, or a silent one heard it after all ended leases."""
        if ended is None:
            return bool(holds)
        return any(s not in self.silent or self.partition_ms(heard) > ended for s, (heard, _) in holds.items())

    def _ended(self, broker: LiveBroker, server_id: str) -> int:
        """Return when the servers whose lease has ended, including ``server_id``, last heard a broker."""
        return max(self.partition_ms(broker.leases[server_id][0]), broker.ended or 0)

    def _is_vouched_for_without(self, broker: LiveBroker, server_id: str) -> bool:
        rest = {s: h for s, h in broker.leases.items() if s != server_id}
        return self._is_vouched_for(rest, self._ended(broker, server_id))

    def _end_lease(self, addr: str, server_id: str) -> None:
        broker = self.alive[addr]
        if not self._is_vouched_for_without(broker, server_id):
            self._remove(addr)
            return
        broker.ended = self._ended(broker, server_id)
        broker.leases = {s: h for s, h in broker.leases.items() if s != server_id}

    def _remove(self, addr: str) -> None:
        del self.alive[addr]
        name = self.processes[addr].broker_name
        if self.masters.get(name) == addr:
            del self.masters[name]

    # ---- the guard ----

    def _forget_closes(self, addr: str) -> None:
        self.closes = [c for c in self.closes if c.addr != addr]

    def _is_fading(self, addr: str, now: int) -> bool:
        broker = self.alive[addr]
        talking = [s for s in broker.leases if s not in self.silent]
        if any(2 * self.age_ms(addr, s, now) <= self.timeout_ms(addr) for s in talking):
            return False
        seen = [self.partition_ms(broker.leases[s][0]) for s in talking] + [broker.ended] * (broker.ended is not None)
        silent = [self.partition_ms(broker.leases[s][0]) for s in broker.leases if s in self.silent]
        return bool(seen) and not any(heard > max(m for m in seen if m is not None) for heard in silent)

    def _keep(self, addr: str, server_id: str, goes_with: str, now: int) -> bool:
        cluster = self.processes[addr].cluster
        if self.alive[addr].released or not self.settings.is_guarded(cluster):
            return False
        peers = [a for a in sorted(self.alive) if self.processes[a].cluster == cluster]
        window_ms = self.settings.guard_close_window_ms
        closed = [
            c
            for c in self.closes
            if c.server_id == server_id
            and self.processes[c.addr].cluster == cluster
            and self.observed_ms(server_id, c.event, now) <= window_ms
        ]
        ending = [a for a in peers if a == addr or self.alive[a].kept or self._is_fading(a, now)]
        known_closed = len([c for c in closed if c.addr in self.known])
        count, brokers = (len(self.known.intersection(each)) + known_closed for each in (ending, peers))
        least = max(2, self.settings.guard_min_brokers)
        if count < least or count * 100 <= brokers * self.settings.guard_share_percent:
            return False
        for close in sorted(closed, key=lambda c: c.addr):
            self.closes.remove(close)
            name = self.processes[close.addr].broker_name
            if name in self.masters:
                continue  # Another address has replaced it.
            self.masters[name] = close.addr
            close.broker.leases = {s: h for s, h in close.broker.leases.items() if s not in self.lost}
            close.broker.kept = ("disconnected", server_id)
            self.alive[close.addr] = close.broker
        self.alive[addr].kept = (goes_with, server_id)
        for other in ending:
            broker = self.alive[other]
            if not broker.kept and not broker.released:
                is_silent, _, heard_at = min((s in self.silent, self.age_ms(other, s, now), s) for s in broker.leases)
                broker.kept = ("server_silent" if is_silent else "expired", heard_at)
        return True
