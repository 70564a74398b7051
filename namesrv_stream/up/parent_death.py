"""A child of ``up`` ends with it, even when ``up`` is killed and can tell nobody.

Linux sends SIGTERM when the parent is gone (PR_SET_PDEATHSIG, which survives ``exec``, so Kafka's Java has it too);
a thread sees to it that a process which does not stop by itself is killed.
"""

import ctypes
import os
import signal
import threading
import time
from typing import Final

PARENT_PID_VARIABLE: Final = "NAMESRV_STREAM_PARENT_PID"

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_POLL_S: Final = 1.0
_GRACE_S: Final = 8.0  # as long as `up` itself would have waited, about


def die_with_parent() -> None:
    """Tie this process's life to its parent's if ``up`` started it; call first thing in the main thread.

    The mark is taken out of the environment: this process's own children are its own affair.
    """
    parent_text = os.environ.pop(PARENT_PID_VARIABLE, "")
    if not parent_text.isdecimal():
        return
    parent = int(parent_text)
    is_signalled = _ask_for_sigterm()
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=_kill_after, args=(parent, is_signalled), name="parent-watch", daemon=True).start()


def _ask_for_sigterm() -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) == 0)
    except (OSError, AttributeError):  # not Linux
        return False


def _kill_after(parent: int, is_signalled: bool) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    if not is_signalled:
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)
