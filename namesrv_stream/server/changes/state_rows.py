"""The committed state as rows, to begin with: whoever has them and the changes behind has what the server has."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from namesrv_stream.route.changes import Difference, diff
from namesrv_stream.route.digest import TableContent, content_of, part_rows
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.view import RouteView
from namesrv_stream.server.changes.choice import Choice
from namesrv_stream.server.changes.position import Position, position_at
from namesrv_stream.server.changes.row_json import encode_state_row
from namesrv_stream.server.steps import Steps

#: A group of more topics is looked through on a thread: its first row costs as much as a sort of them.
_LARGE_GROUP: Final = 2_000


class StateAt(NamedTuple):
    """What the committed rows say at one position; immutable."""

    position: Position
    content: TableContent


def state_now(view: RouteView, generation: str, partitions: int) -> StateAt:
    """The state of this moment: a copy of references, about a microsecond a broker name."""
    content = content_of(view.committed_table(), partitions)
    return StateAt(position_at(generation, view.next_offsets), content)


async def encoded_rows(state: StateAt, choice: Choice, steps: Steps) -> AsyncIterator[list[bytes]]:
    """Its rows, in no order: no two are about the same key."""
    for part, group in state.content.groups.items():
        rows: Iterator[Difference] = diff(BrokerGroup(group.broker_name), group)
        if len(group.topics) > _LARGE_GROUP:
            rows = iter(await asyncio.to_thread(list, rows))
        async for found in steps.lists(encode_state_row(part.partition, r) for r in rows if choice.wants_state(r)):
            yield found
    for part in state.content.entries:
        rows = part_rows(state.content, part)
        async for found in steps.lists(encode_state_row(part.partition, r) for r in rows if choice.wants_state(r)):
            yield found
