"""How far a follower of the changes is, as a token that any server of the same tables understands.

A row's place is (partition, offset, seq) of the log, and the rows of a place are the same for every server and after
every restart, for they are what the fold made of that record, once, in the table. So a position is, for each
partition, the first place that the follower does not have; it depends on no server, no version of the table and no
batch. It means nothing in tables that were recreated (``rebuild``): these have another id, which is part of the token.

The token is ``1.ID.PLACES``: the first 16 digits of Delta's id of ``route_changes`` ("0" where there is no table yet),
and for each partition ``offset``, or ``offset_seq`` in the middle of a record, joined by "-". Followers should not
read it; it needs no escaping in a query.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(r"1\.([0-9a-z]{1,16})\.((?:\d{1,18}(?:_\d{1,9})?)(?:-\d{1,18}(?:_\d{1,9})?)*)?", re.ASCII)
_MAX_CHARS: Final = 32 << 10
_NO_TABLE: Final = "0"


class BadToken(ValueError):
    """The text was never a token of ours."""


class Place(NamedTuple):
    """A row within its partition."""

    offset: int
    seq: int


_BEGIN: Final = Place(0, 0)


class Position(NamedTuple):
    """The first places that a follower does not have.

    Attributes:
        generation: Of the tables.
        places: By partition; of those behind the end, and of all where there are none, the beginning.
    """

    generation: str
    places: tuple[Place, ...]

    def place(self, partition: int) -> Place:
        return self.places[partition] if partition < len(self.places) else _BEGIN

    def has(self, partition: int, offset: int, seq: int) -> bool:
        """Whether the follower has that row."""
        return (offset, seq) < self.place(partition)

    def at_least(self, next_offsets: Mapping[int, int]) -> "Position":
        """With all rows below these offsets, and what the follower has beyond."""
        count = max([len(self.places), *(partition + 1 for partition in next_offsets)])
        places = (max(self.place(p), Place(next_offsets.get(p, 0), 0)) for p in range(count))
        return Position(self.generation, tuple(places))

    def covers(self, other: "Position") -> bool:
        """Whether it has all that another one has; of the same generation."""
        return all(self.place(p) >= place for p, place in enumerate(other.places))

    def joined(self, other: "Position") -> "Position":
        """With all that either of two of a generation has."""
        count = max(len(self.places), len(other.places))
        return Position(self.generation, tuple(max(self.place(p), other.place(p)) for p in range(count)))

    def after(self, rows: Iterable[tuple[int, int, int]]) -> "Position":
        """With these rows too: (partition, offset, seq), in log order within each partition."""
        last = {partition: Place(offset, seq + 1) for partition, offset, seq in rows}
        count = max([len(self.places), *(partition + 1 for partition in last)])
        return Position(self.generation, tuple(last.get(p) or self.place(p) for p in range(count)))

    def token(self) -> str:
        texts = (f"{place.offset}_{place.seq}" if place.seq else str(place.offset) for place in self.places)
        return f"1.{self.generation}.{'-'.join(texts)}"


def generation_of(table_id: str) -> str:
    """What tells tables from others, of Delta's id; the id is a UUID."""
    return re.sub("[^0-9a-z]", "", table_id.lower())[:16] or _NO_TABLE


def position_at(generation: str, next_offsets: Mapping[int, int]) -> Position:
    """With all rows below these offsets."""
    return Position(generation, ()).at_least(next_offsets)


def parse_token(text: str) -> Position:
    """Inverse of ``Position.token``.

    Raises:
        BadToken: It is none.
    """
    match = _TOKEN.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if match is None:
        raise BadToken("that is no position of /changes")
    places = []
    for part in (match[2] or "").split("-") if match[2] else ():
        offset, _, seq = part.partition("_")
        places.append(Place(int(offset), int(seq or 0)))
    return Position(match[1], tuple(places))
