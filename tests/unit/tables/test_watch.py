"""A watch is told of what comes into a folder, of a folder that is made later too, and else waits its time."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from namesrv_stream.tables.storage import CommitWatch
from namesrv_stream.tables.storage import watch as watch_module

_LONG_S = 60.0
_SOON_S = 20.0


def _put(folder: Path, name: str = "a") -> None:
    (folder / f".{name}").write_bytes(b"x")
    (folder / f".{name}").rename(folder / name)


def _waits(watch: CommitWatch) -> float:
    began_s = time.monotonic()
    watch.wait()
    return time.monotonic() - began_s


@pytest.mark.parametrize("put", [_put, lambda folder: os.link(__file__, folder / "linked")], ids=["moved", "linked"])
def test_a_file_that_comes_ends_the_wait(tmp_path: Path, put: Callable[[Path], None]) -> None:
    with CommitWatch(tmp_path, _LONG_S) as watch:
        watch.begin()
        later = threading.Timer(0.05, put, [tmp_path])
        later.start()
        assert _waits(watch) < _SOON_S
        later.join()


def test_a_file_that_came_before_the_wait_ends_it(tmp_path: Path) -> None:
    with CommitWatch(tmp_path, _LONG_S) as watch:
        watch.begin()
        _put(tmp_path)
        assert _waits(watch) < _SOON_S


def test_one_file_ends_one_wait(tmp_path: Path) -> None:
    with CommitWatch(tmp_path, 0.05) as watch:
        watch.begin()
        _put(tmp_path)
        watch.wait()
        assert _waits(watch) >= 0.05


def test_a_folder_that_is_made_later_is_watched_from_then_on(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with CommitWatch(folder, _LONG_S) as watch:
        watch.begin()
        folder.mkdir()
        watch.begin()
        _put(folder)
        assert _waits(watch) < _SOON_S


def test_another_folder_in_its_place_is_watched(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    with CommitWatch(folder, _LONG_S) as watch:
        watch.begin()
        folder.rename(tmp_path / "old")
        folder.mkdir()
        watch.begin()
        _put(folder)
        assert _waits(watch) < _SOON_S


def test_another_table_in_its_place_is_watched(tmp_path: Path) -> None:
    """As a rebuilt one comes: by the name of the folder above, of which nothing is told below."""
    for name in ("table", "rebuilt"):
        (tmp_path / name / "log").mkdir(parents=True)
    with CommitWatch(tmp_path / "table" / "log", _LONG_S) as watch:
        watch.begin()
        (tmp_path / "table").rename(tmp_path / "old")
        (tmp_path / "rebuilt").rename(tmp_path / "table")
        watch.begin()
        _put(tmp_path / "table" / "log")
        assert _waits(watch) < _SOON_S


def test_waking_it_ends_all_waits(tmp_path: Path) -> None:
    with CommitWatch(tmp_path, _LONG_S) as watch:
        watch.wake()
        assert _waits(watch) + _waits(watch) < _SOON_S
    watch.wake()  # one that has ended


def test_without_inotify_it_waits_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: bool) -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(watch_module, "INotify", refuse)
    with CommitWatch(tmp_path, 0.05) as watch:
        watch.begin()
        _put(tmp_path)
        assert _waits(watch) >= 0.05
