"""A summary of what one server serves: table version and its age, covered offsets, and the digest.

The digest covers the committed rows only. So two servers that cover the same offsets must have the same digest,
whatever events they have accepted since. The event loop copies references in a few milliseconds, and a thread computes
the digest from them.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import orjson

from namesrv_stream import __version__
from namesrv_stream.client.server_states import PartDigest, PartitionParts, PartRows, ServerState
from namesrv_stream.route.digest import Part, TableContent, TableDigest, TableDigester, content_of, part_rows
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.view.commit_applier import TableStatus

T = TypeVar("T")


class _Digested(NamedTuple):
    next_offsets: Mapping[int, int]
    content: TableContent
    digest: TableDigest


class ServedState:
    """Describes a view for the comparison of servers."""

    def __init__(self, identity: Identity, view: RouteView, tables: TableStatus, partitions: int) -> None:
        self._identity = identity
        self._view = view
        self._tables = tables
        self.partitions = partitions
        self._digester = TableDigester(partitions)
        self._digesting = asyncio.Lock()
        self._encoding = asyncio.Lock()  # one answer with rows at a time, because rows take memory
        self._last: _Digested | None = None

    @property
    def server_id(self) -> str:
        return self._identity.server_id

    async def describe(self) -> ServerState:
        found = await self._digested()
        return ServerState(
            *self._identity,
            software=__version__,
            version=self._tables.version,
            age_ms=self._tables.age_ms,
            pending_events=self._view.pending_count,
            next_offsets=_in_order(found.next_offsets),
            digest=found.digest.total,
            partitions=_in_order(found.digest.partitions),
        )

    async def keys(self, partition: int) -> PartitionParts:
        found = await self._digested()
        return PartitionParts(
            found.next_offsets.get(partition, 0), await asyncio.to_thread(_digests, found.digest, partition)
        )

    async def rows(self, part: Part) -> bytes:
        """Return the content of a part as JSON of ``PartRows``. A thread encodes it, because it may be megabytes."""
        found = await self._digested()
        async with self._encoding:
            return await asyncio.to_thread(_rows_json, found, part)

    async def _digested(self) -> _Digested:
        """Return the newest digest. Only one is computed at a time, and only once for the same offsets."""
        async with self._digesting:
            while self._view.is_committing:  # noqa: ASYNC110 # it lasts some iterations of the event loop
                await asyncio.sleep(0)
            next_offsets = dict(self._view.next_offsets)
            if self._last is None or self._last.next_offsets != next_offsets:
                content = await asyncio.to_thread(content_of, self._view.committed_table(), self.partitions)
                digest = await asyncio.to_thread(self._digester.digest, content)
                self._last = _Digested(next_offsets, content, digest)
            return self._last


def _digests(digest: TableDigest, partition: int) -> list[PartDigest]:
    parts = sorted(item for item in digest.parts.items() if item[0].partition == partition)
    return [PartDigest(part.kind, part.name, of_part) for part, of_part in parts]


def _rows_json(found: _Digested, part: Part) -> bytes:
    rows = [
        {"kind": kind} | {name: value for name, value in columns.items() if value is not None}
        for kind, _, columns in part_rows(found.content, part)
    ]
    return orjson.dumps(PartRows(_in_order(found.next_offsets), rows), option=orjson.OPT_NON_STR_KEYS)


def _in_order(values: Mapping[int, T]) -> dict[int, T]:
    return dict(sorted(values.items()))
