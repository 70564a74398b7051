"""The committed state as rows, to begin with: whoever has them and the changes behind has what the server has."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final, NamedTuple

from namesrv_stream.route.changes import ChangeKind, Difference, diff
from namesrv_stream.route.digest import KV, Part, TableContent, content_of, part_rows
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.view import RouteView
from namesrv_stream.server.changes.position import Position, position_at
from namesrv_stream.server.changes.rows import RowFilter, encode_state_row
from namesrv_stream.server.steps import Steps

#: A group of more topics is looked through on a thread: its first row costs as much as a sort of them.
_LARGE_GROUP: Final = 2_000


class StateAt(NamedTuple):
    """What the committed rows say at one position; immutable.

    Attributes:
        content: All but the KV table, which may be long, and which ``content_of`` would sort.
        kv: Namespace's part → key → value.
    """

    position: Position
    content: TableContent
    kv: Mapping[Part, Mapping[str, str]]


def state_now(view: RouteView, generation: str, partitions: int) -> StateAt:
    """The state of this moment: a copy of references, about a microsecond a broker name."""
    table = view.committed_table()
    kv = {Part(partition_of(name, partitions), KV, name): entries.copy() for name, entries in table.kv.items()}
    table.kv = {}
    return StateAt(position_at(generation, view.next_offsets), content_of(table, partitions), kv)


async def encoded_rows(state: StateAt, choice: RowFilter, steps: Steps) -> AsyncIterator[list[bytes]]:
    """Its rows, in no order: no two are about the same key."""
    for part, group in state.content.groups.items():
        rows: Iterator[Difference] = diff(BrokerGroup(group.broker_name), group)
        if len(group.topics) > _LARGE_GROUP:
            rows = iter(await asyncio.to_thread(list, rows))
        async for found in _encoded(part, rows, choice, steps):
            yield found
    for part in state.content.entries:
        async for found in _encoded(part, part_rows(state.content, part), choice, steps):
            yield found
    for part, entries in state.kv.items():
        async for found in _encoded(part, _kv_rows(part.name, entries), choice, steps):
            yield found


def _encoded(part: Part, rows: Iterator[Difference], choice: RowFilter, steps: Steps) -> AsyncIterator[list[bytes]]:
    return steps.lists(encode_state_row(part.partition, row) for row in rows if choice.wants_state(row))


def _kv_rows(namespace: str, entries: Mapping[str, str]) -> Iterator[Difference]:
    yield Difference(ChangeKind.KV, False, {"namespace": namespace})  # it outlives its last key
    for key, value in entries.items():
        yield Difference(ChangeKind.KV, False, {"namespace": namespace, "key": key, "value": value})
