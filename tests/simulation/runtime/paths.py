"""Paths on a simulated disk, and what replaces ``os``, ``shutil`` and the watch of a folder in ``Folder``."""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

from tests.simulation.runtime.disk import Inode, SimDisk


class SimPath:
    """A path on a disk, with the methods of ``pathlib.Path`` that ``Folder`` uses."""

    __slots__ = ("_disk", "text")

    def __init__(self, disk: SimDisk, text: str) -> None:
        self._disk, self.text = disk, text

    def __str__(self) -> str:
        return self.text

    def __lt__(self, other: "SimPath") -> bool:
        return self.text < other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimPath) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __truediv__(self, name: str) -> "SimPath":
        return SimPath(self._disk, f"{self.text}/{name}")

    @property
    def disk(self) -> SimDisk:
        return self._disk

    @property
    def name(self) -> str:
        return posixpath.basename(self.text)

    @property
    def parent(self) -> "SimPath":
        return SimPath(self._disk, posixpath.dirname(self.text))

    @property
    def parents(self) -> Iterator["SimPath"]:
        path = self
        while path.text != "/":
            path = path.parent
            yield path

    def with_name(self, name: str) -> "SimPath":
        return SimPath(self._disk, f"{posixpath.dirname(self.text)}/{name}")

    def exists(self) -> bool:
        return self._disk.is_folder(self.text) or self._disk.file(self.text) is not None

    def is_dir(self) -> bool:
        return self._disk.is_folder(self.text)

    def iterdir(self) -> Iterator[str]:
        below = [p for p in self._disk._folders if posixpath.dirname(p) == self.text and p != "/"]
        return iter([*below, *(self._disk.folder(self.text) or {})])

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        for folder in reversed([self, *self.parents]):
            self._disk.make_folder(folder.text)

    def read_bytes(self) -> bytes:
        return self._disk.read(self.text)

    def open(self, mode: str) -> "_File":
        return _File(self)

    def unlink(self, *, missing_ok: bool = False) -> None:
        if self._disk.file(self.text) is not None:
            self._disk.remove(self.text)

    def rename(self, target: "SimPath") -> None:
        self._disk.rename(self.text, target.text)


class _File:
    """A file that is written once, from its beginning."""

    def __init__(self, path: SimPath) -> None:
        self._path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, content: bytes) -> None:
        self._path.disk.write(self._path.text, content)

    def flush(self) -> None:
        pass

    def fileno(self) -> SimPath:
        return self._path


def os_of() -> Any:
    """Return what replaces ``os`` in the module of ``Folder``. A path serves as its own file descriptor."""

    @contextmanager
    def scandir(path: SimPath) -> Iterator[list[Any]]:
        found = path.disk.folder(path.text)
        if found is None:
            raise FileNotFoundError(2, "No such file or directory", path.text)
        yield [_entry(name, inode) for name, inode in found.items()]

    def fsync(path: SimPath) -> None:
        if path.is_dir():
            path.disk.sync_folder(path.text)
        else:
            path.disk.sync_file(path.text)

    def open_path(path: SimPath, _flags: int) -> SimPath:
        if not path.exists():
            raise FileNotFoundError(2, "No such file or directory", path.text)
        return path

    return SimpleNamespace(
        O_RDONLY=0,
        close=lambda _: None,
        fsync=fsync,
        link=lambda source, target: source.disk.link(source.text, target.text),
        open=open_path,
        path=SimpleNamespace(exists=lambda path: path.exists()),
        replace=lambda source, target: source.disk.rename(source.text, target.text),
        scandir=scandir,
    )


def _entry(name: str, inode: Inode) -> Any:
    size = len(inode.content)
    return SimpleNamespace(name=name, is_file=lambda: True, stat=lambda: SimpleNamespace(st_size=size))


def shutil_of() -> Any:
    return SimpleNamespace(rmtree=lambda path, ignore_errors: path.disk.remove_all(path.text))


class SimWatch:
    """Waits for new files in a folder. It always notices them, so it also waits longer than the product's own watch."""

    def __init__(self, path: SimPath, interval_s: float, *, longest_us: int) -> None:
        self._longest_us = longest_us
        self._waiters = path.disk.waiters(path.text)
        self._is_stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self) -> None:
        pass

    def wait(self) -> None:
        if not self._is_stopped:
            self._waiters.wait(self._longest_us)

    def wake(self) -> None:
        self._is_stopped = True
        self._waiters.wake()
