"""The progress of a history table is found in its log, also after commits of other writers."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.table_errors import TableSchemaMismatch
from namesrv_stream.tables.delta.commit import commit_name
from namesrv_stream.tables.history_files import HistoryMark, decode_mark, encode_mark, read_mark
from namesrv_stream.tables.storage import Folder
from tests.support.table_edits import write_commit

_OFFSETS = st.dictionaries(st.integers(0, 1_023), st.integers(0, 2**63 - 1), max_size=4)
_MARK = HistoryMark("topic", "changes", {0: 7, 3: 9}, {0: 1_700_000_000_000})
_OURS = {"commitInfo": {"userMetadata": encode_mark(_MARK)}}
_ADD = {"add": {"path": "a", "size": 1, "modificationTime": 1, "dataChange": True}}
_ANOTHERS = {"commitInfo": {"userMetadata": "nightly OPTIMIZE"}}


@given(st.builds(HistoryMark, st.text(max_size=5), st.text(max_size=5), _OFFSETS, _OFFSETS))
def test_mark_is_read_back_from_the_commit(mark: HistoryMark) -> None:
    assert decode_mark(encode_mark(mark)) == mark


@pytest.mark.parametrize("text", [None, "", "nightly", "{}", "[]", "3"])
def test_metadata_of_other_writers_is_no_mark(text: str | None) -> None:
    assert decode_mark(text) is None


def test_missing_table_has_no_mark(tmp_path: Path) -> None:
    assert read_mark(Folder(tmp_path / "absent")) is None


def test_new_table_has_no_mark(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, {"commitInfo": {"operation": "CREATE TABLE"}}, {"metaData": {}})
    write_commit(tmp_path, 1, {"commitInfo": {"operation": "ADD CONSTRAINT"}}, {"metaData": {}})
    assert read_mark(Folder(tmp_path)) is None


def test_newest_mark_counts(tmp_path: Path) -> None:
    write_commit(tmp_path, 9, {"commitInfo": {"userMetadata": encode_mark(HistoryMark("topic"))}})
    write_commit(tmp_path, 10, _OURS)
    assert read_mark(Folder(tmp_path)) == _MARK


def test_commits_of_other_writers_are_skipped(tmp_path: Path) -> None:
    write_commit(tmp_path, 3, _OURS)
    write_commit(tmp_path, 4, _ANOTHERS, _ADD)
    write_commit(tmp_path, 5, _ADD)
    assert read_mark(Folder(tmp_path)) == _MARK


def test_rows_without_any_mark_are_refused(tmp_path: Path) -> None:
    write_commit(tmp_path, 3, _ANOTHERS, _ADD)
    with pytest.raises(TableSchemaMismatch, match="no commit of the history process"):
        read_mark(Folder(tmp_path))


class _CleanedUpMeanwhile(Folder):
    """A table whose version 3 is removed and whose version 5 is written while version 4 is read."""

    def read(self, name: str) -> bytes:
        content = super().read(name)
        if name == commit_name(4) and self.exists(commit_name(3)):
            self.remove(commit_name(3))
            write_commit(self.path, 5, _OURS)
        return content


def test_a_commit_cleaned_up_while_the_log_is_read_sends_the_reader_to_the_newer_ones(tmp_path: Path) -> None:
    write_commit(tmp_path, 3, {"commitInfo": {"userMetadata": encode_mark(HistoryMark("cleaned up"))}})
    write_commit(tmp_path, 4, _ANOTHERS)
    assert read_mark(_CleanedUpMeanwhile(tmp_path)) == _MARK


_DAMAGED = encode_mark(_MARK).replace(":7,", ":[7],")


@pytest.mark.parametrize("text", ['{"history": 3}', '{"history": {"topic_id": "t"}}', _DAMAGED])
def test_an_unreadable_mark_is_refused_and_not_replaced_by_an_earlier_one(text: str, tmp_path: Path) -> None:
    write_commit(tmp_path, 3, _OURS)
    write_commit(tmp_path, 4, {"commitInfo": {"userMetadata": text}})
    with pytest.raises(TableSchemaMismatch, match="is damaged"):
        read_mark(Folder(tmp_path))


def test_a_damaged_commit_is_named(tmp_path: Path) -> None:
    write_commit(tmp_path, 3, _OURS)
    newest = tmp_path / "_delta_log" / f"{4:020}.json"
    newest.write_bytes(b'{"commitInfo": ')
    with pytest.raises(TableSchemaMismatch, match="is damaged"):
        read_mark(Folder(tmp_path))
