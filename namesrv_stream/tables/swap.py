"""Puts rebuilt tables in the place of the old ones, which stay beside them under a dated name.

All moves are written down before the first one, and the next process that writes the tables finishes a swap that was
killed. So a job never meets tables of which some are old. A follower may: it reads the new state with the old changes,
which is right, and loads again when the changes are replaced too.
"""

import json
import logging
from itertools import count
from typing import Final

from namesrv_stream.tables.schema.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.storage import Storage

_LOG = logging.getLogger(__name__)

#: Where the new tables are made: beside the old ones, so that in a folder a rename is enough.
NEW: Final = "rebuild"
#: What is still to be moved; there is none while the tables are in their place.
PLAN: Final = "rebuild-swap.json"


def swap_tables(tables: Storage, suffix: str) -> list[str]:
    """Put the new tables into the place of the old ones; for the process that may write them.

    Args:
        tables: Where the tables are.
        suffix: Of the names that the old tables get.

    Returns:
        The old tables, by the names that they have now.
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
    """Finish what a killed rebuild left: the moves that it has written down, else remove its unproved tables.

    For the process that may write the tables.

    Returns:
        Whether tables were put into their place.
    """
    has_plan = tables.exists(PLAN)
    if has_plan:
        moves = [(source, target) for source, target in json.loads(tables.read(PLAN))]
        while moves:
            tables.move(*moves[0])
            del moves[0]
            _plan(tables, moves)  # a move that is done must not be made again: its source may be another table by now
        tables.remove(PLAN)
        _LOG.info("the rebuilt tables are in their place")
    tables.remove_all(NEW)
    return has_plan


def _plan(tables: Storage, moves: list[tuple[str, str]]) -> None:
    tables.write(PLAN, json.dumps(moves).encode())


def _free_name(tables: Storage, wanted: str) -> str:
    """A name that is not taken: what is aside is never replaced."""
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    return next(name for name in names if not tables.has(name))
