"""What changed at a broker name, record by record: processes, connections, the mass-expiry guard, topics."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from namesrv_stream.history.database import Row
from namesrv_stream.history.past import Past, reason_of
from namesrv_stream.route.changes import ChangeKind, RouteChange


def broker_changes(past: Past, broker_name: str, since_ms: int, until_ms: int) -> list[Row]:
    """The changes after one instant up to another, in order; blocks.

    Returns:
        A row for each record: ``change``, for people, and its ``Reason``.
    """
    every = past.changes("broker_changes", broker_name=broker_name, until_ms=until_ms)
    live = set[tuple[str | None, str | None]]()
    for row in every:
        if row.at_ms <= since_ms and row.kind == ChangeKind.BROKER_LIVE:
            (live.discard if row.gone else live.add)((row.cluster, row.broker_addr))
    rows = [row for row in every if row.at_ms > since_ms]
    found = []
    for _, of_record in groupby(rows, key=lambda row: (row.partition, row.offset)):
        at_once = list(of_record)
        if what := ", ".join(_what(at_once, live)):
            found.append({**reason_of(at_once[0]).as_json(), "change": what})
    return found


def _what(rows: Sequence[RouteChange], live: set[tuple[str | None, str | None]]) -> Iterator[str]:
    """What the rows of one record changed; ``live`` is brought up to date."""
    moved = set()
    for row in (row for row in rows if row.kind == ChangeKind.BROKER_LIVE):
        key = (row.cluster, row.broker_addr)
        if row.gone == (key in live):
            moved.add(key)
            yield f"{row.broker_addr} {'down' if row.gone else 'up'}"
        elif not row.gone:
            yield f"{row.broker_addr} registered again"
        (live.discard if row.gone else live.add)(key)
    for row in rows:
        if row.kind == ChangeKind.HOLDER and (row.cluster, row.broker_addr) not in moved:
            at = f"{row.broker_addr} at {row.server_id}"
            yield f"{at} no longer" if row.gone else f"{at} over connection {row.connection_id}"
        elif row.kind == ChangeKind.GUARD:
            yield f"{row.broker_addr} {'no longer held' if row.gone else 'held by the guard'}"
        elif row.kind == ChangeKind.BROKER_DATA and not moved and not row.gone:
            yield "addresses " + ", ".join(f"{i}={addr}" for i, addr in row.broker_addrs or ())
    yield from _topics(rows)


def _topics(rows: Iterable[RouteChange]) -> Iterator[str]:
    counts = Counter(row.gone for row in rows if row.kind == ChangeKind.QUEUE_DATA)
    names = sorted(row.topic or "" for row in rows if row.kind == ChangeKind.QUEUE_DATA)
    if len(names) == 1:
        yield f"topic {names[0]} {'gone' if counts[True] else 'set'}"
    else:
        for gone, text in ((False, "set"), (True, "gone")):
            if counts[gone]:
                yield f"{counts[gone]} topics {text}"
