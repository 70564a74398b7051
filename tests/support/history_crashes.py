"""What a writer of Delta tables leaves on disk when it is killed, for each moment of a run that was not killed.

A commit is made of new data files and then one new entry in the log, put there by a rename. So whenever the writer is
killed, the tables have all of the commits before, of the one under way some data files and maybe an entry that was
not renamed yet, and nothing of those after.
"""

import os
import shutil
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import orjson

_LOG = "_delta_log"


class Commit(NamedTuple):
    """A commit that a run made.

    Attributes:
        made_ns: When.
        table: Name of the table.
        version: Of the table.
    """

    made_ns: int
    table: str
    version: int

    @property
    def entry(self) -> Path:
        """Its entry in the log, below the folder of the tables."""
        return Path(self.table, _LOG, f"{self.version:020}.json")


class Crash(NamedTuple):
    """A moment within a commit.

    Attributes:
        whole: Commits that are there.
        torn: The one of which only data files are.
    """

    whole: tuple[Commit, ...]
    torn: Commit

    def __str__(self) -> str:
        return f"amid {self.torn.table}@{self.torn.version}, after {len(self.whole)} commits"


def commits_between(before: Path, after: Path) -> list[Commit]:
    """What a run committed, in order.

    Args:
        before: A copy of the folder of the tables from before the run.
        after: The folder.
    """
    found = [
        Commit(entry.stat().st_mtime_ns, entry.parent.parent.name, int(entry.stem))
        for entry in after.glob(f"*/{_LOG}/*.json")
        if entry.stem.isdecimal() and not (before / entry.relative_to(after)).exists()
    ]
    return sorted(found)


def crashes_of(commits: list[Commit]) -> list[Crash]:
    """A moment within each commit; the one between two commits is that without what is left of the second."""
    return [Crash(tuple(commits[:number]), commit) for number, commit in enumerate(commits)]


def lay_out(crash: Crash, before: Path, after: Path, target: Path) -> None:
    """Make a folder of tables as the crash leaves it.

    Args:
        crash: Of the run between the two.
        before: As of ``commits_between``.
        after: As of ``commits_between``.
        target: Is not there yet.
    """
    shutil.copytree(before, target)
    for commit in crash.whole:
        _link_data(commit, after, target)
        _link(after, target, commit.entry)
    entry = _link_data(crash.torn, after, target)
    unfinished = crash.torn.entry.with_name(f".{crash.torn.entry.name}.00000000-dead-beef.tmp")
    (target / unfinished).write_bytes(entry[: len(entry) // 2])


def _link_data(commit: Commit, source: Path, target: Path) -> bytes:
    """Put the data files of a commit there; returns its entry."""
    entry = (source / commit.entry).read_bytes()
    for action in map(orjson.loads, entry.splitlines()):
        if "add" in action:
            _link(source, target, Path(commit.table, unquote(action["add"]["path"])))
    return entry


def _link(source: Path, target: Path, path: Path) -> None:
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    os.link(source / path, target / path)
