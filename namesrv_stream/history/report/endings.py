"""Why sessions ended: how often, for how long the broker was away, and how long it had been silent by then."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from namesrv_stream.history.replicas import replicas
from namesrv_stream.history.report.absences import Absence
from namesrv_stream.history.sessions import Session
from namesrv_stream.route.lease import LeaseKey


@dataclass(frozen=True, slots=True)
class Endings:
    """Those of one cause.

    Attributes:
        count: How many sessions ended so.
        brokers: Of how many brokers.
        down_ms: For how long brokers were down after it, within the time asked about; none after a goodbye for good.
        returns_ms: How long each absence took from which one came back, within that time.
        silences_ms: How long each broker had not been heard when it went: so long clients were sent to it in vain.
    """

    cause: str
    count: int
    brokers: int
    down_ms: int
    returns_ms: Sequence[int]
    silences_ms: Sequence[int]


def endings(
    sessions: Iterable[Session],
    absent: Iterable[Absence],
    counted_to_ms: Mapping[int, int],
    since_ms: int,
    until_ms: int,
) -> list[Endings]:
    """By cause, the one that took most time first.

    Args:
        sessions: All that overlap the time, and each process's first and last before.
        absent: Of the same time.
        counted_to_ms: partition → to when it is known how often, and when last, brokers were heard.
        since_ms: Epoch milliseconds.
        until_ms: Epoch milliseconds.
    """
    keys: dict[str, list[LeaseKey]] = {}
    silences: dict[str, list[int]] = {}
    for broker, session in ((replica.key, session) for replica in replicas(sessions) for session in replica.sessions):
        if session.down_ms is None or not since_ms < session.down_ms <= until_ms:
            continue
        cause = session.down_cause or ""
        keys.setdefault(cause, []).append(broker)
        if session.last_heard_ms is not None and session.down_ms <= counted_to_ms.get(session.partition, 0):
            silences.setdefault(cause, []).append(session.down_ms - session.last_heard_ms)
    down_ms: dict[str, int] = {}
    returns: dict[str, list[int]] = {}
    for absence in absent:
        down_ms[absence.cause] = down_ms.get(absence.cause, 0) + absence.length_ms
        if absence.is_over:
            returns.setdefault(absence.cause, []).append(absence.length_ms)
    found = [
        Endings(
            cause,
            len(keys.get(cause, ())),
            len(set(keys.get(cause, ()))),
            down_ms.get(cause, 0),
            returns.get(cause, []),
            silences.get(cause, []),
        )
        for cause in keys.keys() | down_ms.keys()
    ]
    return sorted(found, key=lambda e: (-e.down_ms, -e.count, e.cause))
