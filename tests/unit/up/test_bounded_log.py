"""Log files of child processes have a limited size."""

from pathlib import Path

import pytest

from namesrv_stream.up.child import BoundedLog


def test_full_file_is_rotated_and_two_old_ones_are_kept(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "logs" / "job.log", max_bytes=20)
    for number in range(8):
        log.write(f"line {number:03d}\n".encode())
    log.close()
    files = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert files == {
        "job.log": "line 006\nline 007\n",
        "job.log.1": "line 004\nline 005\n",
        "job.log.2": "line 002\nline 003\n",
    }


def test_a_second_run_appends(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        log = BoundedLog(tmp_path / "job.log", max_bytes=100)
        log.write(text)
        log.close()
    assert (tmp_path / "job.log").read_bytes() == b"one\ntwo\n"


def test_a_line_larger_than_the_limit_is_written_whole(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "job.log", max_bytes=4)
    log.write(b"0123456789\n")
    log.close()
    assert (tmp_path / "job.log").read_bytes() == b"0123456789\n"


def test_a_failed_rotation_loses_lines_only_while_it_fails(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    log = BoundedLog(folder / "job.log", max_bytes=20)
    log.write(b"x" * 15 + b"\n")
    folder.rename(tmp_path / "moved")
    folder.touch()  # a file in the place of the folder
    for _ in range(2):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            log.write(b"lost line\n")
    folder.unlink()
    log.write(b"next line\n")
    log.close()
    assert (folder / "job.log").read_bytes() == b"next line\n"
