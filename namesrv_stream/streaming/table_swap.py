"""Puts rebuilt tables in the place of the old ones, which stay beside them under a dated name.

The checkpoint goes first, then the tables, one rename each. Before the first, all renames are written down; whoever
holds the job's lock next finishes what a killed swap left. So a job never meets tables of which some are old.
A follower may: it reads the new state with the old changes, which is right, and loads again when the changes are
replaced too.
"""

import json
import logging
import os
from pathlib import Path
from typing import Final

from namesrv_stream.settings import Settings
from namesrv_stream.tables import ROUTE_CHANGES, ROUTE_STATE, table_path

_LOG = logging.getLogger(__name__)

_PLAN: Final = "rebuild-swap.json"


def swap_tables(settings: Settings, new_dir: Path, suffix: str) -> list[Path]:
    """Replace both tables and move the checkpoint away; the caller holds the job's lock.

    Args:
        settings: Ours.
        new_dir: Folder of the new tables, on the file system of the old ones; is left empty.
        suffix: Of the names that the old tables and the checkpoint get.

    Returns:
        What was there before, where it is now.
    """
    data = settings.data
    moves: list[tuple[Path, Path | None]] = [(data.checkpoint_dir, None)]
    moves += [(table_path(data.tables_dir, n), table_path(new_dir, n)) for n in (ROUTE_STATE, ROUTE_CHANGES)]
    aside = {place: _free_name(place, suffix) for place, _ in moves if place.exists()}
    renames: list[tuple[Path, Path]] = []
    for place, successor in moves:
        if place in aside:
            renames.append((place, aside[place]))
        if successor is not None:
            renames.append((successor, place))
    plan = settings.data.run_dir / _PLAN
    draft = plan.with_suffix(".draft")
    with draft.open("w") as file:
        json.dump([[str(source.absolute()), str(target.absolute())] for source, target in renames], file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(plan)
    finish_swap(settings)
    return list(aside.values())


def finish_swap(settings: Settings) -> bool:
    """Do the renames that a swap has written down and not done; the caller holds the job's lock.

    Returns:
        Whether there was such a swap.
    """
    plan = settings.data.run_dir / _PLAN
    if not plan.exists():
        return False
    for source, target in json.loads(plan.read_text()):
        # Each is possible once only: a table that is in its place has no source, and what is aside is never replaced.
        if Path(source).exists() and not Path(target).exists():
            Path(source).rename(target)
    plan.unlink()
    _LOG.info("the rebuilt tables are in their place")
    return True


def _free_name(place: Path, suffix: str) -> Path:
    """Each name once: what is aside is never replaced."""
    name = place.with_name(f"{place.name}.{suffix}")
    number = 1
    while name.exists():
        number += 1
        name = place.with_name(f"{place.name}.{suffix}-{number}")
    return name
