"""Commits of a table's log: their content and encoding.

A commit is a file ``_delta_log/N.json`` with one action per line. The ``commitInfo`` of the job's commits contains more
than Delta requires (ADR 0049):

- the writer, and Delta's id of the table;
- *progress*: partition → first offset that the table does not cover, and the fingerprint of the record before it;
- *before*: the progress before this commit. A follower with a different progress reloads the table;
- a digest of all files of the table, and the hash of the job's newest checkpoint, by which readers verify the table;
- a checksum of the commit itself.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from zlib import crc32

import orjson

from namesrv_stream.route.fold.folded_log import Place, Progress
from namesrv_stream.table_errors import TableDamaged
from namesrv_stream.tables.delta.data_file import DataFile
from namesrv_stream.tables.storage import Storage

LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"
_COMMIT_FILE: Final = re.compile(r"(\d{20})\.json")

_WRITER: Final = "namesrv_stream.writer"
_TABLE_ID: Final = "namesrv_stream.table_id"
_PROGRESS: Final = "namesrv_stream.progress"
_BEFORE: Final = "namesrv_stream.before"
_FILES: Final = "namesrv_stream.files"
_CHECKPOINT: Final = "namesrv_stream.checkpoint"
_CHECKSUM: Final = "namesrv_stream.checksum"
_CHECKSUM_FIELD: Final = re.compile(rb'"namesrv_stream\.checksum":"([0-9a-f]{8})"')
_ZEROS: Final = b'"namesrv_stream.checksum":"00000000"'


class Checkpoint(NamedTuple):
    """A checkpoint written by the job.

    Attributes:
        version: Version of the table; -1 if there is no checkpoint.
        content_hash: ``content_hash`` of the file.
    """

    version: int = -1
    content_hash: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the job records in a commit about itself, the table and the progress.

    Attributes:
        writer: Random id of the ``TableWriter`` object that made the commit.
        table_id: Delta's id of the table.
        before: Progress before the commit.
        progress: Progress after the commit.
        files_digest: ``digest_of`` all files of the table after the commit.
        checkpoint: The job's newest checkpoint.
    """

    writer: str
    table_id: str
    before: Progress
    progress: Progress
    files_digest: int
    checkpoint: Checkpoint

    def to_info(self) -> dict[str, str]:
        """Return the fields of ``commitInfo``."""
        return {
            _WRITER: self.writer,
            _TABLE_ID: self.table_id,
            _BEFORE: _encode_progress(self.before),
            _PROGRESS: _encode_progress(self.progress),
            _FILES: f"{self.files_digest:016x}",
            _CHECKPOINT: f"{self.checkpoint.version}:{self.checkpoint.content_hash}",
        }

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> "Identity | None":
        """Inverse of ``to_info``; None for commits of other programs and of version 0.1.0."""
        if _FILES not in info:
            return None
        version, _, checkpoint_hash = info[_CHECKPOINT].partition(":")
        return cls(
            str(info[_WRITER]),
            str(info[_TABLE_ID]),
            _decode_progress(info[_BEFORE]),
            _decode_progress(info[_PROGRESS]),
            int(info[_FILES], 16),
            Checkpoint(int(version), checkpoint_hash),
        )


