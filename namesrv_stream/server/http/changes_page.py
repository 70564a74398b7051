"""``/changes``: changes as server-sent events or by long polling; ``/changes/state``: the state to start with.

A stream without a position starts with the whole state. If the server cannot continue from a follower's position, it
instructs the follower to discard its rows. So a follower never has a gap and never goes back: a server that lags
behind the follower's position sends nothing until it has caught up.
"""

import time
from collections.abc import AsyncIterator
from typing import Annotated, Final

import orjson
from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from namesrv_stream.metrics import Counters
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.http.answers import POSITION_GONE, Changes, Problem, StateRows
from namesrv_stream.server.http.operation import JSON, Query, answers
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.feed import ChangeFeed, Piece
from namesrv_stream.server.view.follower import CatchUp, Follower, PositionGone
from namesrv_stream.server.view.rows import (
    MAX_CHARS,
    USUAL_KINDS,
    BadToken,
    Position,
    RowFilter,
    StateAt,
    encoded_rows,
    parse_kinds,
    parse_token,
    state_now,
)

EVENT_STREAM: Final = "text/event-stream"
#: An idle stream sends its position this often, so that proxies and clients keep the connection.
_QUIET_S: Final = 10.0
_NO_STORE: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_RETRY_MS: Final = 1_000
_THEN: Final = "forget all rows; the whole state follows"


class RowsQuery(Query):
    """The query parameters that select rows."""

    kind: Annotated[frozenset[str], BeforeValidator(parse_kinds), WithJsonSchema({"type": "string"})] = Field(
        USUAL_KINDS,
        description="Kinds of rows, separated by `,`; `*` for all. Default: all but `registration`.",
        examples=["queue_data"],
    )
    cluster: str | None = Field(None, description="Only rows about this cluster.", examples=["c0"])
    broker_name: str | None = Field(None, description="Only rows about this broker name.", examples=["broker-a"])
    topic: str | None = Field(None, description="Only rows about this topic.", examples=["TopicTest"])

    @property
    def choice(self) -> RowFilter:
        return RowFilter(self.kind, self.cluster, self.broker_name, self.topic)


class ChangesQuery(RowsQuery):
    since: str | None = Field(
        None, max_length=MAX_CHARS, description="A position from an answer, or `now`.", examples=["1.5f0c1b.91822"]
    )
    wait: int = Field(25, ge=0, le=60, description="Seconds to wait for a change.", examples=[25])


