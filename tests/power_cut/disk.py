"""A model of a directory after a power cut, on a journalling file system with delayed allocation.

The model is that of ext4 (``data=ordered,noauto_da_alloc``) and XFS, with the weaker guarantee wherever they differ:

* Changes of names (create, mkdir, link, rename, unlink) go through a journal. A prefix of the journal survives, and
  each change in it completely. Syncing a directory makes its newest change durable, with everything before that change.
  Syncing a file does *not* make its name durable, as in POSIX; on ext4 it would.
* Synced data survives. Data written since then is not guaranteed: the file may lack it, be truncated, contain zeros in
  its place, or contain some or all of its pages. The size of a file is part of its data.
* A truncation goes through the journal, too. It may survive without the data that was written after it.
* The kernel itself writes back data that is some seconds old. Everything up to some position before the cut may
  therefore be on the disk as if it had been synced.

The disk itself is correct: it neither loses data that it has confirmed nor changes stored data.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final

from tests.power_cut.trace import Kind, Operation

_PAGE: Final = 4_096
_NAMES: Final = frozenset({Kind.CREATE, Kind.MAKE_DIRECTORY, Kind.LINK, Kind.RENAME, Kind.REMOVE})

#: path → content of a file, None for a directory.
Image = dict[str, bytes | None]


class Data(StrEnum):
    """What happens to data that was not synced."""

    ABSENT = "absent"
    SHORT = "cut short"
    ZEROS = "zeros"
    PAGES = "some pages"
    COMPLETE = "complete"


class Names(StrEnum):
    """How many of the name changes that were not made durable survive."""

    NONE = "only durable names"
    SOME = "some names"
    ALL = "all names"


@dataclass(frozen=True, slots=True)
class PowerCut:
    """One power cut; equal cuts leave equal directories.

    Attributes:
        position: The number of operations before it.
        seed: Seed of all random choices.
        written_back: The number of operations whose effect the kernel had written back by itself.
        names: What happens to names.
        data: What happens to data; None chooses at random for each file.
        is_log_trimmed: Whether Kafka no longer has the records that were folded long before the cut.
    """

    position: int
    seed: int
    written_back: int
    names: Names
    data: Data | None
    is_log_trimmed: bool

    def __str__(self) -> str:
        data = self.data or "drawn for each file"
        return (
            f"seed {self.seed}, cut at {self.position}: written back up to {self.written_back}, {self.names},"
            f" unsynced data {data}, {'log trimmed' if self.is_log_trimmed else 'whole log'}"
        )


def draw_cut(position: int, seed: int) -> PowerCut:
    """Draw a cut at a position, from a seed."""
    draw = random.Random(f"cut {seed} {position}")
    written_back = draw.choice((0, draw.randint(0, position), draw.randint(position // 2, position)))
    names = draw.choice((Names.NONE, Names.SOME, Names.SOME, Names.ALL))
    data = draw.choice((*Data, None, None))
    return PowerCut(position, seed, written_back, names, data, is_log_trimmed=draw.random() < 0.5)


def image_after(operations: Sequence[Operation], cut: PowerCut, *, syncs_count: bool = True) -> Image:
    """Return the directory after the cut; with ``syncs_count`` false, as if the process had never synced."""
    disk = Disk()
    for operation in operations[: cut.written_back]:
        disk.apply(operation)
    disk.sync_everything()
    for operation in operations[cut.written_back : cut.position]:
        if syncs_count or operation.kind is not Kind.SYNC:
            disk.apply(operation)
    return disk.survivors(cut)


def write_image(image: Image, directory: Path) -> None:
    """Write the directory; parents come before their content."""
    for path, content in sorted(image.items()):
        place = directory / path
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


def read_image(directory: Path) -> Image:
    """Read a real directory into the same form."""
    paths = sorted(directory.rglob("*"))
    return {str(p.relative_to(directory)): None if p.is_dir() else p.read_bytes() for p in paths}


class _File:
    """The data of one file.

    Attributes:
        synced: Content that is on the disk for certain.
        current: Content that the process sees.
        is_dirty: Whether anything was written since the last sync.
        kept: How many bytes of ``synced`` no truncation has removed since.
    """

    def __init__(self) -> None:
        self.synced = b""
        self.current = bytearray()
        self.is_dirty = False
        self.kept = 0

    def write(self, offset: int, data: bytes) -> None:
        if offset > len(self.current):
            self.current.extend(bytes(offset - len(self.current)))
        self.current[offset : offset + len(data)] = data
        self.is_dirty = True

    def truncate(self, size: int) -> None:
        del self.current[size:]
        self.current.extend(bytes(size - len(self.current)))
        self.kept = min(self.kept, size)
        self.is_dirty = True

    def sync(self) -> None:
        if self.is_dirty:
            self.synced, self.kept, self.is_dirty = bytes(self.current), len(self.current), False

    def surviving(self, data: Data, draw: random.Random) -> bytes:
        """Return what a cut leaves of the file."""
        if not self.is_dirty or data is Data.COMPLETE:
            return bytes(self.current)
        base = self.synced[: draw.choice((self.kept, len(self.synced)))]
        if data is Data.ABSENT:
            return base
        if data is Data.SHORT:
            return bytes(self.current[: draw.randint(min(self.kept, len(self.current)), len(self.current))])
        old = base[: len(self.current)].ljust(len(self.current), b"\0")
        if data is Data.ZEROS:
            return old
        pages = range(0, len(self.current), _PAGE)
        return b"".join(bytes(draw.choice((old, self.current))[at : at + _PAGE]) for at in pages)


class Disk:
    """The directory while operations are applied to it, and its durable part."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._nodes: dict[int, int] = {}  # inode number → file or directory; the file system reuses numbers
        self._names: dict[str, int] = {}  # as the process sees them
        self._journal: list[tuple[Operation, int]] = []
        self._changed: dict[int, int] = {}  # directory → length of the journal at its newest change
        self._durable = 0  # length of the durable part of the journal

    def apply(self, operation: Operation) -> None:
        """Apply an operation of the process."""
        if operation.kind in _NAMES:
            self._change_names(operation)
        elif operation.kind is Kind.BEGIN:
            self._names["."] = self._nodes[operation.inode] = 0
        elif operation.kind is Kind.SYNC:
            self._sync(operation.inode)
        elif operation.kind is Kind.WRITE:
            self._file(operation).write(operation.offset, operation.data)
        elif operation.kind is Kind.TRUNCATE:
            self._file(operation).truncate(operation.offset)

    def sync_everything(self) -> None:
        """Make all changes durable."""
        self._durable = len(self._journal)
        for file in self._files.values():
            file.sync()

    def image(self) -> Image:
        """Return the directory as the process sees it."""
        return self._image(self._names.items(), {node: bytes(file.current) for node, file in self._files.items()})

    def survivors(self, cut: PowerCut) -> Image:
        """Return the directory after a cut at this moment."""
        draw = random.Random(f"survivors {cut.seed} {cut.position}")
        of_names = {
            Names.NONE: self._durable,
            Names.SOME: draw.randint(self._durable, len(self._journal)),
            Names.ALL: len(self._journal),
        }
        names: dict[str, int] = {}
        for operation, node in self._journal[: of_names[cut.names]]:
            _apply_name(names, operation, node)
        contents = {
            node: self._files[node].surviving(cut.data or draw.choice(list(Data)), draw)
            for node in sorted(set(names.values()) & self._files.keys())
        }
        return self._image(names.items(), contents)

    def _image(self, names: Iterable[tuple[str, int]], contents: dict[int, bytes]) -> Image:
        return {path: contents.get(node) for path, node in names if path != "."}

    def _file(self, operation: Operation) -> _File:
        return self._files[self._nodes[operation.inode]]

    def _change_names(self, operation: Operation) -> None:
        if operation.kind in (Kind.CREATE, Kind.MAKE_DIRECTORY):
            self._nodes[operation.inode] = len(self._journal) + 1
        if operation.kind is Kind.CREATE:
            self._files[self._nodes[operation.inode]] = _File()
        node = self._nodes[operation.inode] if operation.inode else 0
        self._journal.append((operation, node))
        for path in filter(None, (operation.path, operation.target)):
            self._changed[self._names[str(PurePosixPath(path).parent)]] = len(self._journal)
        _apply_name(self._names, operation, node)

    def _sync(self, inode: int) -> None:
        if not inode:
            self.sync_everything()
            return
        node = self._nodes[inode]
        if node in self._files:
            self._files[node].sync()
        else:
            self._durable = max(self._durable, self._changed.get(node, 0))


def _apply_name(names: dict[str, int], operation: Operation, node: int) -> None:
    """Apply the name change of an operation."""
    if operation.kind is Kind.REMOVE:
        del names[operation.path]
    elif operation.kind is Kind.RENAME:
        below = f"{operation.path}/"
        names[operation.target] = names.pop(operation.path)
        for path in [path for path in names if path.startswith(below)]:
            names[f"{operation.target}/{path.removeprefix(below)}"] = names.pop(path)
    else:
        names[operation.path] = node
