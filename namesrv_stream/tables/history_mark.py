"""How far a history table reaches: said by each of its commits, so that rows and mark are there together or not at all.

A commit of the history process carries the mark in ``userMetadata``; one of anybody else says nothing of it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import orjson

from namesrv_stream.errors import TableDamaged, TableSchemaMismatch
from namesrv_stream.tables.delta.commit import checkpoint_name, commit_name, commit_versions, read_commit
from namesrv_stream.tables.storage import Storage

_NAME = "history"
_USER_METADATA = "userMetadata"
#: Of reading a log that is cleaned up meanwhile; it is once a day.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class HistoryMark:
    """What a table has seen.

    Attributes:
        topic_id: Kafka's id of the topic that the offsets are of.
        changes_id: Delta's id of the ``route_changes`` that was read; "" in tables made from events alone.
        next_offsets: partition → first offset that the table has not seen; 0 where it is not named.
        at_ms: partition → highest LogAppendTime below that offset which the table needs, epoch milliseconds.
    """

    topic_id: str = ""
    changes_id: str = ""
    next_offsets: Mapping[int, int] = field(default_factory=dict)
    at_ms: Mapping[int, int] = field(default_factory=dict)

    def next_offset(self, partition: int) -> int:
        return self.next_offsets.get(partition, 0)


def encode_mark(mark: HistoryMark) -> str:
    """The mark as a commit's ``userMetadata``."""
    fields = {
        "topic_id": mark.topic_id,
        "changes_id": mark.changes_id,
        "next_offsets": {str(p): offset for p, offset in sorted(mark.next_offsets.items())},
        "at_ms": {str(p): at_ms for p, at_ms in sorted(mark.at_ms.items())},
    }
    return orjson.dumps({_NAME: fields}).decode()


def commit_metadata(mark: HistoryMark) -> dict[str, str]:
    """What a commit says that carries the mark, as delta-rs takes it."""
    return {_USER_METADATA: encode_mark(mark)}


def decode_mark(text: str | None) -> HistoryMark | None:
    """Inverse of ``encode_mark``; None where the text is not of the history process.

    Raises:
        ValueError: It is, but it is damaged, or of another version: an earlier mark would not do instead.
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
        raise ValueError(f"{text!r} is no mark") from error


def read_mark(table: Storage) -> HistoryMark | None:
    """The mark of a table at its newest version; None where there is no table, or only an empty one.

    Raises:
        TableSchemaMismatch: The table's log says rows, and of no commit how far they reach; or it is damaged.
    """
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):  # upkeep has cleaned a commit up since they were listed; newer ones are there
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
        # What is before a checkpoint may have been cleaned up.
        has_rows |= version > 0 and table.exists(checkpoint_name(version))
    if has_rows:
        raise TableSchemaMismatch(str(table), "none of its commits says how far it reaches; is it another's table?")
    return None
