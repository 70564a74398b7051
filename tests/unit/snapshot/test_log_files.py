"""A log read as files: which commits are there, and whether it went on without us."""

from pathlib import Path

import pytest

from namesrv_stream.snapshot.log_files import commit_file, commit_files, has_left, has_log, read_commit


def _a_log(table: Path, *versions: int) -> Path:
    log = table / "_delta_log"
    log.mkdir()
    for version in versions:
        (log / commit_file(table, version).name).write_bytes(b"{}")
    for other in ("_last_checkpoint", "00000000000000000002.checkpoint.parquet", "notes.json", ".1.json.crc"):
        (log / other).write_bytes(b"")
    return table


def test_commits_are_told_oldest_first_and_nothing_else_is(tmp_path: Path) -> None:
    table = _a_log(tmp_path, 11, 9, 10)
    assert list(commit_files(table)) == [9, 10, 11]
    assert commit_files(table)[9] == tmp_path / "_delta_log" / "00000000000000000009.json"


def test_where_there_is_no_table_there_are_no_commits(tmp_path: Path) -> None:
    assert commit_files(tmp_path / "absent") == {}
    assert not has_log(tmp_path / "absent")
    assert has_log(_a_log(tmp_path))


def test_a_commit_that_is_not_there_yet_is_none(tmp_path: Path) -> None:
    table = _a_log(tmp_path, 3)
    assert read_commit(commit_file(table, 3)) == b"{}"
    assert read_commit(commit_file(table, 4)) is None


@pytest.mark.parametrize("known", [3, 4, -1])
def test_a_log_has_left_where_it_goes_on_without_the_next_commit(tmp_path: Path, known: int) -> None:
    assert has_left(_a_log(tmp_path, 3, 6, 7), known)


@pytest.mark.parametrize("known", [2, 5, 6, 7])
def test_a_log_whose_next_commit_is_there_or_to_come_has_not_left(tmp_path: Path, known: int) -> None:
    assert not has_left(_a_log(tmp_path, 3, 6, 7), known)


def test_a_log_that_is_gone_has_left_whoever_knew_it(tmp_path: Path) -> None:
    assert has_left(tmp_path / "absent", 7)
    assert not has_left(tmp_path / "absent", -1)
