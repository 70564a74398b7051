"""Whatever is committed, reloaded, split and reconnected, a follower finally has the state of its server.

A log is folded once. Two servers take over its commits, each in its own batches and at its own time, miss commits in
reloads, forget old rows, and are restarted. Followers read in pieces at any time, change servers in the middle of a
record, and start again only after an error that demands it.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.digest import digest_of
from namesrv_stream.route.events import KvPut, TopicDeleted
from namesrv_stream.route.steps import finish
from namesrv_stream.route.table import RouteTable
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view import follower
from namesrv_stream.server.view.feed import ChangeFeed, Piece
from namesrv_stream.server.view.follower import CatchUp, Follower, PositionGone
from namesrv_stream.server.view.rows import (
    Place,
    Position,
    RowFilter,
    generation_of,
    parse_kinds,
    parse_token,
    position_at,
)
from namesrv_stream.tables.change_rows import decode_changes
from namesrv_stream.tables.storage import Folder
from namesrv_stream.tables.stored_changes import StoredChanges
from tests.support.builders import RW, S1, a_registration
from tests.support.examples import examples
from tests.support.tables import TablesOfLog

ALL = RowFilter(parse_kinds("*"))
FEW_ROWS, FEW_BYTES = 30, 20_000


@cache
def _world() -> tuple[TablesOfLog, list[list[RouteChange]], str]:
    """Return tables of a whole log, the rows of each of its records, and the generation of the tables."""
    tables = TablesOfLog(Path(tempfile.mkdtemp(prefix="feed-laws-")))
    log, by_record = tables.log, []
    fleet = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}") for n in range(3)]
    for n, registration in enumerate(fleet):
        by_record.append(log.register(registration, connection=n + 1))
    by_record.append(log.say(KvPut(S1, "ns", "key", "value")))
    many = {f"topic-{n}": RW for n in range(12)}
    by_record.append(log.register(a_registration("10.0.0.1:1", broker_name="b1", topics=many), connection=2))
    by_record.append(log.say(TopicDeleted(S1, "topic-3", "c0")))
    by_record.append(log.say(KvPut(S1, "ns", "key", "other")))
    by_record.append(log.unregister(fleet[0], connection=1))
    by_record.append(log.change_settings(default_timeout_ms=60_000))
    by_record.append(log.heard(fleet[2], connection=3))
    by_record.append(log.register(fleet[0], connection=4))
    tables.commit()
    stored = StoredChanges.open(tables.storage)
    assert stored is not None
    return tables, by_record, generation_of(stored.table_id)


class Server:
    """A server that has the log up to some record."""

    def __init__(self, kept_rows: int = FEW_ROWS) -> None:
        self.tables, self.by_record, self.generation = _world()
        self.kept_rows = kept_rows
        self.reached = 0
        self.feed = ChangeFeed(self.generation, {}, kept_rows, FEW_BYTES)
        self.catch_up = CatchUp(self.tables.storage, 10_000)
        self.steps = Steps()

    def commit(self, records: int) -> None:
        end = min(self.reached + records, len(self.by_record))
        rows = [row for record in self.by_record[self.reached : end] for row in record]
        self.reached = end
        finish(self.feed.committed(rows, {0: end}))

    def reload(self, records: int) -> None:
        """Reopen the tables at a later record, without the rows in between."""
        self.reached = min(self.reached + records, len(self.by_record))
        self.feed.reloaded(self.generation, {0: self.reached})

    def restart(self) -> None:
        self.feed = ChangeFeed(self.generation, {0: self.reached}, self.kept_rows, FEW_BYTES)

    @property
    def state(self) -> RouteTable:
        return _table_of(self.by_record[: self.reached])

    def follower(self, position: Position) -> Follower:
        return Follower(self.feed, self.catch_up, ALL, position, self.steps)


def _table_of(by_record: list[list[RouteChange]]) -> RouteTable:
    table = RouteTable()
    reducer.apply(table, (row for record in by_record for row in record))
    return table


def _digest(table: RouteTable) -> str:
    return digest_of(table, 1).total


class Client:
    """A follower: its table, and the last token that it received."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.table = RouteTable()
        self.places: list[tuple[int, int]] = []
        self.token = position_at(server.generation, {}).token()
        self.is_whole = True
        self._follower = server.follower(parse_token(self.token))

    def connect(self, server: Server) -> None:
        """Continue at a server with the last token."""
        self.server = server
        self._follower = server.follower(parse_token(self.token))

    async def read(self) -> bool:
        """Read one piece; return False if there is none."""
        piece: Piece | None = await self._follower.next(0)
        if piece is None:
            return False
        rows = [_row(text) for text in piece.rows]
        self.places += [(row.offset, row.seq) for row in rows]
        reducer.apply(self.table, rows)
        self.token, self.is_whole = piece.position.token(), piece.is_whole
        return True

    async def read_all(self) -> None:
        while await self.read():
            pass


