"""Shows how far long work is: its percentage, its rate, and the time left."""

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

from namesrv_stream.instants import duration
from namesrv_stream.logs import progress

_TERMINAL_S: Final = 0.2
_LOG_S: Final = 10.0
_ERASE_LINE: Final = "\r\x1b[K"


class LongWork:
    """A context manager for the progress of work that has one or more steps.

    On a terminal it shows one line, which changes; otherwise it prints a line every 10 s.
    """

    def __init__(
        self,
        unit: str,
        terminal: TextIO | None = None,
        print_line: Callable[[str], None] = progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a report without a step.

        Args:
            unit: What is counted, in the plural.
            terminal: Where to show the line; by default stderr, if it is a terminal.
            print_line: Prints a line if there is no terminal.
            clock: Seconds of a monotonic clock.
        """
        self._unit = unit
        is_terminal = sys.stderr.isatty()
        self._terminal = terminal or (sys.stderr if is_terminal else None)
        self._print_line = print_line
        self._clock = clock
        self._step: tuple[str, int] | None = None
        self._began = (0, 0.0)  # units done before, and the time
        self._next_s = 0.0
        self._has_line = False

    def show(self, step: str, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` units of a step are done.

        The first call of a step begins the measurement of its rate. Call it as often as you like.
        """
        now_s = self._clock()
        interval_s = _LOG_S if self._terminal is None else _TERMINAL_S
        if self._step != (step, total) or done < self._began[0]:
            self._step, self._began, self._next_s = (step, total), (done, now_s), now_s + interval_s
        if now_s < self._next_s:
            return
        self._next_s = now_s + interval_s
        text = self._text(step, done, total, now_s)
        if self._terminal is None:
            self._print_line(text)
        else:
            self._terminal.write(f"{_ERASE_LINE}{text[: shutil.get_terminal_size().columns - 1]}")
            self._terminal.flush()
            self._has_line = True

    def erase(self) -> None:
        """Remove the line from the terminal, before other output."""
        if self._terminal is not None and self._has_line:
            self._terminal.write(_ERASE_LINE)
            self._terminal.flush()
            self._has_line = False

    def _text(self, step: str, done: int, total: int, now_s: float) -> str:
        before, began_s = self._began
        rate = (done - before) / max(now_s - began_s, 1e-3)
        left = f", {duration((total - done) / rate * 1000)} left" if rate else ""
        percent = 100 * done // max(total, 1)
        return f"{step}: {percent}%, {done:,} of {total:,} {self._unit}, {rate:,.0f}/s{left}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.erase()
