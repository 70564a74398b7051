"""Rate-limits the log lines that peers cause, so that a peer that connects in a loop cannot fill the disk."""

import logging
from typing import Final

#: Every cause logs up to ``FEW`` lines in an interval; the rest is counted and summarised at the interval's end.
INTERVAL_MS: Final = 60_000
FEW: Final = 5


class PeerLog:
    """Limits the log lines of every cause. Its time advances with ``beat``. Used by one event loop."""

    def __init__(self) -> None:
        self._now_ms = 0
        self._causes: dict[tuple[str, str, str], _Cause] = {}

    def log(
        self, logger: logging.Logger, level: int, text: str, *args: object, kind: str = "", is_fault: bool = False
    ) -> None:
        """Log one line, or count it. The constant format ``text`` and ``kind``, which has few values, are the cause.

        Values from the peer must be escaped. ``is_fault`` adds the traceback of the exception that is being handled.
        """
        cause = self._causes.get((logger.name, text, kind))
        if cause is None:
            cause = self._causes[logger.name, text, kind] = _Cause(logger, level, text, self._now_ms)
        if cause.logged < FEW:
            cause.logged += 1
            logger.log(level, text, *args, exc_info=is_fault)
        else:
            cause.hidden += 1
            cause.last = args

    def beat(self, now_ms: int) -> None:
        """Log the summaries of finished intervals; ``now_ms`` is the time of any monotonic clock."""
        self._now_ms = now_ms
        over = [key for key, cause in self._causes.items() if now_ms - cause.since_ms >= INTERVAL_MS]
        for key in over:
            cause = self._causes.pop(key)
            if cause.hidden:
                cause.log_hidden(now_ms)

    def end(self) -> None:
        for cause in self._causes.values():
            if cause.hidden:
                cause.log_hidden(self._now_ms)
        self._causes.clear()


class _Cause:
    """The number of log lines of one cause within one interval, and what its summary needs."""

    def __init__(self, logger: logging.Logger, level: int, text: str, since_ms: int) -> None:
        self.since_ms = since_ms
        self.logged = self.hidden = 0
        self.last: tuple[object, ...] = ()
        self._logger = logger
        self._level = level
        self._text = text

    def log_hidden(self, now_ms: int) -> None:
        text = f"%d more within %d s, the last: {self._text}"
        self._logger.log(self._level, text, self.hidden, (now_ms - self.since_ms) // 1000, *self.last)
