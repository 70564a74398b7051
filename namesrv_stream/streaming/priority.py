"""The processor first to all others."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_NICENESS: Final = 10
_AUTOGROUP: Final = Path("/proc/self/autogroup")


def come_last() -> None:
    """Let other processes go first; those that this one starts inherit it.

    Linux may share processors between sessions first, and niceness then counts within one alone. So the session is
    niced too where it is our own, as ``up`` gives one to each part.

    Source: sched(7), "The autogroup feature".
    """
    os.nice(_NICENESS)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            _AUTOGROUP.write_text(str(_NICENESS), encoding="ascii")
