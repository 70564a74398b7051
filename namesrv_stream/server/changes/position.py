"""A follower's position in the changes, as a token that any server of the same tables understands.

A row's place is (partition, offset, seq) in the log. The fold writes the rows of a record to the table exactly once, so
a place means the same row on every server and after every restart. A position is the first place of every partition
that the follower does not have. It does not depend on a server, a version of the table or a batch. It is invalid in
tables that were recreated (``rebuild``): they have another id, and the token contains the id.

The token is ``1.ID.PLACES``. ID is the first 16 digits of Delta's id of ``route_changes`` ("0" without a table). PLACES
is, for every partition, ``offset``, or ``offset_seq`` in the middle of a record, joined by "-". Followers should treat
it as opaque; it needs no escaping in a query.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

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
    """The first places that a follower does not have.

    Attributes:
        generation: Generation of the tables; see ``generation_of``.
        places: Place by partition. A partition without an entry is at its beginning.
    """

    generation: str
    places: tuple[Place, ...]

    def place(self, partition: int) -> Place:
        return self.places[partition] if partition < len(self.places) else _BEGIN

    def has(self, partition: int, offset: int, seq: int) -> bool:
        """Return whether the follower has that row."""
        return (offset, seq) < self.place(partition)

    def at_least(self, next_offsets: Mapping[int, int]) -> "Position":
        """Return the position with all rows below these offsets, plus the rows that the follower has beyond them."""
        count = max([len(self.places), *(partition + 1 for partition in next_offsets)])
        places = (max(self.place(p), Place(next_offsets.get(p, 0), 0)) for p in range(count))
        return Position(self.generation, tuple(places))

    def covers(self, other: "Position") -> bool:
        """Return whether this position includes all rows of another one of the same generation."""
        return all(self.place(p) >= place for p, place in enumerate(other.places))

    def joined(self, other: "Position") -> "Position":
        """Return the position with all rows of both; they must have the same generation."""
        count = max(len(self.places), len(other.places))
        return Position(self.generation, tuple(max(self.place(p), other.place(p)) for p in range(count)))

    def after(self, rows: Iterable[tuple[int, int, int]]) -> "Position":
        """Return the position behind these rows: (partition, offset, seq), in log order within each partition."""
        last = {partition: Place(offset, seq + 1) for partition, offset, seq in rows}
        count = max([len(self.places), *(partition + 1 for partition in last)])
        return Position(self.generation, tuple(last.get(p) or self.place(p) for p in range(count)))

    def token(self) -> str:
        texts = (f"{place.offset}_{place.seq}" if place.seq else str(place.offset) for place in self.places)
        return f"1.{self.generation}.{'-'.join(texts)}"


def generation_of(table_id: str) -> str:
    """Return the generation of a table: the first digits of Delta's id, a UUID. Recreated tables have another one."""
    return re.sub("[^0-9a-z]", "", table_id.lower())[:16] or _NO_TABLE


def position_at(generation: str, next_offsets: Mapping[int, int]) -> Position:
    """Return the position with all rows below these offsets."""
    return Position(generation, ()).at_least(next_offsets)


def parse_token(text: str) -> Position:
    """Return the position of a token; the inverse of ``Position.token``.

    Raises:
        BadToken: The text is not a token.
    """
    match = _TOKEN.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if match is None:
        raise BadToken("that is no position of /changes")
    places = []
    for part in (match[2] or "").split("-") if match[2] else ():
        offset, _, seq = part.partition("_")
        places.append(Place(int(offset), int(seq or 0)))
    return Position(match[1], tuple(places))
