"""The topic table of a registration's body, read in pieces, and only those that were not read before.

What makes that right, whatever is in the body: a text is JSON with certain members in an object exactly if it is JSON
with that object empty, and each part of the members' list, in braces, is an object of its own. So nobody needs to know
where an entry of the table really ends: a guess is proved by orjson, which reads the rest of the body with an empty
table, and each piece. What it does not prove, and all that is unusual, is left to the general decoder.
"""

from collections.abc import Callable, Generator, Mapping
from sys import getsizeof
from typing import Any, Final, NamedTuple

import lz4.block
import orjson

from namesrv_stream.route.model import QueueData

_KEY: Final = b'"topicConfigTable"'
_OPENED: Final = _KEY + b":{"
#: What follows the table in a body of 5.x, and of 4.x: the ends of an entry and of the table, and what is next.
_NEXT_KEY: Final = b'}},"topicQueueMappingDetailMap":'
_LAST: Final = b"}}}}"
#: Some forty entries as brokers write them.
_PIECE_BYTES: Final = 8 * 1024
#: Pieces read in one step: some milliseconds.
_PIECES_A_STEP: Final = 32

#: One topic, by its key in the table: name and queues.
ReadTopic = Callable[[Any, str], tuple[str, QueueData]]


class Unusual(Exception):
    """The general decoder is to read this body."""


class CutBody(NamedTuple):
    """A body without its topics.

    Attributes:
        rest: The body with an empty table.
        table: The text between the table's braces.
    """

    rest: bytes
    table: bytes


class KnownTable(NamedTuple):
    """A table that was read.

    Attributes:
        packed: Its text, compressed.
        ends: Where its pieces end; each but the last is followed by a comma.
        topics: What it says.
    """

    packed: bytes
    ends: tuple[int, ...]
    topics: Mapping[str, QueueData]

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return len(self.packed) + 40 * len(self.ends) + getsizeof(self.topics)


def cut_body(body: bytes) -> CutBody:
    """Take the topic table out of a body.

    Raises:
        Unusual: It is not as brokers write it.
    """
    begin = body.find(_OPENED) + len(_OPENED)
    end = body.rfind(_NEXT_KEY) + 1 or len(body) - len(_LAST) + 1
    # Without escapes a quote begins or ends a string, and a key is what stands between two of them. "$ref" is a word.
    if not len(_OPENED) <= begin < end or b"\\" in body or b"$" in body:
        raise Unusual
    rest = body[:begin] + body[end:]
    if rest.count(_KEY) != 1:
        raise Unusual
    return CutBody(rest, body[begin:end])


def read_table(table: bytes, read_topic: ReadTopic, known: KnownTable | None) -> Generator[None, None, KnownTable]:
    """Read a table in steps.

    Args:
        table: The text between its braces.
        read_topic: Reads an entry.
        known: A table of the same broker, read before.

    Raises:
        Unusual: It is no table as brokers write it.
        ValueError: An entry cannot be read.
    """
    if known is None:
        topics, ends = yield from _read_pieces(table, 0, len(table), read_topic)
        return _known(table, ends, topics)
    before = lz4.block.decompress(known.packed)
    if before == table:
        return known
    begins = [0, *(end + 1 for end in known.ends[:-1])]
    grown = len(table) - len(before)
    first, last = _difference(before, table, begins, known.ends)
    begin, end = begins[first], len(table) if last == len(begins) else begins[last] + grown - 1
    changed, ends = yield from _read_pieces(table, begin, end, read_topic)
    topics = dict(known.topics)
    for piece_begin, piece_end in zip(begins[first:last], known.ends[first:last], strict=True):
        for topic in _piece(before, piece_begin, piece_end):
            del topics[topic]
    if not topics.keys().isdisjoint(changed):
        raise Unusual
    kept = [*known.ends[:first], *ends, *(old_end + grown for old_end in known.ends[last:])]
    topics.update(changed)
    return _known(table, kept, topics)


def _known(table: bytes, ends: list[int], topics: Mapping[str, QueueData]) -> KnownTable:
    return KnownTable(lz4.block.compress(table), tuple(ends), topics)


def _difference(before: bytes, after: bytes, begins: list[int], ends: tuple[int, ...]) -> tuple[int, int]:
    """The pieces of ``before`` that are not in ``after`` at the same distance from its begin or from its end."""
    first, last, grown = 0, len(begins), len(after) - len(before)
    while first < last - 1 and _is_same(before, after, begins[first], ends[first] + 1, 0):
        first += 1
    while first < last - 1:
        begin = begins[last - 1]
        # A byte of another piece, and its comma, must be left between what is the same.
        if begin + grown - 1 <= begins[first] or not _is_same(before, after, begin - 1, ends[last - 1], grown):
            break
        last -= 1
    return first, last


def _is_same(before: bytes, after: bytes, begin: int, end: int, moved: int) -> bool:
    return before[begin:end] == after[begin + moved : end + moved]


def _read_pieces(
    table: bytes, begin: int, end: int, read_topic: ReadTopic
) -> Generator[None, None, tuple[dict[str, QueueData], list[int]]]:
    """What a part of a table says, which begins and ends where an entry does; and where its pieces end."""
    topics: dict[str, QueueData] = {}
    ends: list[int] = []
    count = 0
    while begin <= end:
        piece_end = _end_of_piece(table, begin, end)
        entries = _piece(table, begin, piece_end)
        for key, config in entries.items():
            name, queue_data = read_topic(config, key)
            if name != key:
                raise Unusual  # the name inside counts, and two entries may have the same
            topics[name] = queue_data
        count += len(entries)
        ends.append(piece_end)
        begin = piece_end + 1
        if len(ends) % _PIECES_A_STEP == 0:
            yield
    if len(topics) != count:
        raise Unusual  # of two entries of a key the later one counts
    return topics, ends


def _end_of_piece(table: bytes, begin: int, end: int) -> int:
    """Where an entry ends, it seems, after some kilobytes."""
    at = table.find(b'},"', begin + _PIECE_BYTES, end)
    while at >= 0 and table[at - 1 : at] == b"{":  # an empty object within an entry
        at = table.find(b'},"', at + 1, end)
    return end if at < 0 else at + 1


def _piece(table: bytes, begin: int, end: int) -> dict[str, Any]:
    """The entries between two places; nested as deeply as they are in the body."""
    try:
        entries: dict[str, Any] = orjson.loads(b"[[{%b}]]" % table[begin:end])[0][0]
    except ValueError as error:
        raise Unusual from error
    if not entries:
        raise Unusual  # a comma without an entry
    return entries
