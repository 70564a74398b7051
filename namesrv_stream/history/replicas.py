"""Which broker processes, one after the other, were the same broker: a *replica* of a broker name.

A session belongs to a process: a cluster, a broker name and an address. Where addresses do not last (pods), the process
that comes up next has another one, and the one that went never comes back: it was replaced. A replica is what is
counted where it is asked how available brokers are. The rules are here, and docs/history.md tells them.

A process that comes up is, of the replicas of its broker name, the one

1. whose newest process had its address, whatever its id;
2. else whose newest process came up with its id: it replaces that one, which may have gone, or may still be up, as in a
   rolling replacement or until its end is noticed;
3. else, where it or the other has id 0, the one that went last and is still gone. Id 0 is a role: in controller mode
   the master that failed comes back with an id of its own, and a slave may come back as 0;
4. else a new one.

What the rules get wrong: two processes with the same id at once are told as one replica (as name servers tell them:
the newer one has the id); a slave that is added at a new address while the master is gone is told as its replacement.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_stream.history.sessions import Session
from namesrv_stream.route.lease import LeaseKey

_MASTER_ID: Final = 0


@dataclass(frozen=True, slots=True)
class Replica:
    """One broker through all its processes.

    Attributes:
        sessions: Of all of them, by begin; one at least.
    """

    sessions: Sequence[Session]

    @property
    def newest(self) -> Session:
        """The one that began last."""
        return self.sessions[-1]

    @property
    def key(self) -> LeaseKey:
        """Its newest process: no two replicas have the same."""
        return self.newest.key

    def within(self, since_ms: int) -> list[Session]:
        """Its sessions that had not ended by an instant."""
        return [s for s in self.sessions if s.down_ms is None or s.down_ms > since_ms]

    def earlier_keys(self, since_ms: int) -> list[LeaseKey]:
        """Its other processes of those sessions, as they came."""
        return [key for key in dict.fromkeys(s.key for s in self.within(since_ms)) if key != self.key]


@dataclass(frozen=True, slots=True)
class Away:
    """A time in which none of some sessions was.

    Attributes:
        last: The one that ended last before; it did.
        next: The one that began next; None where there was none.
    """

    last: Session
    next: Session | None

    @property
    def begin_ms(self) -> int:
        return self.last.down_ms or 0

    @property
    def end_ms(self) -> int | None:
        """None where it goes on."""
        return self.next.up_ms if self.next else None


def replicas(sessions: Iterable[Session]) -> list[Replica]:
    """All of them, by cluster, broker name and newest address.

    Args:
        sessions: Of each process all of a time, and its first and its last before: who was known is not new.
    """
    of_names: dict[tuple[str, str], list[list[Session]]] = {}
    for session in sorted(sessions, key=lambda s: (s.up_ms, s.offset)):
        of_name = of_names.setdefault((session.cluster, session.broker_name), [])
        before = _continued_by(session, of_name)
        if before is None:
            of_name.append([session])
        else:
            before.append(session)
    found = [Replica(own) for of_name in of_names.values() for own in of_name]
    return sorted(found, key=lambda r: (r.key.live_key.cluster, r.key.broker_name, r.key.live_key.broker_addr))


def times_away(sessions: Iterable[Session]) -> Iterator[Away]:
    """The times between sessions, which may overlap, and the time after the last; by begin."""
    last: Session | None = None
    for session in sorted(sessions, key=lambda s: s.up_ms):
        if last is not None and last.down_ms is not None and session.up_ms > last.down_ms:
            yield Away(last, session)
        if last is None or (last.down_ms is not None and (session.down_ms is None or session.down_ms > last.down_ms)):
            last = session
    if last is not None and last.down_ms is not None:
        yield Away(last, None)


def _continued_by(session: Session, of_name: Sequence[list[Session]]) -> list[Session] | None:
    """That replica of the session's broker name which came up with it; None for a new one."""
    rules: tuple[Callable[[Session], bool], ...] = (
        lambda newest: newest.key == session.key,
        lambda newest: session.broker_id is not None and newest.broker_id == session.broker_id,
        lambda newest: _MASTER_ID in (newest.broker_id, session.broker_id) and _ended_by(newest, session.up_ms),
    )
    for is_same in rules:
        same = [own for own in of_name if is_same(own[-1])]
        if same:
            return max(same, key=lambda own: (own[-1].down_ms or 0, own[-1].up_ms))
    return None


def _ended_by(session: Session, at_ms: int) -> bool:
    return session.down_ms is not None and session.down_ms <= at_ms
