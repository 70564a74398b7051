"""`make demo` executes every announced step and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import Process, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(420)]

_DEMO = (sys.executable, "-m", "namesrv_stream", "demo")


def _leftovers(data_dir: Path) -> list[str]:
    """Return the processes whose command line contains the data directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and entry.name != str(os.getpid()):
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            except OSError:
                continue
            if str(data_dir) in words:
                found.append(words)
    return found


def test_demo_executes_every_step_and_leaves_no_process(tmp_path: Path) -> None:
    data_dir = tmp_path / "demo"
    run = subprocess.run(
        [*_DEMO, "--data-dir", str(data_dir)], capture_output=True, text=True, timeout=400, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    for pattern in (
        r"broker-b is removed from the route: [\d.]+ m?s",
        "has the cause: disconnected",
        r"broker-c has expired, measured from the freeze: [\d.]+ s",
        "has the cause: expired",
        r"broker-c is in the route again: [\d.]+ m?s",
        "has the cause: unregistered",
        "All steps succeeded",
    ):
        assert re.search(pattern, run.stdout), f"{pattern} is not in:\n{run.stdout}"
    assert _leftovers(data_dir) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_demo_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    data_dir = tmp_path / "demo"
    with Process("demo", [*_DEMO, "--data-dir", str(data_dir)], tmp_path / "demo.log") as demo:
        demo.wait_for_log("waiting for the Spark job", 120)
        demo.signal(number)
        assert demo.wait(30) == (-9 if number == signal.SIGKILL else 130)
        wait_until(lambda: not _leftovers(data_dir), 30, "its processes have ended")


def test_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    run = subprocess.run([*_DEMO, "--data-dir", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith("error: ")
