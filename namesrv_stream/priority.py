"""Who gets the processor first where there is not enough of it."""

import os
from contextlib import suppress
from pathlib import Path


def give_way(pid: int, niceness: int) -> None:
    """Let other processes go before this one, and before those that it starts from now on.

    Linux may share processors between sessions first, and niceness then counts within one alone. So a session that
    the process leads is niced too, as ``up`` gives one to each part; one of others stays as it is.

    Args:
        pid: Process id; nothing happens if it is gone.
        niceness: By how much, 1 to 19.

    Source: sched(7), "The autogroup feature".
    """
    with suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid) + niceness)
        if os.getsid(pid) == pid:
            with suppress(OSError):
                Path(f"/proc/{pid}/autogroup").write_text(str(niceness), encoding="ascii")
