"""The mark of a history table: how far it covers the log.

Every commit of the history process carries the mark in ``userMetadata``, so that rows and mark change together. Commits
of other programs carry none.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import orjson

from namesrv_stream.table_errors import TableDamaged, TableSchemaMismatch
from namesrv_stream.tables.delta.commit import checkpoint_name, commit_name, commit_versions, read_commit
from namesrv_stream.tables.storage import Storage

_NAME = "history"
_USER_METADATA = "userMetadata"
#: Attempts to read a log that is cleaned up at the same time, which happens once a day.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class HistoryMark:
    """How far a table covers the log.

    Attributes:
        topic_id: Kafka's id of the topic to which the offsets belong.
        changes_id: Delta's id of the ``route_changes`` that was read; "" in tables that are made from events only.
        next_offsets: Partition → first offset that the table does not cover; 0 for partitions that are not named.
        at_ms: Partition → highest relevant LogAppendTime below that offset, epoch milliseconds.
    """

    topic_id: str = ""
    changes_id: str = ""
    next_offsets: Mapping[int, int] = field(default_factory=dict)
    at_ms: Mapping[int, int] = field(default_factory=dict)

    def next_offset(self, partition: int) -> int:
        """Return the first offset of a partition that the table does not cover."""
        return self.next_offsets.get(partition, 0)


def encode_mark(mark: HistoryMark) -> str:
    """Return the mark as a commit's ``userMetadata``."""
    fields = {
        "topic_id": mark.topic_id,
        "changes_id": mark.changes_id,
        "next_offsets": {str(p): offset for p, offset in sorted(mark.next_offsets.items())},
        "at_ms": {str(p): at_ms for p, at_ms in sorted(mark.at_ms.items())},
    }
    return orjson.dumps({_NAME: fields}).decode()


def commit_metadata(mark: HistoryMark) -> dict[str, str]:
    """Return the metadata of a commit with the mark, in the form of delta-rs."""
    return {_USER_METADATA: encode_mark(mark)}


def decode_mark(text: str | None) -> HistoryMark | None:
    """Inverse of ``encode_mark``; None if the text is not of the history process.

    Raises:
        ValueError: The mark is damaged or of another version. An earlier mark cannot replace it.
    """
    try:
        fields = orjson.loads(text or "")[_NAME]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    try:
        return HistoryMark(
            topic_id=fields["topic_id"],
            changes_id=fields["changes_id"],
            next_offsets={int(p): int(offset) for p, offset in fields["next_offsets"].items()},
            at_ms={int(p): int(at_ms) for p, at_ms in fields["at_ms"].items()},
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{text!r} is not a valid mark") from error


def read_mark(table: Storage) -> HistoryMark | None:
    """Return the mark of a table at its newest version; None if there is no table, or if it is empty.

    Raises:
        TableSchemaMismatch: The table has rows, but no commit with a mark; or it is damaged.
    """
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):  # a commit was cleaned up after they were listed; newer ones exist
            return _mark_of_log(table)
    raise TableSchemaMismatch(str(table), "commits of its log cannot be opened")


def _mark_of_log(table: Storage) -> HistoryMark | None:
    has_rows = False
    for version in reversed(commit_versions(table)):
        commit = read_commit(table, version)
        if commit is None:
            raise FileNotFoundError(commit_name(version))
        try:
            mark = decode_mark(commit.info.get(_USER_METADATA))
        except ValueError as error:
            raise TableDamaged(str(table), commit_name(version), f"is damaged: {error}") from None
        if mark is not None:
            return mark
        has_rows |= bool(commit.added)
        # Commits before a checkpoint may have been cleaned up.
        has_rows |= version > 0 and table.exists(checkpoint_name(version))
    if has_rows:
        raise TableSchemaMismatch(str(table), "it has rows, but no commit of the history process")
    return None
