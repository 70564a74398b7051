"""What operators want to read in the log of a commit: brokers held, brokers no longer held, settings changed.

The job logs what it has written, a server what its table got; a line a cluster or setting, however many rows.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from namesrv_stream.logs import safe
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.hold import Hold, decode_hold
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.setting_history import setting_changes

logger = logging.getLogger(__name__)

#: Kinds of rows that are told of.
TOLD_KINDS: Final = frozenset({ChangeKind.GUARD, ChangeKind.SETTING})


def log_commit(changes: Iterable[RouteChange]) -> set[str]:
    """Log what the rows of one commit say.

    Args:
        changes: In log order within each partition; those of other kinds are passed over.

    Returns:
        The kinds that were told of.
    """
    rows = [row for row in changes if row.kind in TOLD_KINDS]
    guard = [row for row in rows if row.kind == ChangeKind.GUARD]
    for cluster in sorted({row.cluster or "" for row in guard}):
        of_cluster = [row for row in guard if (row.cluster or "") == cluster]
        _log_held(cluster, [(row, decode_hold(row.value or "")) for row in of_cluster if not row.gone])
        _log_let_go(cluster, [row for row in of_cluster if row.gone])
    for change in setting_changes(rows):
        where = ",".join(f"{partition}:{offset}" for partition, offset in sorted(change.partitions.items()))
        logger.info(
            "setting changed setting=%s old=%s new=%s by=%s at=%s",
            *(safe(text) for text in (change.name, change.old or "", change.new, change.source)),
            where,
        )
    return {row.kind for row in rows}


def log_held(held: Mapping[LeaseKey, Hold]) -> None:
    """Log the brokers that are held in a table that was just opened."""
    for cluster, count in sorted(Counter(key.live_key.cluster for key in held).items()):
        hold = max((hold for key, hold in held.items() if key.live_key.cluster == cluster), key=lambda h: h.since_ms)
        mass = f"{hold.ending} of {hold.brokers} brokers seemed to end at once"
        _warn(cluster, count, hold, f"{mass}: {hold.reason}")


def _log_held(cluster: str, rows: list[tuple[RouteChange, Hold]]) -> None:
    # A broker that is held already gets a further row whenever more of its cluster seem to end.
    fresh = [(row, hold) for row, hold in rows if hold.since_ms == row.at_ms]
    if fresh:
        row, hold = fresh[-1]
        _warn(cluster, len({_process(row) for row, _ in fresh}), hold, row.detail or hold.reason)


def _log_let_go(cluster: str, rows: list[RouteChange]) -> None:
    if rows:
        last_row_of = {_process(row): row for row in rows}
        causes = Counter(row.cause for row in last_row_of.values())
        logger.info(
            "brokers no longer held cluster=%s brokers=%d causes=%s detail=%s",
            safe(cluster),
            len(last_row_of),
            ",".join(f"{cause}:{count}" for cause, count in sorted(causes.items())),
            safe(rows[-1].detail or ""),
        )


def _warn(cluster: str, count: int, hold: Hold, reason: str) -> None:
    until = datetime.fromtimestamp(hold.until_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    logger.warning("brokers held cluster=%s brokers=%d until=%s reason=%s", safe(cluster), count, until, safe(reason))


def _process(row: RouteChange) -> tuple[str | None, str | None]:
    return row.broker_name, row.broker_addr
