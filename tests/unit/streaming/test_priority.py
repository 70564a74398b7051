"""Who comes last does so among all sessions, but changes no session of others."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.kafka import REPOSITORY

_PROGRAM = """
import os
from pathlib import Path
from namesrv_stream.streaming.priority import come_last
come_last()
autogroup = Path("/proc/self/autogroup")
print(os.nice(0), *(autogroup.read_text().split()[-1:] if autogroup.exists() else ()))
"""


def _autogroup() -> str | None:
    """Return this session's niceness; None where processors are not shared so: no such file, or an empty one."""
    file = Path("/proc/self/autogroup")
    words = file.read_text().split() if file.exists() else []
    return words[-1] if words else None


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


def test_a_session_of_its_own_is_niced_and_no_other_one() -> None:
    ours = _autogroup()
    assert _run(start_new_session=True)[1:] == ([] if ours is None else ["10"])
    assert _run(start_new_session=False)[1:] == ([] if ours is None else [ours])
