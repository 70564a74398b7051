"""One `up` a data directory, and none beside the leftovers of a killed one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.up.run_lock import acquire_run_lock

_HOLD = "import os, sys; sys.stdin.read()"


def _hold(lock: int) -> "subprocess.Popen[bytes]":
    """A process that holds the lock until its stdin is closed, as a child of `up` does."""
    return subprocess.Popen([sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, pass_fds=[lock])


def _release(holder: "subprocess.Popen[bytes]") -> None:
    assert holder.stdin is not None
    holder.stdin.close()
    holder.wait(timeout=30)


def _dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=30)
    return process.pid


def test_a_second_up_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    lock = acquire_run_lock(tmp_path / "run" / "up.lock", pytest.fail)
    with pytest.raises(ConfigError) as refusal:
        acquire_run_lock(tmp_path / "run" / "up.lock", pytest.fail)
    os.close(lock)
    assert (refusal.value.exit_code, refusal.value.key) == (2, "data.dir")
    assert str(tmp_path) in refusal.value.reason
    assert f"process {os.getpid()}" in refusal.value.reason


def test_the_lock_is_free_once_it_is_closed(tmp_path: Path) -> None:
    for _ in range(2):
        os.close(acquire_run_lock(tmp_path / "run" / "up.lock", pytest.fail))


def test_a_new_up_waits_for_the_children_of_a_killed_one(tmp_path: Path) -> None:
    path = tmp_path / "run" / "up.lock"
    lock = acquire_run_lock(path, pytest.fail)
    child = _hold(lock)
    os.close(lock)
    path.write_text(f"{_dead_pid()}\n")
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        _release(child)

    os.close(acquire_run_lock(path, say))
    assert len(said) == 1
    assert "previous run" in said[0]


def test_children_that_do_not_end_are_not_waited_for_forever(tmp_path: Path) -> None:
    path = tmp_path / "run" / "up.lock"
    lock = acquire_run_lock(path, pytest.fail)
    child = _hold(lock)
    os.close(lock)
    path.write_text(f"{_dead_pid()}\n")
    try:
        with pytest.raises(ConfigError):
            acquire_run_lock(path, lambda _: None, wait_s=0.1)
    finally:
        _release(child)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as refusal:
        acquire_run_lock(tmp_path / "file" / "run" / "up.lock", pytest.fail)
    assert refusal.value.key == "data.dir"