class ChangesPage:
    """The endpoints for changes. Only one event loop may use it."""

    def __init__(
        self, view: RouteView, partitions: int, feed: ChangeFeed, catch_up: CatchUp, counters: Counters, steps: Steps
    ) -> None:
        self._view = view
        self._partitions = partitions
        self._feed = feed
        self._catch_up = catch_up
        self._counters = counters
        self._steps = steps

    @answers("/changes", (JSON, Changes), (EVENT_STREAM, None), errors=(410, 503), load="stream")
    async def changes(self, request: Request, query: ChangesQuery) -> Response:
        """Return committed changes after a position, as soon as there are any; or stream them as events."""
        is_stream = EVENT_STREAM in request.headers.get("accept", "")
        choice, since = query.choice, query.since
        if request.method == "HEAD":
            return Response(media_type=EVENT_STREAM if is_stream else JSON, headers=_NO_STORE)
        if not is_stream:
            return await self._answer(choice, self._position(since) or self._feed.end, query.wait)
        # A browser that reconnects by itself sends its position in this header, and could not handle an error.
        last = request.headers.get("last-event-id")
        position = self._position(last or since)
        if not last and position is not None:
            try:
                self._follower(choice, position).check()
            except PositionGone as error:
                raise self._gone(error) from None
        return StreamingResponse(self._stream(choice, position), media_type=EVENT_STREAM, headers=_NO_STORE)

    @answers("/changes/state", (JSON, StateRows))
    async def state(self, _: Request, query: RowsQuery) -> Response:
        """Return the committed state as rows, and its position, from which /changes continues."""
        return StreamingResponse(self._state_json(self._state(), query.choice), media_type=JSON, headers=_NO_STORE)

    async def _answer(self, choice: RowFilter, position: Position, wait_s: int) -> Response:
        follower = self._follower(choice, position)
        until_s = time.monotonic() + wait_s
        rows: list[bytes] = []
        is_whole = True
        try:
            while not rows:
                piece = await follower.next(max(0.0, until_s - time.monotonic()))
                if piece is None:
                    break
                rows, is_whole = piece.rows, piece.is_whole
        except PositionGone as error:
            raise self._gone(error) from None
        return Response(_body(rows, follower.position, is_whole), media_type=JSON, headers=_NO_STORE)

    async def _stream(self, choice: RowFilter, position: Position | None) -> AsyncIterator[bytes]:
        yield b"retry: %d\n\n" % _RETRY_MS
        reason = "the follower has no position"
        while not self._feed.is_closed:
            if position is None:
                state = self._state()
                yield _event("reset", orjson.dumps({"reason": reason, "then": _THEN}))
                async for rows in encoded_rows(state, choice, self._steps):
                    yield _event("state", b'{"rows":[' + b",".join(rows) + b"]}")
                position = state.position
                yield _event("position", _position_json(position), position)
            try:
                async for event in self._changes(self._follower(choice, position)):
                    yield event
            except PositionGone as error:
                self._counters.count("rocketmq_namesrv_change_resets_total", error.reason)
                position, reason = None, str(error)

    async def _changes(self, follower: Follower) -> AsyncIterator[bytes]:
        sent, sent_s, is_whole = follower.position, time.monotonic(), True
        while not self._feed.is_closed:
            piece: Piece | None = await follower.next(max(0.05, sent_s + _QUIET_S - time.monotonic()))
            is_quiet = time.monotonic() - sent_s >= _QUIET_S
            if piece is not None and piece.rows:
                yield _event("changes", _body(piece.rows, piece.position, piece.is_whole), piece.position)
                is_whole = piece.is_whole
            elif follower.position != sent and (is_quiet or (piece is not None and piece.is_whole > is_whole)):
                # Sent after a while, or because the rest of a partly sent commit has no rows for this follower.
                is_whole = True
                yield _event("position", _position_json(follower.position), follower.position)
            elif is_quiet:
                yield b": nothing new\n\n"
            else:
                continue
            sent, sent_s = follower.position, time.monotonic()

    def _follower(self, choice: RowFilter, position: Position) -> Follower:
        return Follower(self._feed, self._catch_up, choice, position, self._steps)

    def _state(self) -> StateAt:
        return state_now(self._view, self._feed.end.generation, self._partitions)

    def _position(self, text: str | None) -> Position | None:
        if not text:
            return None
        if text == "now":
            return self._feed.end
        if text.count("-") >= self._partitions:  # each place is parsed
            raise Problem(400, f"since: a position with more than the {self._partitions} partitions of the log")
        try:
            return parse_token(text)
        except BadToken as error:
            raise Problem(400, f"since: {error}; use one from an answer, or `now`") from None

    def _gone(self, error: PositionGone) -> Problem:
        self._counters.count("rocketmq_namesrv_change_resets_total", error.reason)
        todo = "discard all rows, get /changes/state, and continue from its position"
        return Problem(410, f"{error}: {todo}", kind=POSITION_GONE)

    async def _state_json(self, state: StateAt, choice: RowFilter) -> AsyncIterator[bytes]:
        between = _position_json(state.position)[:-1] + b',"rows":['
        async for rows in encoded_rows(state, choice, self._steps):
            yield between + b",".join(rows)
            between = b","
        yield (b"" if between == b"," else between) + b"]}"


def _position_json(position: Position) -> bytes:
    return orjson.dumps({"position": position.token()})


def _body(rows: list[bytes], position: Position, is_whole: bool) -> bytes:
    head = orjson.dumps({"position": position.token(), "whole": is_whole})
    return head[:-1] + b',"rows":[' + b",".join(rows) + b"]}"


def _event(name: str, data: bytes, position: Position | None = None) -> bytes:
    event_id = f"id: {position.token()}\n".encode() if position is not None else b""
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), event_id, data)