@dataclass(slots=True)
class Commit:
    """The content of a commit.

    Attributes:
        info: Its ``commitInfo``.
        identity: The job's own fields; None for commits of other programs and of version 0.1.0.
        added: Files that the commit adds.
        removed: Paths of files that the commit removes.
        transactions: Application id → version.
        changes_rows: Whether the commit changes the rows of the table, instead of only rearranging files.
        changes_table: Whether the commit changes columns, properties or the protocol.
    """

    info: Mapping[str, Any] = field(default_factory=dict)
    identity: Identity | None = None
    added: list[DataFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    transactions: dict[str, int] = field(default_factory=dict)
    changes_rows: bool = False
    changes_table: bool = False

    @property
    def is_of_first_release(self) -> bool:
        """Whether version 0.1.0 of the job made the commit, which recorded no ``Identity``."""
        return self.identity is None and _WRITER in self.info

    @property
    def only_rearranges(self) -> bool:
        """Whether the commit leaves rows and progress unchanged, as an OPTIMIZE or a VACUUM does."""
        return not self.changes_rows and not self.transactions


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a commit will make.

    Attributes:
        operation: Delta's name of the operation: WRITE, OPTIMIZE, DELETE; or CHECKPOINT, which changes nothing.
        added: Data files that were written already.
        removed: Data files of the table.
        advanced: New progress of the partitions that advance.
        transactions: Application id → version, in addition to the progress.
        metadata: Additional fields of ``commitInfo``.
        begins: Partition → its first offset after partitions were added to the topic; {} if none were added.
    """

    operation: str
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    advanced: Progress = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    begins: Mapping[int, int] = field(default_factory=dict)

    @property
    def changes_rows(self) -> bool:
        """Value of Delta's ``dataChange`` for its files; False only for an OPTIMIZE, which rearranges rows."""
        return self.operation != "OPTIMIZE"


def commit_name(version: int) -> str:
    """Return the path of a commit's file, relative to the table."""
    return f"{LOG}/{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """Return the path of a checkpoint's file, relative to the table."""
    return f"{LOG}/{version:020d}.checkpoint.parquet"


def commit_versions(table: Storage) -> list[int]:
    """Return the versions whose commits the log still has, ascending; none if there is no table."""
    return sorted(int(match[1]) for match in map(_COMMIT_FILE.fullmatch, (table / LOG).sizes()) if match)


def checkpointed_version(table: Storage) -> int:
    """Return the version of the newest checkpoint; -1 if there is none.

    Raises:
        StoreUnreachable: The object store does not answer.
    """
    try:
        return int(orjson.loads(table.read(LAST_CHECKPOINT))["version"])
    except (FileNotFoundError, LookupError, ValueError, TypeError):
        return -1


def encode_commit(info: Mapping[str, Any], actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the content of a commit's file, including its checksum."""
    lines = [{"commitInfo": {**info, _CHECKSUM: "00000000"}}, *actions]
    content = b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)
    return content.replace(_ZEROS, _ZEROS.replace(b"00000000", f"{crc32(content):08x}".encode()), 1)


def decode_commit(table: Storage, version: int, content: bytes) -> Commit:
    """Decode the content of a commit's file.

    Args:
        table: Storage of the table, for the error.
        version: Version of the commit.
        content: Content of the file.

    Raises:
        TableDamaged: The file is empty, truncated or altered.
    """
    try:
        _verify(content)
        return _decode(map(orjson.loads, content.splitlines()))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        reason = "is empty" if not content else f"is damaged: {error}"
        raise TableDamaged(str(table), commit_name(version), reason) from None


def read_commit(table: Storage, version: int) -> Commit | None:
    """Read a commit; None if there is none of that version.

    Raises:
        TableDamaged: The file is empty, truncated or altered.
        StoreUnreachable: The object store does not answer.
    """
    name = commit_name(version)
    if not table.exists(name):  # this costs a tenth of the attempt to open a missing file
        return None
    try:
        return decode_commit(table, version, table.read(name))
    except FileNotFoundError:
        return None


def _verify(content: bytes) -> None:
    head = content.partition(b"\n")[0]
    found = _CHECKSUM_FIELD.search(head)
    if found is not None:
        expected = crc32(content[: found.start()] + _ZEROS + content[found.end() :])
        if int(found[1], 16) != expected:
            raise ValueError("its checksum does not match its content")
    elif b"namesrv_stream.files" in head:
        raise ValueError("it has no checksum")
    if not content.endswith(b"\n") and not content.rstrip().endswith(b"}"):
        raise ValueError("it is cut short or empty")


def _decode(actions: Iterable[Any]) -> Commit:
    commit = Commit()
    for action in actions:
        if "add" in action:
            commit.added.append(DataFile.from_add(action["add"]))
            commit.changes_rows |= bool(action["add"]["dataChange"])
        elif "remove" in action:
            commit.removed.append(action["remove"]["path"])
            commit.changes_rows |= bool(action["remove"]["dataChange"])
        elif "txn" in action:
            commit.transactions[action["txn"]["appId"]] = int(action["txn"]["version"])
        elif "commitInfo" in action:
            commit.info = action["commitInfo"]
            commit.identity = Identity.from_info(commit.info)
        elif "metaData" in action or "protocol" in action:
            commit.changes_table = True
    return commit


def _encode_progress(progress: Progress) -> str:
    places = {str(p): [place.next_offset, f"{place.fingerprint:x}"] for p, place in sorted(progress.items())}
    return orjson.dumps(places).decode()


def _decode_progress(text: str) -> dict[int, Place]:
    return {int(p): Place(int(offset), int(mark, 16)) for p, (offset, mark) in orjson.loads(text).items()}
