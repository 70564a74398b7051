"""A small disk for the files of the job's Spark, which a test can fill.

For root, it is a separate tmpfs, which really becomes full. For other users, a limit (RLIMIT_FSIZE) forbids the job's
processes to extend any file: the same writes fail, with EFBIG instead of ENOSPC.
"""

import os
import resource
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

SIZE_MB: Final = 192
_FILLER: Final = "filler"
_CHUNK: Final = b"\0" * (1 << 20)


class SmallDisk:
    """A folder on a separate disk, or with a limit.

    Attributes:
        kind: How the disk becomes full, for the report.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        options = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(folder)]
        try:
            mounted = subprocess.run(options, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            mounted = False
        self._is_mounted = mounted
        self.kind = f"tmpfs of {SIZE_MB} MB without room (ENOSPC)" if mounted else "RLIMIT_FSIZE of 0 (EFBIG)"

    def fill(self, pids: Iterable[int]) -> None:
        """Fill the disk: from now on nothing can be written.

        Args:
            pids: Processes of the job, which get the limit if there is no separate disk.
        """
        if not self._is_mounted:
            for pid in pids:
                with suppress(ProcessLookupError):
                    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
            return
        with suppress(OSError), (self._folder / _FILLER).open("wb", buffering=0) as filler:
            while True:
                filler.write(_CHUNK)
        # The rest that is smaller than a chunk.
        with suppress(OSError), (self._folder / _FILLER).open("ab", buffering=0) as filler:
            while True:
                filler.write(b"\0" * 512)

    def free(self, pids: Iterable[int]) -> None:
        """Free the disk."""
        if self._is_mounted:
            (self._folder / _FILLER).unlink(missing_ok=True)
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))

    def close(self) -> None:
        """Unmount the disk, even if files are open."""
        if self._is_mounted:
            subprocess.run(["umount", "-l", str(self._folder)], capture_output=True, check=False)
            self._is_mounted = False

    @property
    def free_bytes(self) -> int:
        """Return the free bytes."""
        status = os.statvfs(self._folder)
        return status.f_bavail * status.f_frsize
