"""A commit contains its writer and progress, and every altered byte of it is noticed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.route.fold.folded_log import Place, fingerprint
from namesrv_stream.table_errors import TableDamaged
from namesrv_stream.tables.delta.commit import Checkpoint, Identity, decode_commit, encode_commit
from namesrv_stream.tables.delta.data_file import DataFile, digest_of
from namesrv_stream.tables.storage import Folder

_TABLE = Folder(Path("t"))
_IDENTITY = Identity(
    "writer",
    "table",
    {0: Place(5, 7), 1: Place(0)},
    {0: Place(9, 2**62), 1: Place(0)},
    2**63 + 5,
    Checkpoint(4, "ab12"),
)
_FILE = DataFile("rows-a.parquet", 10, 1_700_000_000_000, 3, (0, 5, 0, 9), (1, 8, 2, 10))
_ACTIONS = [
    {"txn": {"appId": "topic-0", "version": 9}},
    {"remove": {"path": "rows-b.parquet", "dataChange": True}},
    {"add": _FILE.add_action(data_change=True)},
]
_CONTENT = encode_commit({"timestamp": 1, "operation": "WRITE", **_IDENTITY.to_info()}, _ACTIONS)


def test_a_commit_reads_as_it_was_written() -> None:
    commit = decode_commit(_TABLE, 3, _CONTENT)
    assert commit.identity == _IDENTITY
    assert (commit.added, commit.removed) == ([_FILE], ["rows-b.parquet"])
    assert commit.transactions == {"topic-0": 9}
    assert (commit.changes_rows, commit.changes_table) == (True, False)


@given(st.integers(0, len(_CONTENT) - 1), st.integers(1, 255))
def test_an_altered_byte_is_noticed(position: int, mask: int) -> None:
    damaged = bytearray(_CONTENT)
    damaged[position] ^= mask
    with pytest.raises(TableDamaged, match=r"_delta_log/00000000000000000003\.json is damaged") as caught:
        decode_commit(_TABLE, 3, bytes(damaged))
    assert caught.value.file == "_delta_log/00000000000000000003.json"


@given(st.integers(0, len(_CONTENT) - 1))
def test_truncated_commit_is_noticed(size: int) -> None:
    with pytest.raises(TableDamaged):
        decode_commit(_TABLE, 3, _CONTENT[:size])


def test_a_commit_of_another_program_has_no_identity() -> None:
    commit = decode_commit(
        _TABLE, 3, b'{"commitInfo":{"operation":"OPTIMIZE"}}\n{"remove":{"path":"a","dataChange":false}}'
    )
    assert commit.identity is None
    assert not commit.changes_rows


def test_the_digest_depends_on_files_and_their_figures_and_not_on_their_order() -> None:
    other = DataFile("rows-c.parquet", 10, 0, 3, (0, 5, 0, 9), (1, 8, 2, 10))
    larger = DataFile("rows-a.parquet", 10, 0, 3, (0, 5, 0, 9), (1, 9, 2, 10))
    assert digest_of([_FILE, other]) == digest_of([other, _FILE])
    assert len({digest_of([]), digest_of([_FILE]), digest_of([_FILE, other]), digest_of([larger])}) == 4


def test_fingerprint_distinguishes_records_by_time_and_value() -> None:
    found = {fingerprint(1, b"a"), fingerprint(2, b"a"), fingerprint(1, b"b"), fingerprint(-1, b"")}
    assert len(found) == 4
    assert all(0 < value < 2**63 for value in found)
