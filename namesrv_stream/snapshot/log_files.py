"""A table's log as files: a commit is ``_delta_log/`` and its version as 20 digits, and never changes."""

import os
import re
from pathlib import Path
from typing import Final

import orjson

from namesrv_stream.location import Location
from namesrv_stream.snapshot.table_files import exists, names_in, read_bytes

_COMMIT_FILE: Final = re.compile(r"(\d{20})\.json")


def log_dir(table: Location) -> Location:
    """Where the log of a table is."""
    return table / "_delta_log"


def commit_file(table: Location, version: int) -> Location:
    """The file of one commit."""
    return log_dir(table) / f"{version:020d}.json"


def commit_files(table: Location) -> dict[int, Location]:
    """Version → file of the commits that are there, oldest first; none where there is no table."""
    return {version: commit_file(table, version) for version in sorted(_versions(table))}


def has_log(table: Location) -> bool:
    """Whether there is a table."""
    log = log_dir(table)
    if isinstance(log, Path):
        return log.is_dir()
    return exists(commit_file(table, 0)) or checkpointed_version(table) >= 0


def read_commit(file: Location) -> bytes | None:
    """What a commit file says; None while it is not there.

    Raises:
        StoreUnreachable: The object store does not answer.
    """
    if isinstance(file, Path):
        # A look at a file that is absent costs a tenth of an attempt to open it.
        return file.read_bytes() if os.path.exists(file) else None
    try:
        return read_bytes(file)
    except FileNotFoundError:
        return None


def has_left(table: Location, version: int) -> bool:
    """Whether the log goes on without the commit behind ``version``, or has begun anew; -1 for "before the first".

    Raises:
        StoreUnreachable: The object store does not answer.
    """
    if isinstance(table, Path):
        versions = _versions(table)
        if not versions:
            return version >= 0  # the table itself is gone
        return version + 1 not in versions and max(versions) > version
    # A listing would be of a day's commits. They are removed behind a checkpoint only.
    if version >= 0 and not exists(commit_file(table, version)):
        return True
    return checkpointed_version(table) > version and not exists(commit_file(table, version + 1))


def checkpointed_version(table: Location) -> int:
    """The version of the newest checkpoint; -1 where there is none.

    Raises:
        StoreUnreachable: The object store does not answer.
    """
    try:
        return int(orjson.loads(read_bytes(log_dir(table) / "_last_checkpoint"))["version"])
    except (FileNotFoundError, LookupError, ValueError):
        return -1


def _versions(table: Location) -> set[int]:
    return {int(match[1]) for match in map(_COMMIT_FILE.fullmatch, names_in(log_dir(table))) if match}
