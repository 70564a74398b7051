"""Replaces the job's tables by rebuilt ones. The old tables are kept under a dated name.

All moves are recorded before the first one, and the next process that writes the tables completes an interrupted swap.
So a job never finds a mixture of old and new tables. A follower may: it reads the new state with the old changes, which
is correct, and reloads when the changes are replaced as well.
"""

import json
import logging
from itertools import count
from typing import Final

from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.storage import Storage

_LOG = logging.getLogger(__name__)

#: Folder of the new tables. It is beside the old ones, so that a rename suffices on a local disk.
NEW: Final = "rebuild"
#: File of the remaining moves. It exists only during a swap.
PLAN: Final = "rebuild-swap.json"


def swap_tables(tables: Storage, suffix: str) -> list[str]:
    """Replace the tables by the new ones. Only the process that writes the tables may call this.

    Args:
        suffix: Suffix of the new names of the old tables.

    Returns:
        The new names of the old tables.
    """
    kept, moves = [], []
    for name in (ROUTE_STATE, ROUTE_CHANGES):
        if tables.has(name):
            kept.append(_free_name(tables, f"{name}.{suffix}"))
            moves.append((name, kept[-1]))
        moves.append((f"{NEW}/{name}", name))
    _plan(tables, moves)
    settle_swap(tables)
    return kept


def settle_swap(tables: Storage) -> bool:
    """Complete an interrupted swap; if no moves are recorded, remove unfinished tables of a rebuild.

    Only the process that writes the tables may call this.

    Returns:
        Whether tables were replaced.
    """
    has_plan = tables.exists(PLAN)
    if has_plan:
        moves = [(source, target) for source, target in json.loads(tables.read(PLAN))]
        while moves:
            tables.move(*moves[0])
            del moves[0]
            _plan(tables, moves)  # a completed move must not be repeated: its source may be another table by now
        tables.remove(PLAN)
        _LOG.info("tables replaced by rebuilt ones tables=%s", tables)
    tables.remove_all(NEW)
    return has_plan


def _plan(tables: Storage, moves: list[tuple[str, str]]) -> None:
    tables.write(PLAN, json.dumps(moves).encode())


def _free_name(tables: Storage, wanted: str) -> str:
    """Return an unused name, so that older tables are never overwritten."""
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    return next(name for name in names if not tables.has(name))
