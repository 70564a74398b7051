"""The rows that the history tables must have by their definitions, computed one by one from the logs and the fold."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.changes import KEY_COLUMNS, ChangeKind, RouteChange
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered
from tests.support.builders import Log

Key = tuple[Any, ...]


class SignOfLife(NamedTuple):
    """A heartbeat or registration of a broker (cluster, name, address), received by a server, at the log's clock."""

    partition: int
    offset: int
    broker: tuple[str, str, str]
    server_id: str
    at_ms: int


def instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)


def clocks(log: Log) -> list[int]:
    """Return for each record the highest LogAppendTime up to it."""
    found: list[int] = []
    for record in log.records:
        found.append(max(record.at_ms, found[-1] if found else 0))
    return found


def signs_of_life(log: Log) -> Iterator[SignOfLife]:
    for record, clock_ms in zip(log.records, clocks(log), strict=True):
        try:
            events = decode_record(record.value)
        except EventDecodeError:
            continue
        for event in events:
            if isinstance(event, BrokerHeartbeat):
                key, name = event.live_key, event.broker_name
            elif isinstance(event, BrokerRegistered):
                key, name = event.registration.live_key, event.registration.broker_name
            else:
                continue
            broker = (key.cluster, name, key.broker_addr)
            yield SignOfLife(record.partition, record.offset, broker, event.origin.server_id, clock_ms)


def key_of(change: RouteChange) -> Key:
    return (change.kind, *(getattr(change, name) for name in KEY_COLUMNS[ChangeKind(change.kind)]))


def intervals(changes: Iterable[RouteChange]) -> list[tuple[RouteChange, int | None]]:
    """Return each change that lasted, with the ``at_ms`` of the key's next change; in log order."""
    of_key: dict[Key, list[RouteChange]] = defaultdict(list)
    for change in changes:
        if change.kind in KEY_COLUMNS and change.kind != ChangeKind.REGISTRATION:
            of_key[key_of(change)].append(change)
    found: list[tuple[RouteChange, int | None]] = []
    for rows in of_key.values():
        ends = [row.at_ms for row in rows[1:]]
        found += [(r, end) for r, end in zip(rows, [*ends, None], strict=True) if end is None or end > r.at_ms]
    return sorted(found, key=lambda pair: pair[0][:3])


def sessions(log: Log) -> list[dict[str, Any]]:
    """Return the rows of ``broker_sessions``, in log order."""
    rows_at: dict[int, list[RouteChange]] = defaultdict(list)
    for change in log.output.changes:
        if change.kind == ChangeKind.BROKER_LIVE:
            rows_at[change.offset].append(change)
    up: dict[tuple[str, str, str], dict[str, Any]] = {}
    found: list[dict[str, Any]] = []
    for offset in range(len(log.records)):
        for row in rows_at[offset]:
            broker = (row.cluster or "", row.broker_name or "", row.broker_addr or "")
            if row.gone:
                session = up.pop(broker)
                session |= {"down_at": instant(row.at_ms), "down_cause": row.cause, "down_detail": row.detail}
                session["down_offset"] = row.offset
            elif broker in up:
                up[broker]["timeout_ms"] = row.timeout_ms
            else:
                up[broker] = _new_session(row)
                found.append(up[broker])
    return [s for s in found if s["down_at"] is None or s["up_at"] < s["down_at"]]


def _new_session(row: RouteChange) -> dict[str, Any]:
    return {
        "cluster": row.cluster,
        "broker_name": row.broker_name,
        "broker_addr": row.broker_addr,
        "broker_id": row.broker_id,
        "up_at": instant(row.at_ms),
        "down_at": None,
        "up_cause": row.cause,
        "down_cause": None,
        "down_detail": None,
        "timeout_ms": row.timeout_ms,
        "partition": row.partition,
        "offset": row.offset,
        "seq": row.seq,
        "down_offset": None,
    }


def minutes(log: Log, lookback_ms: int) -> list[dict[str, Any]]:
    """Return the rows of ``heartbeat_minutes`` in order of key and minute, with all ``gaps`` instead of quantiles.

    Args:
        log: The log.
        lookback_ms: The history may omit a gap longer than this. Such a gap is omitted here, and ``gaps`` is None.
    """
    running_ms = max(clocks(log), default=0) // 60_000 * 60_000
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    last: dict[tuple[Any, ...], int] = {}
    for sign in signs_of_life(log):
        key = (*sign.broker, sign.server_id)
        gap_ms = sign.at_ms - last[key] if key in last else None
        last[key] = sign.at_ms
        minute_ms = sign.at_ms // 60_000 * 60_000
        if minute_ms >= running_ms:
            continue
        row = found.setdefault((*key, minute_ms), {"heartbeats": 0, "gaps": [], "first_at": instant(sign.at_ms)})
        row["heartbeats"] += 1
        row["last_at"] = instant(sign.at_ms)
        if gap_ms is not None and row["gaps"] is not None:
            row["gaps"] = [*row["gaps"], gap_ms] if gap_ms <= lookback_ms else None
    return [
        {
            **dict(zip(("cluster", "broker_name", "broker_addr", "server_id"), key, strict=False)),
            "minute": instant(key[-1]),
            **row,
            "partition": log.state.partition,
            "day": instant(key[-1]).date(),
        }
        for key, row in sorted(found.items())
    ]
