"""Whether servers serve the same, and where they do not.

Two servers compare where they cover the same offsets of a partition, and servers that run catch up with each other
within a second; so those that differ in offsets are asked again a few times before one is said to be behind.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final, NamedTuple

from namesrv_stream.operate.server_states import get, offsets_of

_ASK_AGAIN_S: Final = 0.1
#: Of so many differing parts of a pair of servers the rows are fetched.
_MOST_PARTS: Final = 20


class Key(NamedTuple):
    """A part of a partition, by its names in ``route.digest``."""

    partition: int
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Lag:
    """One server covers less of a partition than another.

    Attributes:
        server: URL of the one behind.
        records: By how many records.
    """

    server: str
    ahead: str
    partition: int
    records: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A part that two servers have otherwise, at the same offsets.

    Attributes:
        only_first: Rows that the first has and the second has not; None where they were not fetched.
        only_second: The other way round.
    """

    first: str
    second: str
    key: Key
    only_first: Sequence[Mapping[str, Any]] | None
    only_second: Sequence[Mapping[str, Any]] | None


@dataclass(slots=True)
class Skew:
    """What was found.

    Attributes:
        states: URL → what the server said of itself, last.
        lags: Who is behind whom.
        differences: What they have otherwise.
        moving: Pairs that differ, and that moved on before it could be told by what.
    """

    states: Mapping[str, Mapping[str, Any]]
    lags: list[Lag] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    moving: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        return not (self.lags or self.differences or self.moving)


async def find_skew(urls: Sequence[str], patience_s: float) -> Skew:
    """Ask all servers at once, again and again until they compare.

    Args:
        urls: Of the servers' HTTP ports.
        patience_s: Seconds to wait for those behind.

    Raises:
        ServerUnreachable: One does not answer.
        BadAnswer: One is none of ours.
    """
    until_s = time.monotonic() + patience_s
    while True:
        states = dict(zip(urls, await asyncio.gather(*(get(url, "/state") for url in urls)), strict=True))
        skew = Skew(states)
        for first, second in combinations(urls, 2):
            await _compare(skew, first, second)
        if not (skew.lags or skew.moving) or time.monotonic() >= until_s:
            return skew
        await asyncio.sleep(_ASK_AGAIN_S)


async def _compare(skew: Skew, first: str, second: str) -> None:
    ours, theirs = offsets_of(skew.states[first]), offsets_of(skew.states[second])
    digests = [skew.states[url]["partitions"] for url in (first, second)]
    for partition in sorted(ours.keys() | theirs.keys()):
        records = ours.get(partition, 0) - theirs.get(partition, 0)
        if records:
            behind, ahead = (second, first) if records > 0 else (first, second)
            skew.lags.append(Lag(behind, ahead, partition, abs(records)))
        elif digests[0].get(str(partition)) != digests[1].get(str(partition)):
            await _find_differences(skew, first, second, partition)


async def _find_differences(skew: Skew, first: str, second: str, partition: int) -> None:
    found = await asyncio.gather(*(get(url, "/state/keys", partition=partition) for url in (first, second)))
    if found[0]["next_offset"] != found[1]["next_offset"]:
        skew.moving.append((first, second))
        return
    ours, theirs = ({(p["kind"], p["name"]): p["digest"] for p in keys["parts"]} for keys in found)
    for kind, name in sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)):
        key = Key(partition, kind, name)
        is_fetched = len(skew.differences) < _MOST_PARTS
        rows = await _rows(first, second, key) if is_fetched else None
        skew.differences.append(Difference(first, second, key, *(rows or (None, None))))


async def _rows(first: str, second: str, key: Key) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]] | None:
    """The rows that only one of them has; None where they no longer cover the same offsets."""
    found = await asyncio.gather(*(get(url, "/state/rows", **key._asdict()) for url in (first, second)))
    if offsets_of(found[0]).get(key.partition) != offsets_of(found[1]).get(key.partition):
        return None
    ours, theirs = (answer["rows"] for answer in found)
    return [row for row in ours if row not in theirs], [row for row in theirs if row not in ours]
