"""Log lines about held brokers and changed settings: one line per cluster or setting, for any number of rows.

The job logs the rows that it has written, a server the rows that it has applied.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from namesrv_stream.logs import safe
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.liveness_settings import setting_changes
from namesrv_stream.route.model import Hold, LeaseKey, decode_hold

logger = logging.getLogger(__name__)

#: Kinds of rows that are logged.
TOLD_KINDS: Final = frozenset({ChangeKind.GUARD, ChangeKind.SETTING})


def log_commit(changes: Iterable[RouteChange]) -> None:
    """Log the rows of one commit.

    Args:
        changes: Rows in log order within each partition. Rows of other kinds are ignored.
    """
    rows = [row for row in changes if row.kind in TOLD_KINDS]
    held, released = defaultdict[str, list[RouteChange]](list), defaultdict[str, list[RouteChange]](list)
    for row in rows:
        if row.kind == ChangeKind.GUARD:
            (released if row.gone else held)[row.cluster or ""].append(row)
    for cluster, of_cluster in sorted(held.items()):
        # A held broker gets a further row whenever more brokers of its cluster seem to fail.
        fresh = [row for row in of_cluster if decode_hold(row.value or "").since_ms == row.at_ms]
        if fresh:
            hold = decode_hold(fresh[-1].value or "")
            _log_held(cluster, len({_process(row) for row in fresh}), hold, fresh[-1].detail or hold.reason)
    for cluster, of_cluster in sorted(released.items()):
        last_cause = {_process(row): str(row.cause) for row in of_cluster}
        logger.info(
            "brokers no longer held cluster=%s brokers=%d causes=%s detail=%s",
            safe(cluster),
            len(last_cause),
            ",".join(f"{cause}:{count}" for cause, count in sorted(Counter(last_cause.values()).items())),
            safe(of_cluster[-1].detail or ""),
        )
    for change in setting_changes(rows):
        where = ",".join(f"{partition}:{offset}" for partition, offset in sorted(change.partitions.items()))
        logger.info(
            "setting changed setting=%s old=%s new=%s by=%s at=%s",
            *(safe(text) for text in (change.name, change.old or "", change.new, change.source)),
            where,
        )


def log_held(held: Mapping[LeaseKey, Hold]) -> None:
    """Log the held brokers of a table that was just opened."""
    for cluster, count in sorted(Counter(key.live_key.cluster for key in held).items()):
        hold = max((hold for key, hold in held.items() if key.live_key.cluster == cluster), key=lambda h: h.since_ms)
        _log_held(cluster, count, hold, f"{hold.ending} of {hold.brokers} brokers seemed to end at once: {hold.reason}")


def _log_held(cluster: str, count: int, hold: Hold, reason: str) -> None:
    until = datetime.fromtimestamp(hold.until_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    logger.warning("brokers held cluster=%s brokers=%d until=%s reason=%s", safe(cluster), count, until, safe(reason))


def _process(row: RouteChange) -> tuple[str | None, str | None]:
    return row.broker_name, row.broker_addr
