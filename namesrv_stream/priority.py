"""Who gets the processor first where there is not enough of it."""

import os
from contextlib import suppress
from pathlib import Path


def give_way(pid: int, niceness: int) -> None:
    """Let other processes go before this one, and before those that it starts from now on, where the system allows it.

    Linux may share processors between sessions first, and niceness then counts within one alone. So a session that
    the process leads is niced too, as ``up`` gives one to each part; one of others stays as it is. Containers with
    shares of their own know neither.

    Args:
        pid: Process id; nothing happens if it is gone. If it leads a process group, the whole group is meant.
        niceness: By how much, 1 to 19.

    Source: sched(7), "The autogroup feature".
    """
    with suppress(OSError):  # gone, or not ours to change
        # Of a process the call means its first thread alone.
        who = os.PRIO_PGRP if os.getpgid(pid) == pid else os.PRIO_PROCESS
        os.setpriority(who, pid, os.getpriority(os.PRIO_PROCESS, pid) + niceness)
        if os.getsid(pid) == pid:
            Path(f"/proc/{pid}/autogroup").write_text(str(niceness), encoding="ascii")
