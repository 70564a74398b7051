"""Watches whether the machine is overloaded: with many more runnable processes than cores, no part makes progress."""

import os
import threading
from collections import deque
from pathlib import Path
from typing import Final

from tests.chaos.truth import Span, now_ms

#: Runnable processes per core, on average over the window; the product under this fleet has about two.
MOST_A_CORE: Final = 4
_SAMPLE_S: Final = 0.25
_WINDOW: Final = 8
_STAT: Final = Path("/proc/stat")


class MachineWatch:
    """Takes samples on its own thread, from ``start`` to ``stop``.

    Attributes:
        spans: Periods in which the machine was overloaded.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="machine-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        most = MOST_A_CORE * (os.cpu_count() or 1)
        window: deque[int] = deque(maxlen=_WINDOW)
        since_ms = 0
        while not self._ended.wait(_SAMPLE_S):
            window.append(_runnable())
            is_starved = sum(window) > most * len(window)
            if is_starved and not since_ms:
                since_ms = now_ms()
            elif since_ms and not is_starved:
                self.spans.append(Span("starved", "machine", since_ms, now_ms()))
                since_ms = 0
        if since_ms:
            self.spans.append(Span("starved", "machine", since_ms, now_ms()))


def _runnable() -> int:
    """Return the number of runnable processes."""
    for line in _STAT.read_text(encoding="ascii").splitlines():
        if line.startswith("procs_running "):
            return int(line.split()[1])
    return 0
