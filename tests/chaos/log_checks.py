"""Checks that tables and servers agree exactly with the log; each check yields its findings."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold.step import Record
from tests.chaos.evidence import Commit, Evidence

#: Number of findings of one check that are listed; one further finding counts the others.
_MOST: Final = 5
#: Tolerance for adjustments of Kafka's clock during the check.
_JITTER_MS: Final = 1_000


class Finding(NamedTuple):
    """Something that is wrong.

    Attributes:
        check: Name of the check.
        text: Description of what is wrong.
    """

    check: str
    text: str


def check_log(evidence: Evidence) -> list[Finding]:
    """Run all checks of this module."""
    below = [row for row in evidence.folded if row.offset < evidence.committed.get(row.partition, 0)]
    return [
        *shortened("rows equal the fold's", rows_unlike_the_fold(evidence.stored, below)),
        *shortened("no row twice", rows_twice(evidence.stored)),
        *shortened("no offset skipped", offsets_skipped(evidence.commits, evidence.committed)),
        *shortened("no row of a record skipped", seq_gaps(evidence.stored)),
        *shortened("servers serve what the fold says", digests_unlike(evidence)),
        *shortened("poison is a dead letter", poison_without_dead_letter(evidence)),
        *shortened("stamps are Kafka's own", stamps_of_producers(evidence.records)),
    ]


def shortened(check: str, texts: Iterable[str]) -> Iterator[Finding]:
    """Return the first texts as findings, and one finding that counts the others."""
    found = list(texts)
    yield from (Finding(check, text) for text in found[:_MOST])
    if len(found) > _MOST:
        yield Finding(check, f"and {len(found) - _MOST} more")


def rows_unlike_the_fold(stored: Sequence[RouteChange], folded: Sequence[RouteChange]) -> Iterator[str]:
    """Return rows that only the table or only the fold has; both are in log order."""
    theirs = {_place(row): row for row in folded}
    ours = {_place(row): row for row in stored}
    for place in sorted(theirs.keys() | ours.keys()):
        if place not in ours:
            yield f"not stored: {theirs[place]}"
        elif place not in theirs:
            yield f"stored, but not of the log: {ours[place]}"
        elif ours[place] != theirs[place]:
            yield f"stored {ours[place]}, the log says {theirs[place]}"


def rows_twice(stored: Iterable[RouteChange]) -> Iterator[str]:
    """Return duplicate rows."""
    for place, times in sorted(Counter(map(_place, stored)).items()):
        if times > 1:
            yield f"(partition, offset, seq) {place} is stored {times} times"


def seq_gaps(stored: Iterable[RouteChange]) -> Iterator[str]:
    """Return records whose rows are not numbered 0, 1, …"""
    for (partition, offset), rows in groupby(sorted(map(_place, stored)), key=lambda place: place[:2]):
        numbers = sorted({seq for _, _, seq in rows})
        if numbers != list(range(len(numbers))):
            yield f"partition {partition} offset {offset} has rows {numbers}"


def offsets_skipped(commits: Sequence[Commit], committed: Mapping[int, int]) -> Iterator[str]:
    """Return commits with rows outside the offsets between the previous progress and their own."""
    reached: dict[int, int] = {}
    for commit in commits:
        before = dict(reached)
        for partition, offset in commit.next_offsets.items():
            if offset < before.get(partition, 0):
                yield f"version {commit.version}: partition {partition} moves back from {before[partition]} to {offset}"
            reached[partition] = offset
        for rows in commit.rows:
            begin, end = before.get(rows.partition, 0), reached.get(rows.partition, 0)
            if rows.first_offset < begin or rows.last_offset >= end:
                yield (
                    f"version {commit.version}: rows of offsets {rows.first_offset}..{rows.last_offset} of partition"
                    f" {rows.partition}, but it covers {begin}..{end - 1}"
                )
    if reached != dict(committed):
        yield f"the commits reach {reached}, the table says {dict(committed)}"


def digests_unlike(evidence: Evidence) -> Iterator[str]:
    """Return servers whose digest of a partition differs from the fold's at the same offset."""
    for name, served in sorted(evidence.servers.items()):
        if not served.next_offsets:
            yield f"{name} serves nothing"
        for partition, offset in sorted(served.next_offsets.items()):
            ours, theirs = served.digests.get(partition), evidence.fold_digests.get((partition, offset))
            if ours is None or ours != theirs:
                yield f"{name} has {ours} of partition {partition} at {offset}, the fold {theirs}"


def poison_without_dead_letter(evidence: Evidence) -> Iterator[str]:
    """Return invalid records without a dead letter, and dead letters of valid records."""
    refused = {_numbers(key)[:2] for key in evidence.dead_letters}
    for poison in evidence.poisons:
        if (poison.partition, poison.offset) not in refused:
            yield f"no dead letter of {poison.kind} in partition {poison.partition} at {poison.offset}"
    below = [key for key in set(evidence.dead_letters) if _is_below(key, evidence.committed)]
    if len(below) != evidence.fold_dead_letters:
        yield f"{len(below)} dead letters, the fold has {evidence.fold_dead_letters}"


def stamps_of_producers(records: Iterable[Record]) -> Iterator[str]:
    """Return records whose timestamp jumps back in their partition, as those of a producer's jumping clock would."""
    last_ms: dict[int, int] = {}
    for record in records:
        back_ms = last_ms.get(record.partition, 0) - record.at_ms
        if back_ms > _JITTER_MS:
            yield f"partition {record.partition} offset {record.offset} is {back_ms} ms back"
        last_ms[record.partition] = record.at_ms


def _is_below(key: str, committed: Mapping[int, int]) -> bool:
    partition, offset, _ = _numbers(key)
    return offset < committed.get(partition, 0)


def _numbers(key: str) -> tuple[int, int, int]:
    """Return the numbers in ``partition-offset-item``; the item is -1 for a whole record."""
    partition, offset, item = key.split("-", 2)
    return int(partition), int(offset), int(item)


def _place(row: RouteChange) -> tuple[int, int, int]:
    return row.partition, row.offset, row.seq
