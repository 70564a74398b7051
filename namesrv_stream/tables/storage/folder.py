"""Tables in a local or mounted folder.

A file is written under a temporary name, synced, and then linked or renamed to its final name. Then the folder is
synced. So a power failure leaves either the complete file or nothing, and acknowledged files are never lost (ADR 0049).
"""

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from namesrv_stream.tables.storage.interface import CommitWatch, Storage


class Folder(Storage):
    """A folder.

    Args:
        path: Path of the folder, which need not exist yet.
    """

    check_interval_s = 1.0

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Self:
        return type(self)(self.path / name)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def delta_options(self) -> None:
        return None

    @property
    def polars_options(self) -> None:
        return None

    def make(self) -> None:
        missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        for folder in reversed(missing):
            _sync(folder.parent)

    def sizes(self) -> Mapping[str, int]:
        found = {}
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # removed since it was listed
                    if entry.is_file():
                        found[entry.name] = entry.stat().st_size
        return found

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path / name)

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def create(self, name: str, content: bytes) -> None:
        with self._staged(name, content) as staged:
            os.link(staged, self.path / name)

    def write(self, name: str, content: bytes) -> None:
        with self._staged(name, content) as staged:
            os.replace(staged, self.path / name)

    def sync(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            path = self.path / name
            with suppress(FileNotFoundError):
                _sync(path)
                folders.add(path.parent)
        for folder in sorted(folders):
            _sync(folder)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def move(self, source: str, target: str) -> None:
        old, new = self.path / source, self.path / target
        if not old.exists() and new.exists():
            return
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
        for folder in {old.parent, new.parent}:
            _sync(folder)

    def remove_all(self, name: str) -> None:
        shutil.rmtree(self.path / name, ignore_errors=True)

    def has(self, name: str) -> bool:
        path = self.path / name
        return path.is_dir() and any(path.iterdir())

    def watch(self, interval_s: float) -> CommitWatch:
        return CommitWatch(self.path, interval_s)

    @contextmanager
    def _staged(self, name: str, content: bytes) -> Iterator[Path]:
        """Write and sync a temporary file for the caller to rename; sync the folder afterwards."""
        path = self.path / name
        staged = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with staged.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield staged
        finally:
            staged.unlink(missing_ok=True)
        _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
