"""Who gives way does so among all sessions, but changes no session of others."""

import os
import subprocess
import sys

from namesrv_stream.priority import give_way
from tests.support.kafka import REPOSITORY
from tests.support.processes import wait_until

_PROGRAM = """
import os
from pathlib import Path
from namesrv_stream.priority import give_way

def autogroup():
    file = Path("/proc/self/autogroup")
    words = file.read_text().split() if file.exists() else []
    return words[-1] if words else "none"  # of a kernel that shares processors otherwise

before = autogroup()
give_way(os.getpid(), 10)
print(os.nice(0), before, autogroup())
"""


def _run(start_new_session: bool) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        start_new_session=start_new_session,
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    return found.stdout.split()


def test_the_process_is_niced() -> None:
    assert _run(start_new_session=False)[0] == str(min(19, os.nice(0) + 10))


def test_a_session_of_its_own_is_niced() -> None:
    # Linux takes one such change in 100 ms from those who are not root, of the whole machine.
    wait_until(lambda: _run(start_new_session=True)[2] in ("10", "none"), 60, "the session is niced")


def test_a_session_of_others_stays_as_it_is() -> None:
    _, before, after = _run(start_new_session=False)
    assert after == before


def test_a_process_that_is_gone_is_no_error() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()

    give_way(gone.pid, 10)
