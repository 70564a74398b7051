"""A disk that loses what was not synced.

The product's ``Folder`` runs on it unchanged. The rules are those of ``docs/power-cuts.md``: after a power cut,
the surviving changes of names are a prefix of all of them, and a file whose data was not synced has none, a part or all
of its data.
"""

import posixpath
import random
from collections.abc import Callable

from greenlet import GreenletExit

from tests.simulation.runtime.scheduler import Scheduler, Waiters


class Inode:
    """The content of a file, and how much of it is on the disk."""

    __slots__ = ("content", "modified_ms", "synced")

    def __init__(self, content: bytes, modified_ms: int) -> None:
        self.content = content
        self.synced: bytes | None = None
        self.modified_ms = modified_ms


Folders = dict[str, dict[str, Inode]]


class SimDisk:
    """The files of one machine.

    Attributes:
        is_full: Whether writing fails.
        slowness: The longest time that a read or a sync takes; other threads run meanwhile.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.is_full = False
        self.slowness = 0
        self.on_change: Callable[[], None] = lambda: None
        self._scheduler = scheduler
        self._folders: Folders = {"/": {}}
        self._durable: Folders = {"/": {}}
        self._pending: list[tuple[str, Callable[[Folders], None]]] = []  # changes of names that are not durable
        self._watchers: dict[str, Waiters] = {}

    # ---- reading ----

    def folder(self, path: str) -> dict[str, Inode] | None:
        return self._folders.get(path)

    def is_folder(self, path: str) -> bool:
        return path in self._folders

    def file(self, path: str) -> Inode | None:
        folder, name = posixpath.split(path)
        found = self._folders.get(folder)
        return None if found is None else found.get(name)

    def read(self, path: str) -> bytes:
        self._take_time()
        found = self.file(path)
        if found is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return found.content

    def waiters(self, folder: str) -> Waiters:
        if folder not in self._watchers:
            self._watchers[folder] = Waiters(self._scheduler)
        return self._watchers[folder]

    # ---- writing ----

    def _begin(self) -> None:
        """Refuse changes of killed processes, and tell the crash points that a change begins."""
        process = self._scheduler.current
        if process is not None and not process.is_alive:
            raise GreenletExit
        self.on_change()
        if process is not None and not process.is_alive:
            raise GreenletExit

    def write(self, path: str, content: bytes) -> Inode:
        self._begin()
        if self.is_full:
            raise OSError(28, "No space left on device", path)
        inode = Inode(content, self._now_ms())
        self._name(posixpath.dirname(path), lambda folders: _put(folders, path, inode))
        return inode

    def link(self, source: str, target: str) -> None:
        self._begin()
        inode = self.file(source)
        if inode is None:
            raise FileNotFoundError(2, "No such file or directory", source)
        if self.file(target) is not None:
            raise FileExistsError(17, "File exists", target)
        self._name(posixpath.dirname(target), lambda folders: _put(folders, target, inode))
        self._scheduler.trace(f"disk link {target} {len(inode.content)}")
        self._report(target)

    def rename(self, source: str, target: str) -> None:
        self._begin()
        inode = self.file(source)
        if inode is None and not self.is_folder(source):
            raise FileNotFoundError(2, "No such file or directory", source)

        def change(folders: Folders) -> None:
            if inode is not None:
                _drop(folders, source)
                _put(folders, target, inode)
                return
            for path in [p for p in folders if p == source or p.startswith(f"{source}/")]:
                folders[target + path[len(source) :]] = folders.pop(path)

        self._name(posixpath.dirname(target), change)
        self._scheduler.trace(f"disk rename {target}")
        self._report(target)

    def remove(self, path: str) -> None:
        self._begin()
        self._name(posixpath.dirname(path), lambda folders: _drop(folders, path))

    def remove_all(self, path: str) -> None:
        self._begin()
        below = [p for p in self._folders if p == path or p.startswith(f"{path}/")]

        def change(folders: Folders) -> None:
            for each in below:
                folders.pop(each, None)

        self._name(posixpath.dirname(path), change)

    def make_folder(self, path: str) -> None:
        if path not in self._folders:
            self._begin()
            self._name(posixpath.dirname(path), lambda folders: folders.update({path: folders.get(path, {})}))

    def sync_file(self, path: str) -> None:
        self._take_time()
        inode = self.file(path)
        if inode is not None:
            self._begin()
            inode.synced = inode.content

    def sync_folder(self, path: str) -> None:
        """Make the newest change of a folder's names durable, and all changes before it."""
        self._take_time()
        self._begin()
        last = max((number for number, (folder, _) in enumerate(self._pending) if folder == path), default=-1)
        for _, change in self._pending[: last + 1]:
            change(self._durable)
        del self._pending[: last + 1]

    def _take_time(self) -> None:
        if self.slowness and self._scheduler.thread is not None:
            self._scheduler.sleep(self._scheduler.random.randrange(self.slowness))

    def _name(self, folder: str, change: Callable[[Folders], None]) -> None:
        change(self._folders)
        self._pending.append((folder, change))

    def _report(self, path: str) -> None:
        found = self._watchers.get(posixpath.dirname(path))
        if found is not None:
            found.wake()

    def _now_ms(self) -> int:
        process = self._scheduler.current
        return 0 if process is None else process.machine.wall_ms()

    # ---- power ----

    def lose_power(self, draws: random.Random) -> int:
        """Lose what was not synced. Return the number of changes that were lost."""
        kept = draws.randint(0, len(self._pending))
        for _, change in self._pending[:kept]:
            change(self._durable)
        lost = len(self._pending) - kept
        self._pending.clear()
        self._folders = {path: dict(files) for path, files in self._durable.items()}
        for files in self._folders.values():
            for inode in files.values():
                if inode.synced is None:
                    size = draws.choice((0, draws.randint(0, len(inode.content)), len(inode.content)))
                    inode.content = inode.content[:size]
                    inode.synced = inode.content
                    lost += 1
        return lost

    def not_durable(self, path: str, older_than_ms: int) -> list[str]:
        """Return the files below a folder that a power cut would damage or lose, without temporary and newer ones."""
        newest_ms = self._now_ms() - older_than_ms
        return [
            f"{folder}/{name}"
            for folder, files in self._folders.items()
            for name, inode in files.items()
            if folder.startswith(path) and not name.startswith(".") and inode.modified_ms <= newest_ms
            if inode.synced is None or self._durable.get(folder, {}).get(name) is not inode
        ]

    def damage(self, path: str, draws: random.Random) -> None:
        """Lose the end of a file, as a defective disk does."""
        inode = self.file(path)
        if inode is not None:
            inode.content = inode.synced = inode.content[: draws.randrange(max(1, len(inode.content)))]

    def copy_of(self, path: str) -> Folders:
        """Return a backup of a folder."""
        return {p: dict(files) for p, files in self._folders.items() if p == path or p.startswith(f"{path}/")}

    def restore(self, path: str, backup: Folders) -> None:
        """Replace a folder by a backup; durable."""
        for folders in (self._folders, self._durable):
            for each in [p for p in folders if p == path or p.startswith(f"{path}/")]:
                del folders[each]
            folders |= {p: dict(files) for p, files in backup.items()}
        for inode in (inode for files in backup.values() for inode in files.values()):
            inode.synced = inode.content
        self._pending.clear()
        for folder, found in self._watchers.items():
            if folder.startswith(path):
                found.wake()


def _put(folders: Folders, path: str, inode: Inode) -> None:
    folder, name = posixpath.split(path)
    if folder in folders:
        folders[folder][name] = inode


def _drop(folders: Folders, path: str) -> None:
    folder, name = posixpath.split(path)
    if folder in folders:
        folders[folder].pop(name, None)
