"""``python -m tests.support.hanging_server serve …``: a server whose event loop hangs when a file appears.

The environment variable names the file, and its content says how the server hangs. The server removes the file first,
so that the next one does not hang.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Final

from namesrv_stream.__main__ import main
from namesrv_stream.watchdog import LogFormat, Supervision

VARIABLE: Final = "HANG_FILE"
_beat = Supervision.beat


def _compute() -> None:
    while True:
        pass


def _wait_for_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


_HANGS: Final = {"loop": _compute, "lock": _wait_for_lock}


def _beat_or_hang(self: Supervision, timeout_ms: int, log_format: LogFormat) -> None:
    path = Path(os.environ[VARIABLE])
    if path.exists():
        how = path.read_text()
        path.unlink()
        _HANGS[how]()
    _beat(self, timeout_ms, log_format)


def request_hang(path: Path, how: str) -> None:
    """Let the event loop of a server hang, by "loop" or "lock"."""
    draft = path.with_suffix(".draft")
    draft.write_text(how)
    draft.replace(path)


if __name__ == "__main__":
    Supervision.beat = _beat_or_hang  # type: ignore[method-assign]
    sys.exit(main())
