"""Simulated dates for a process and its children: the wall clock is shifted, and files are dated back to it.

Delta decides by dates what it keeps or removes: the dates of files and commits, and the current date. A month that is
made in minutes needs the dates of a month, because otherwise nothing in it would ever be old.
"""

import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from namesrv_stream.clock import SystemClock
from tests.bench.compiler import compile_preload

_SOURCE: Final = Path(__file__).with_suffix(".c")
_PRELOAD: Final = "LD_PRELOAD"
_FILE: Final = "SHIFTED_CLOCK"
_BYTES: Final = 8
_TOLERANCE_MS: Final = 5_000


def run_again_with_shifted_clock() -> None:
    """Replace this process by itself with the clock preloaded, unless that has been done.

    Raises:
        NoCompiler: There is no C compiler.
    """
    if _FILE in os.environ:
        return
    library = compile_preload(_SOURCE)
    # The file is in memory, and the kernel removes it with the last process that has it open.
    shift = os.memfd_create("shifted-clock", 0)
    os.write(shift, bytes(_BYTES))
    environment = os.environ | {_PRELOAD: str(library), _FILE: f"/proc/{os.getpid()}/fd/{shift}"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


class ShiftedClock:
    """The clock of this process and of the processes that it starts.

    Attributes:
        begun_ms: Real time at which the simulation began, epoch milliseconds.
    """

    def __init__(self) -> None:
        """Take over the clock, which shows the real time so far."""
        with Path(os.environ[_FILE]).open("r+b") as file:
            self._shift = mmap.mmap(file.fileno(), _BYTES)
        self._shift_ms = 0
        self.begun_ms = SystemClock().now_ms()

    def set(self, at_ms: int) -> None:
        """Set the clock to an instant, epoch milliseconds; it continues from there."""
        self._shift_ms += at_ms - SystemClock().now_ms()
        self._shift[:_BYTES] = (self._shift_ms * 1_000_000).to_bytes(_BYTES, sys.byteorder, signed=True)
        assert abs(SystemClock().now_ms() - at_ms) < _TOLERANCE_MS, "the shifted clock is not preloaded"

    def date_back(self, folder: Path) -> None:
        """Give the files that were written since the begin of the simulation the clock's current date."""
        now_s = SystemClock().now_ms() / 1000
        for entry in _files(folder):
            if entry.stat().st_mtime * 1000 >= self.begun_ms:
                os.utime(entry.path, (now_s, now_s))


def _files(folder: Path) -> Iterator["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            else:
                yield entry
