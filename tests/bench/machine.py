"""The resources that processes use, and a description of the machine; Linux only."""

import os
import platform
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.support.jvm import java_tool

_SAMPLED_EVERY_S: Final = 0.05


def family(pid: int) -> dict[int, str]:
    """Return a process and its descendants: pid → name of the program."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    names: dict[int, str] = {}
    for one in sorted(found):
        with suppress(OSError):
            names[one] = Path(f"/proc/{one}/comm").read_text().strip()
    return names


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(_stat(pid)[1])


def cpu_s(pids: Iterable[int]) -> float:
    """Return the seconds of processor time that processes have used so far; ended processes count as 0."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            ticks += sum(map(int, _stat(pid)[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mb(pids: Iterable[int]) -> float:
    """Return the resident memory of processes in MB; shared memory counts once (PSS)."""
    kilobytes = 0
    for pid in pids:
        with suppress(OSError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            kilobytes += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return kilobytes * 1024 / 1e6


@contextmanager
def peak_of(measure: Callable[[], float]) -> Iterator[list[float]]:
    """Measure again and again in a thread; yields a list of one number, the largest value so far."""
    peak, is_over = [measure()], threading.Event()

    def sample() -> None:
        while not is_over.wait(_SAMPLED_EVERY_S):
            peak[0] = max(peak[0], measure())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()


def facts() -> dict[str, str | int | float]:
    """Return facts about the machine, for readers of the figures."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    java = subprocess.run([java_tool("java"), "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java.splitlines()[0].strip(),
        "load_of_the_last_minute": round(os.getloadavg()[0], 2),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third one, the state; the name before it may contain spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
