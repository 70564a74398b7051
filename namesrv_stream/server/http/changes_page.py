"""``/changes``: what changes, as server-sent events or by long polling; ``/changes/state``: what to begin with.

A follower that begins without a position gets the whole state first, and is told to forget what it has whenever the
server cannot go on from where it is. So it never has a gap, and never goes back: a server that is behind the
follower's position tells nothing until it has caught up.
"""

import time
from collections.abc import AsyncIterator
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from namesrv_stream.route.view import RouteView
from namesrv_stream.server.changes.catch_up import CatchUp
from namesrv_stream.server.changes.choice import Choice, parse_choice
from namesrv_stream.server.changes.feed import ChangeFeed, Piece
from namesrv_stream.server.changes.follower import Follower, PositionGone
from namesrv_stream.server.changes.position import BadToken, Position, parse_token
from namesrv_stream.server.changes.state_rows import StateAt, encoded_rows, state_now
from namesrv_stream.server.http.problems import POSITION_GONE, Problem
from namesrv_stream.server.http_figures import HttpFigures
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.turns import whole

EVENT_STREAM: Final = "text/event-stream"
_JSON: Final = "application/json"
#: A stream on which nothing else goes out tells its position this often, so that proxies and readers keep it.
_QUIET_S: Final = 10.0
_USUAL_WAIT_S: Final = 25.0
_NO_STORE: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_RETRY_MS: Final = 1_000


class ChangesPage:
    """Endpoints; of one event loop.

    Args:
        view: What the server answers from.
        partitions: Of the topic.
        feed: Told of all that the view takes over.
        catch_up: For what the feed has no longer.
        steps: Shared by all that is long.
        figures: Told of followers that begin anew.
    """

    def __init__(
        self,
        view: RouteView,
        partitions: int,
        feed: ChangeFeed,
        catch_up: CatchUp,
        *,
        steps: Steps,
        figures: HttpFigures,
    ) -> None:
        self._view = view
        self._partitions = partitions
        self._feed = feed
        self._catch_up = catch_up
        self._steps = steps
        self._figures = figures

    async def changes(self, request: Request) -> Response:
        """Changes behind ``?since=``, of ``?kind=&cluster=&broker_name=&topic=``: a stream if that is accepted."""
        is_stream = EVENT_STREAM in request.headers.get("accept", "")
        choice, since = _choice(request), request.query_params.get("since")
        wait_s = float(request.query_params.get("wait", _USUAL_WAIT_S))
        if request.method == "HEAD":
            return Response(media_type=EVENT_STREAM if is_stream else _JSON, headers=_NO_STORE)
        if not is_stream:
            return await self._answer(choice, self._position(since) or self._feed.end, wait_s)
        # A browser that connects again by itself says where it was; it could do nothing with a refusal.
        last = request.headers.get("last-event-id")
        position = self._position(last or since)
        if not last and position is not None:
            self._check(position)
        return StreamingResponse(self._stream(choice, position), media_type=EVENT_STREAM, headers=_NO_STORE)

    async def state(self, request: Request) -> Response:
        """The committed state as rows, and the position from which changes go on from it."""
        choice, state = _choice(request), await self._state()
        return StreamingResponse(self._state_json(state, choice), media_type=_JSON, headers=_NO_STORE)

    # ---- one answer ----

    async def _answer(self, choice: Choice, position: Position, wait_s: float) -> Response:
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
        return Response(_body(rows, follower.position, is_whole), media_type=_JSON, headers=_NO_STORE)

    # ---- a stream ----

    async def _stream(self, choice: Choice, position: Position | None) -> AsyncIterator[bytes]:
        yield b"retry: %d\n\n" % _RETRY_MS
        reason = "the follower has no position"
        while not self._feed.is_closed:
            if position is None:
                state = await self._state()
                async for event in self._begin_anew(state, choice, reason):
                    yield event
                position = state.position
            try:
                async for event in self._go_on(self._follower(choice, position)):
                    yield event
            except PositionGone as error:
                self._figures.reset(error.reason)
                position, reason = None, str(error)

    async def _begin_anew(self, state: StateAt, choice: Choice, reason: str) -> AsyncIterator[bytes]:
        yield _event("reset", orjson.dumps({"reason": reason, "then": "forget all rows; the whole state follows"}))
        async for rows in encoded_rows(state, choice, self._steps):
            if rows:
                yield _event("state", b'{"rows":[' + b",".join(rows) + b"]}")
        yield _event("position", _position_json(state.position), state.position)

    async def _go_on(self, follower: Follower) -> AsyncIterator[bytes]:
        told, told_s, is_whole = follower.position, time.monotonic(), True
        while not self._feed.is_closed:
            piece: Piece | None = await follower.next(max(0.05, told_s + _QUIET_S - time.monotonic()))
            is_quiet = time.monotonic() - told_s >= _QUIET_S
            if piece is not None and piece.rows:
                yield _event("changes", _body(piece.rows, piece.position, piece.is_whole), piece.position)
                is_whole = piece.is_whole
            elif follower.position != told and (is_quiet or (piece is not None and piece.is_whole > is_whole)):
                # After a while, or because the rest of a commit that was begun has nothing for this follower.
                is_whole = True
                yield _event("position", _position_json(follower.position), follower.position)
            elif is_quiet:
                yield b": nothing new\n\n"
            else:
                continue
            told, told_s = follower.position, time.monotonic()

    # ---- positions ----

    def _follower(self, choice: Choice, position: Position) -> Follower:
        return Follower(self._feed, self._catch_up, choice, position, self._steps)

    async def _state(self) -> StateAt:
        await whole(self._view)
        return state_now(self._view, self._feed.end.generation, self._partitions)

    def _position(self, text: str | None) -> Position | None:
        if not text:
            return None
        if text == "now":
            return self._feed.end
        try:
            return parse_token(text)
        except BadToken as error:
            raise Problem(400, f"since: {error}; take one from an answer, or `now`") from None

    def _check(self, position: Position) -> None:
        """Refuse a position of other tables at once; one that is too old is found out when its rows are read."""
        if position.generation != self._feed.end.generation:
            raise self._gone(PositionGone("tables", "the tables were made anew, and their rows have other places"))

    def _gone(self, error: PositionGone) -> Problem:
        self._figures.reset(error.reason)
        todo = "forget what you have, take GET /changes/state, and go on from its position"
        return Problem(410, f"{error}: {todo}", kind=POSITION_GONE)

    async def _state_json(self, state: StateAt, choice: Choice) -> AsyncIterator[bytes]:
        between = _position_json(state.position)[:-1] + b',"rows":['
        async for rows in encoded_rows(state, choice, self._steps):
            if rows:
                yield between + b",".join(rows)
                between = b","
        yield (b"" if between == b"," else between) + b"]}"


def _choice(request: Request) -> Choice:
    try:
        return parse_choice(request.query_params)
    except ValueError as error:
        raise Problem(400, str(error)) from None


def _position_json(position: Position) -> bytes:
    return orjson.dumps({"position": position.token()})


def _body(rows: list[bytes], position: Position, is_whole: bool) -> bytes:
    head = orjson.dumps({"position": position.token(), "whole": is_whole})
    return head[:-1] + b',"rows":[' + b",".join(rows) + b"]}"


def _event(name: str, data: bytes, position: Position | None = None) -> bytes:
    event_id = f"id: {position.token()}\n".encode() if position is not None else b""
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), event_id, data)
