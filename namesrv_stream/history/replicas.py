"""Which broker processes, one after the other, were the same broker: a *replica* of a broker name.

A session belongs to a process: a cluster, a broker name and an address. Where addresses do not last (pods), the process
that comes up next has another one, and the one that went down never comes back: it was replaced. Availability, outages
and flapping are counted by replica. docs/history.md has the rules, too. A process that comes up is, of the replicas of
its broker name, the one

1. whose newest process had its address, whatever its id;
2. else whose newest process came up with its id: it replaces that one, which may be down, or may still be up, as in a
   rolling replacement or until its end is noticed;
3. else, where it or the other has id 0, the one that went down last and still is. Id 0 is a role: in controller mode
   the master that failed comes back with an id of its own, and a slave may come back as 0;
4. else a new one.

What the rules get wrong: two processes with the same id at once count as one replica (as for name servers: the newer
one has the id); a slave that is added at a new address while the master is down counts as its replacement.

Each step depends on the one before, so that this is a loop and not SQL.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

_MASTER_ID: Final = 0
_Session = Mapping[str, Any]


def replica_numbers(sessions: Sequence[_Session]) -> list[int]:
    """Of each session the number of its replica; numbers follow cluster, broker name and newest address.

    Args:
        sessions: Rows of ``sessions.sql``: of each process all of a time, and its first and last one before, so that a
            process that was known is not taken for a new one.
    """
    newest_of_names: dict[tuple[str, str], dict[int, _Session]] = {}
    first_of = {}
    for place, session in sorted(enumerate(sessions), key=lambda item: (item[1]["up_ms"], item[1]["offset"])):
        newest = newest_of_names.setdefault((session["cluster"], session["broker_name"]), {})
        replica = _continued_by(session, newest)
        first_of[place] = place if replica is None else replica
        newest[first_of[place]] = session
    ordered = sorted(
        (*name, session["broker_addr"], replica)
        for name, newest in newest_of_names.items()
        for replica, session in newest.items()
    )
    number_of = {replica: number for number, (*_, replica) in enumerate(ordered)}
    return [number_of[first_of[place]] for place in range(len(sessions))]


def _continued_by(session: _Session, newest: Mapping[int, _Session]) -> int | None:
    """That replica of the session's broker name which came up with it; None for a new one.

    Args:
        session: One that begins.
        newest: Replica → the newest session of it.
    """
    rules: tuple[Callable[[_Session], bool], ...] = (
        lambda last: last["broker_addr"] == session["broker_addr"],
        lambda last: session["broker_id"] is not None and last["broker_id"] == session["broker_id"],
        lambda last: (
            _MASTER_ID in (last["broker_id"], session["broker_id"])
            and last["down_ms"] is not None
            and last["down_ms"] <= session["up_ms"]
        ),
    )
    for is_same in rules:
        same = [replica for replica, last in newest.items() if is_same(last)]
        if same:
            return max(same, key=lambda replica: (newest[replica]["down_ms"] or 0, newest[replica]["up_ms"]))
    return None
