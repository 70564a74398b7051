"""Run files are written atomically."""

import os
from pathlib import Path

from namesrv_stream.processes import announce_start, read_run_file, write_run_file


def test_facts_are_read_back_with_the_writers_pid(tmp_path: Path) -> None:
    path = tmp_path / "run" / "serve.json"
    write_run_file(path, {"remoting": "127.0.0.1:9876"})
    assert read_run_file(path) == {"remoting": "127.0.0.1:9876", "pid": os.getpid()}
    assert [entry.name for entry in path.parent.iterdir()] == ["serve.json"]


def test_a_later_file_replaces_the_earlier(tmp_path: Path) -> None:
    for number in (1, 2):
        write_run_file(tmp_path / "a.json", {"n": number})
    assert read_run_file(tmp_path / "a.json") == {"n": 2, "pid": os.getpid()}


def test_missing_or_invalid_run_file_is_none(tmp_path: Path) -> None:
    assert read_run_file(tmp_path / "absent.json") is None
    for text in ("", "{", "[1]"):
        (tmp_path / "bad.json").write_text(text)
        assert read_run_file(tmp_path / "bad.json") is None


def test_a_starting_process_replaces_the_previous_run_file_and_is_not_yet_ready(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run" / "job.json"
    write_run_file(path, {})
    announce_start(path)
    assert read_run_file(path) is None
    assert read_run_file(tmp_path / "run" / "starting" / "job.json") == {"pid": os.getpid()}
