"""Puts rebuilt tables in the place of the old ones, which stay beside them under a dated name.

The checkpoint goes first, then the tables, one rename each. Before the first, all renames are written down; whoever
holds the job's lock next finishes what a killed swap left. So a job never meets tables of which some are old.
A follower may: it reads the new state with the old changes, which is right, and loads again when the changes are
replaced too.
"""

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from namesrv_stream.settings import Settings
from namesrv_stream.tables import ROUTE_CHANGES, ROUTE_STATE

_LOG = logging.getLogger(__name__)

_PLAN: Final = "rebuild-swap.json"
_NEW: Final = "rebuild"
_REMEDY: Final = (
    "copy the tables to a folder, `rebuild --set data.tables=FOLDER`, copy those to a new prefix and name it"
)


class _Swap(NamedTuple):
    """One thing replaced.

    Attributes:
        place: Where it is.
        aside: Where it goes; None where it does not exist.
        successor: What comes in its place, if anything.
    """

    place: Path
    aside: Path | None
    successor: Path | None


def new_tables_dir(settings: Settings) -> Path:
    """Where the new tables are made: among the old ones, so that a rename is enough."""
    return settings.data.tables_folder("a rebuild", _REMEDY) / _NEW


def swap_tables(settings: Settings, suffix: str) -> list[Path]:
    """Put the new tables into the place of the old ones and move the checkpoint away; the caller holds the job's lock.

    Args:
        settings: Ours.
        suffix: Of the names that the old tables and the checkpoint get.

    Returns:
        What was there before, where it is now.
    """
    data, new = settings.data, new_tables_dir(settings)
    successors: dict[Path, Path | None] = {data.checkpoint_dir: None}
    successors |= {new.parent / name: new / name for name in (ROUTE_STATE, ROUTE_CHANGES)}
    swaps = [
        _Swap(place, _free_name(place, suffix) if place.exists() else None, successor)
        for place, successor in successors.items()
    ]
    plan = data.run_dir / _PLAN
    plan.parent.mkdir(parents=True, exist_ok=True)
    draft = plan.with_suffix(".draft")
    with draft.open("w") as file:
        json.dump([[path and os.path.relpath(path, data.run_dir) for path in swap] for swap in swaps], file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(plan)
    settle_swap(settings)
    return [swap.aside for swap in swaps if swap.aside is not None]


def settle_swap(settings: Settings) -> bool:
    """Finish what a killed rebuild left: the renames it has written down, else away with its unproved tables.

    The caller holds the job's lock.

    Returns:
        Whether tables were put into their place.
    """
    if not isinstance(settings.data.tables_location, Path):
        return False  # there is no rebuild in an object store
    run_dir = settings.data.run_dir
    plan = run_dir / _PLAN
    has_plan = plan.exists()
    if has_plan:
        for paths in json.loads(plan.read_text()):
            _finish(_Swap(*(path and Path(os.path.normpath(run_dir / path)) for path in paths)))
        plan.unlink()
        _LOG.info("the rebuilt tables are in their place")
    shutil.rmtree(new_tables_dir(settings), ignore_errors=True)
    return has_plan


def _finish(swap: _Swap) -> None:
    """What of it has not been done; a successor that is gone is in its place."""
    if swap.successor is not None and not swap.successor.exists():
        return
    if swap.aside is not None and swap.place.exists() and not swap.aside.exists():
        swap.place.rename(swap.aside)
    if swap.successor is not None:
        swap.successor.rename(swap.place)


def _free_name(place: Path, suffix: str) -> Path:
    """Each name once: what is aside is never replaced."""
    name = place.with_name(f"{place.name}.{suffix}")
    number = 1
    while name.exists():
        number += 1
        name = place.with_name(f"{place.name}.{suffix}-{number}")
    return name