def _row(text: bytes) -> RouteChange:
    fields: dict[str, Any] = orjson.loads(text)
    for name in ("clusters", "filter_servers"):
        if name in fields:
            fields[name] = tuple(fields[name])
    if "broker_addrs" in fields:
        fields["broker_addrs"] = tuple((i, a) for i, a in fields["broker_addrs"])
    return RouteChange(**fields)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "reload", "restart", "read", "read_all", "connect"]),
        st.integers(0, 1),
        st.integers(0, 4),
    ),
    max_size=30,
)


@settings(max_examples=examples(150))
@given(STEPS, st.integers(1, 60), st.integers(1, 3_000))
def test_what_a_follower_has_folded_is_what_its_server_has(
    steps: list[tuple[str, int, int]], kept_rows: int, piece_bytes: int
) -> None:
    asyncio.run(_live(steps, kept_rows, piece_bytes))


async def _live(steps: list[tuple[str, int, int]], kept_rows: int, piece_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("namesrv_stream.server.view.follower._PIECE_BYTES", piece_bytes)
        servers = [Server(kept_rows), Server(kept_rows)]
        client = Client(servers[0])
        for step, which, count in steps:
            server = servers[which]
            match step:
                case "commit":
                    server.commit(count)
                case "reload":
                    server.reload(count)
                case "restart":
                    server.restart()
                    if client.server is server:
                        client.connect(server)
                case "connect":
                    client.connect(server)
                case "read":
                    await client.read()
                case _:
                    await client.read_all()
        for server in servers:
            server.commit(len(server.by_record))
        await client.read_all()
        # The follower got every row of the log once and in order.
        assert client.places == [(row.offset, row.seq) for record in client.server.by_record for row in record]
        assert client.is_whole
        assert _digest(client.table) == _digest(client.server.state)


async def test_the_table_after_a_whole_piece_is_a_state_of_the_log() -> None:
    server = Server()
    states = {_digest(_table_of(server.by_record[:end])) for end in range(len(server.by_record) + 1)}
    client = Client(server)
    for _ in server.by_record:
        server.commit(1)
        while await client.read():
            if client.is_whole:
                assert _digest(client.table) in states


async def test_a_follower_ahead_of_its_server_gets_nothing_until_the_server_has_caught_up() -> None:
    ahead, behind = Server(), Server()
    ahead.commit(6)
    client = Client(ahead)
    await client.read_all()
    places = list(client.places)
    behind.commit(3)
    client.connect(behind)
    await client.read_all()
    assert client.places == places
    behind.commit(4)
    await client.read_all()
    assert _digest(client.table) == _digest(behind.state)


async def test_rebuilt_tables_invalidate_every_position() -> None:
    server = Server()
    server.commit(3)
    client = Client(server)
    await client.read_all()
    server.feed.reloaded("another", {0: 3})
    with pytest.raises(PositionGone) as gone:
        await client.read()
    assert gone.value.reason == "tables"


async def test_a_position_is_invalid_if_the_rows_after_it_are_not_kept(tmp_path: Path) -> None:
    server = Server()
    server.catch_up = CatchUp(Folder(tmp_path), 10_000)  # without tables
    client = Client(server)
    server.reload(3)
    with pytest.raises(PositionGone) as gone:
        await client.read()
    assert gone.value.reason == "too_old"


async def test_a_position_beyond_the_rows_of_a_record_continues_with_the_next_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, decoded = Server(), []
    server.reload(len(server.by_record))

    def decode(rows: Any) -> list[RouteChange]:
        decoded.append(rows.num_rows)
        return decode_changes(rows)

    monkeypatch.setattr(follower, "decode_changes", decode)
    monkeypatch.setattr(follower, "_ROWS_AT_ONCE", 3)
    client = Client(server)
    client.token = Position(server.generation, (Place(0, 999_999_999),)).token()
    client.connect(server)
    await client.read_all()
    assert client.places == [(row.offset, row.seq) for record in server.by_record[1:] for row in record]
    assert max(decoded) == 3, "whatever the position says"


async def test_a_position_is_invalid_while_the_tables_lack_rows_that_the_server_has() -> None:
    server = Server()
    client = Client(server)
    server.feed.reloaded(server.generation, {0: len(server.by_record) + 1})
    with pytest.raises(PositionGone) as gone:
        await client.read()
    assert gone.value.reason == "too_old"


async def test_a_position_is_invalid_if_too_many_rows_would_have_to_be_read() -> None:
    server = Server()
    server.catch_up = CatchUp(server.tables.storage, 5)
    client = Client(server)
    server.reload(9)
    with pytest.raises(PositionGone):
        await client.read()


def test_the_number_of_kept_rows_is_bounded() -> None:
    feed = ChangeFeed("g", {}, FEW_ROWS, 1 << 20)
    rows = list(_rows(1_000))
    for row in rows:
        finish(feed.committed([row], {0: row.offset + 1}))
    assert not feed.reaches(position_at("g", {0: 1_000 - FEW_ROWS}))
    assert feed.reaches(position_at("g", {0: 1_000 - FEW_ROWS // 4}))


def _rows(count: int) -> Iterator[RouteChange]:
    return (RouteChange(0, n, 0, n, "kv", False, "kv_put", namespace="ns", key="k", value="v") for n in range(count))
