"""Rows for followers (changes and the committed state as JSON objects without unused columns), and their positions.

A follower that starts with the rows of the state, and applies all changes from the state's position on, has the same
content as the server.

A row's place is (partition, offset, seq) in the log. The fold writes the rows of a record to the table exactly once, so
a place means the same row on every server and after every restart. A position is the first place of every partition
that the follower does not have. It does not depend on a server, a version of the table or a batch. It is invalid in
tables that were recreated (``rebuild``): they have a different id, and the token contains the id.

A token is ``1.ID.PLACES``. ID is the first 16 digits of Delta's id of ``route_changes`` ("0" without a table). PLACES
is, for every partition, ``offset``, or ``offset_seq`` in the middle of a record, joined by "-". Followers should treat
it as opaque; it needs no escaping in a query.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

import orjson

from namesrv_stream.route.changes import ChangeKind, Difference, RouteChange, diff
from namesrv_stream.route.digest import KV, Part, TableContent, content_of, part_rows
from namesrv_stream.route.events import partition_of
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.steps import Steps

_TOKEN: Final = re.compile(r"1\.([0-9a-z]{1,16})\.((?:\d{1,18}(?:_\d{1,9})?)(?:-\d{1,18}(?:_\d{1,9})?)*)?", re.ASCII)
_MAX_CHARS: Final = 32 << 10
_NO_TABLE: Final = "0"


class BadToken(ValueError):
    """The text is not a token of this format."""


class Place(NamedTuple):
    """The place of a row within its partition."""

    offset: int
    seq: int


_BEGIN: Final = Place(0, 0)


class Position(NamedTuple):
    """The first places that a follower does not have; a partition without an entry starts at its first row.

    Attributes:
        generation: The generation of the tables to which the places belong (``generation_of``).
        places: The place of every partition, by its number.
    """

    generation: str
    places: tuple[Place, ...]

    def place(self, partition: int) -> Place:
        return self.places[partition] if partition < len(self.places) else _BEGIN

    def has(self, partition: int, offset: int, seq: int) -> bool:
        return (offset, seq) < self.place(partition)

    def at_least(self, next_offsets: Mapping[int, int]) -> "Position":
        """Return the position that includes all rows below these offsets, and all rows that this position includes."""
        count = max([len(self.places), *(partition + 1 for partition in next_offsets)])
        places = (max(self.place(p), Place(next_offsets.get(p, 0), 0)) for p in range(count))
        return Position(self.generation, tuple(places))

    def covers(self, other: "Position") -> bool:
        """Return whether this position includes all rows of another one of the same generation."""
        return all(self.place(p) >= place for p, place in enumerate(other.places))

    def joined(self, other: "Position") -> "Position":
        """Return the position that includes all rows of both positions, which must have the same generation."""
        count = max(len(self.places), len(other.places))
        return Position(self.generation, tuple(max(self.place(p), other.place(p)) for p in range(count)))

    def after(self, rows: Iterable[tuple[int, int, int]]) -> "Position":
        """Return the position after these rows: (partition, offset, seq), in log order within each partition."""
        last = {partition: Place(offset, seq + 1) for partition, offset, seq in rows}
        count = max([len(self.places), *(partition + 1 for partition in last)])
        return Position(self.generation, tuple(last.get(p) or self.place(p) for p in range(count)))

    def token(self) -> str:
        texts = (f"{place.offset}_{place.seq}" if place.seq else str(place.offset) for place in self.places)
        return f"1.{self.generation}.{'-'.join(texts)}"


def generation_of(table_id: str) -> str:
    """Return a table's generation: the first digits of Delta's id, a UUID. Recreated tables have a different one."""
    return re.sub("[^0-9a-z]", "", table_id.lower())[:16] or _NO_TABLE


def position_at(generation: str, next_offsets: Mapping[int, int]) -> Position:
    """Return the position that includes all rows below these offsets, and no others."""
    return Position(generation, ()).at_least(next_offsets)


def parse_token(text: str) -> Position:
    """Return the position of a token; the inverse of ``Position.token``.

    Raises:
        BadToken: The text is not a token.
    """
    match = _TOKEN.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if match is None:
        raise BadToken("not a position of /changes")
    parts = [part.partition("_") for part in match[2].split("-")] if match[2] else []
    return Position(match[1], tuple(Place(int(offset), int(seq or 0)) for offset, _, seq in parts))


#: Kinds sent by default. They exclude only the brokers' last registrations: only the fold needs these large rows.
USUAL_KINDS: Final[frozenset[str]] = frozenset(ChangeKind) - {ChangeKind.REGISTRATION}
_ALWAYS: Final = frozenset({"partition", "offset", "seq", "at_ms", "kind", "gone", "cause"})
_COLUMNS: Final = ("cluster", "broker_name", "topic")


class RowFilter(NamedTuple):
    """Selects rows by kind, and by the values of columns that are not None. A row without the column never matches."""

    kinds: frozenset[str] = USUAL_KINDS
    cluster: str | None = None
    broker_name: str | None = None
    topic: str | None = None

    def wants(self, row: RouteChange) -> bool:
        return (
            row.kind in self.kinds
            and self.cluster in (None, row.cluster)
            and self.broker_name in (None, row.broker_name)
            and self.topic in (None, row.topic)
        )

    def wants_state(self, row: Difference) -> bool:
        return row.kind in self.kinds and all(getattr(self, name) in (None, row.columns.get(name)) for name in _COLUMNS)


def parse_kinds(text: str) -> frozenset[str]:
    """Parse kinds that are separated by commas; ``*`` means all kinds.

    Raises:
        ValueError: A kind does not exist.
    """
    kinds = frozenset(ChangeKind if text == "*" else text.split(","))
    unknown = sorted(kinds - frozenset(ChangeKind))
    if unknown:
        raise ValueError(f"unknown kind {unknown[0]!r}; expected {', '.join(ChangeKind)}")
    return kinds


def encode_row(row: RouteChange) -> bytes:
    """Return a change as JSON, with its place in the log, its time and its cause."""
    return orjson.dumps({k: v for k, v in zip(row._fields, row, strict=True) if v is not None or k in _ALWAYS})


def encode_state_row(partition: int, row: Difference) -> bytes:
    """Return a row of the state as JSON. It has no time and no cause."""
    columns = {k: v for k, v in row.columns.items() if v is not None}
    return orjson.dumps({"partition": partition, "kind": row.kind, "gone": False, **columns})


#: A group with more topics is processed on a thread, because its first row requires sorting all of them.
_LARGE_GROUP: Final = 2_000


class StateAt(NamedTuple):
    """The committed state at one position; immutable.

    ``kv`` is separate, because ``content_of`` would sort it, which takes too long on the event loop.
    """

    position: Position
    content: TableContent
    kv: Mapping[Part, Mapping[str, str]]


def state_now(view: RouteView, generation: str, partitions: int) -> StateAt:
    """Return the current state. It copies references only, which takes about a microsecond per broker name."""
    table = view.committed_table()
    kv = {Part(partition_of(name, partitions), KV, name): entries.copy() for name, entries in table.kv.items()}
    table.kv = {}
    return StateAt(position_at(generation, view.next_offsets), content_of(table, partitions), kv)


async def encoded_rows(state: StateAt, choice: RowFilter, steps: Steps) -> AsyncIterator[list[bytes]]:
    """Yield the rows of a state, in no particular order. No two rows have the same key."""
    for part, group in state.content.groups.items():
        rows: Iterator[Difference] = diff(BrokerGroup(group.broker_name), group)
        if len(group.topics) > _LARGE_GROUP:
            rows = iter(await asyncio.to_thread(list, rows))
        async for found in _encoded(part, rows, choice, steps):
            yield found
    others = chain(
        ((part, part_rows(state.content, part)) for part in state.content.entries),
        ((part, _kv_rows(part.name, entries)) for part, entries in state.kv.items()),
    )
    for part, rows in others:
        async for found in _encoded(part, rows, choice, steps):
            yield found


def _encoded(part: Part, rows: Iterator[Difference], choice: RowFilter, steps: Steps) -> AsyncIterator[list[bytes]]:
    return steps.lists(encode_state_row(part.partition, row) for row in rows if choice.wants_state(row))


def _kv_rows(namespace: str, entries: Mapping[str, str]) -> Iterator[Difference]:
    yield Difference(ChangeKind.KV, False, {"namespace": namespace})  # a namespace exists even without keys
    for key, value in entries.items():
        yield Difference(ChangeKind.KV, False, {"namespace": namespace, "key": key, "value": value})
