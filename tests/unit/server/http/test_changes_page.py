"""``/changes`` over real sockets: streams and long polls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.digest import digest_of
from namesrv_stream.route.events import KvPut
from namesrv_stream.route.table import RouteTable
from namesrv_stream.server.http import changes_page
from tests.support.builders import RW, S1, Log, a_registration
from tests.support.followed import row_of
from tests.support.http_rig import HttpRig, eventually, http_settings, read_chunk, read_head

_STREAM = {"Accept": "text/event-stream"}
_BEGIN = "1.0000000000004000.0"


class Event(NamedTuple):
    """A server-sent event."""

    name: str
    id: str
    data: Any


class Stream:
    """A client for server-sent events, like EventSource in a browser."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._text = b""

    async def event(self) -> Event:
        """Return the next event; skip comments and `retry`."""
        while True:
            while b"\n\n" not in self._text:
                chunk = await read_chunk(self._reader)
                if not chunk:
                    raise EOFError
                self._text += chunk
            text, _, self._text = self._text.partition(b"\n\n")
            fields = dict(line.split(": ", 1) for line in text.decode().splitlines() if ": " in line)
            if "event" in fields:
                return Event(fields["event"], fields.get("id", ""), orjson.loads(fields["data"]))

    async def until(self, name: str) -> list[Event]:
        events = [await self.event()]
        while events[-1].name != name:
            events.append(await self.event())
        return events


@asynccontextmanager
async def _streaming(served: HttpRig, path: str = "/changes", **headers: str) -> AsyncIterator[Stream]:
    host, _, port = served.http.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        lines = [f"GET {path} HTTP/1.1", "Host: localhost"] + [
            f"{k.replace('_', '-')}: {v}" for k, v in (_STREAM | headers).items()
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        status, found = await read_head(reader)
        assert (status, found["content-type"]) == (200, "text/event-stream; charset=utf-8")
        yield Stream(reader)
    finally:
        writer.close()


def _log() -> Log:
    log = Log()
    log.register(a_registration(topics={f"t{n}": RW for n in range(5)}))
    log.say(KvPut(S1, "ns", "key", "value"))
    return log


def _committed(log: Log, **http: object) -> HttpRig:
    served = HttpRig(http_settings(**http))
    served.commit(log.output.changes, {0: len(log.records)})
    return served


def _rows(events: list[Event]) -> list[RouteChange]:
    """All rows of events, as the fold made them."""
    return [row_of(row) for event in events for row in event.data.get("rows", ())]


def _digest(rows: list[RouteChange]) -> str:
    table = RouteTable()
    reducer.apply(table, rows)
    return digest_of(table, 1).total


async def test_a_stream_begins_with_the_whole_state_and_continues_with_changes() -> None:
    log = _log()
    served = _committed(log)
    async with served.serving(), asyncio.timeout(60), _streaming(served, "/changes?kind=*") as stream:
        events = await stream.until("position")
        assert events[0].name == "reset"
        log.say(KvPut(S1, "ns", "key", "other"))
        served.commit(log.output.changes[-1:], {0: 3})
        events.append(await stream.event())
        digest = (await served.state.describe()).digest
    assert [e.name for e in events] == ["reset", *["state"] * (len(events) - 3), "position", "changes"]
    assert events[-1].id == events[-1].data["position"] == "1.0000000000004000.3"
    assert _digest(_rows(events)) == digest


async def test_a_reconnected_stream_continues_after_its_last_event() -> None:
    log = _log()
    served = _committed(log)
    async with served.serving(), asyncio.timeout(60):
        async with _streaming(served) as stream:
            last = (await stream.until("position"))[-1].id
        log.say(KvPut(S1, "ns", "key", "other"))
        served.commit(log.output.changes[-1:], {0: 3})
        async with _streaming(served, Last_Event_ID=last) as stream:
            event = await stream.event()
    assert (event.name, [row["value"] for row in event.data["rows"]]) == ("changes", ["other"])


async def test_a_stream_is_reset_when_the_tables_are_rebuilt() -> None:
    log = _log()
    served = _committed(log)
    async with served.serving(), asyncio.timeout(60), _streaming(served) as stream:
        before = (await stream.until("position"))[-1].id
        table = RouteTable()
        reducer.apply(table, log.output.changes)
        served.reload(table, {0: 2}, "11111111-0000-4000-8000-000000000001")
        events = await stream.until("position")
        async with _streaming(served, Last_Event_ID=before) as again:
            first = await again.event()
        metrics = (await served.get("/metrics")).body.decode()
    assert events[0].name == first.name == "reset"
    assert "rebuilt" in events[0].data["reason"]
    assert events[-1].id.startswith("1.1111111100004000.")
    assert 'rocketmq_namesrv_change_resets_total{reason="tables"} 2.0' in metrics


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_position_of_other_tables_is_answered_410_with_a_remedy(accept: str) -> None:
    served = _committed(_log())
    async with served.serving():
        found = await served.get("/changes?since=1.00000000000000ff.1&wait=0", Accept=accept)
    assert (found.status, found.json()["type"]) == (410, "urn:namesrv-stream:problem:position-gone")
    assert "/changes/state" in found.json()["detail"]


async def test_a_position_whose_changes_are_no_longer_kept_is_answered_410(tmp_path: Path) -> None:
    log = _log()
    served = HttpRig()  # without tables, in which the changes would be
    served.reload(RouteTable(), {0: 2})
    async with served.serving():
        found = await served.get(f"/changes?since={_BEGIN}&wait=0")
    assert (found.status, len(log.records)) == (410, 2)


async def test_a_long_poll_waits_for_a_change_and_is_then_answered_at_once() -> None:
    log = _log()
    served = _committed(log)
    async with served.serving(), asyncio.timeout(60):
        asked = asyncio.ensure_future(served.get("/changes?since=now&wait=60"))
        await eventually(lambda: served.figures.http.streams == 1, "the request has arrived")
        log.say(KvPut(S1, "ns", "key", "other"))
        served.commit(log.output.changes[-1:], {0: 3})
        found = (await asked).json()
    assert [row["value"] for row in found["rows"]] == ["other"]
    assert (found["position"], found["whole"]) == ("1.0000000000004000.3", True)


async def test_a_poll_without_a_change_is_answered_with_the_current_position() -> None:
    served = _committed(_log())
    async with served.serving():
        found = (await served.get("/changes?wait=0")).json()
    assert found == {"position": "1.0000000000004000.2", "whole": True, "rows": []}


async def test_state_and_later_changes_together_equal_the_state_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _log()
    served = _committed(log)
    async with served.serving(), asyncio.timeout(60):
        state = (await served.get("/changes/state?kind=*")).json()
        log.unregister(a_registration())
        log.say(KvPut(S1, "n2", "key", "value"))
        served.commit(log.output.changes[-8:], {0: 4})
        rows, position = state["rows"], state["position"]
        while (found := (await served.get(f"/changes?since={position}&kind=*&wait=0")).json())["rows"]:
            rows, position = rows + found["rows"], found["position"]
        digest = (await served.state.describe()).digest
    assert _digest([row_of(row) for row in rows]) == digest


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("kind=kv", {("kv", None)}),
        ("topic=t1", {("queue_data", "t1")}),
        ("broker_name=broker-b", set()),
        ("kind=queue_data&cluster=c0", {("queue_data", f"t{n}") for n in range(5)}),
        ("kind=registration", {("registration", None)}),
    ],
)
async def test_a_follower_gets_the_rows_that_match_its_query(query: str, expected: set[tuple[str, str | None]]) -> None:
    served = _committed(_log())
    async with served.serving():
        changes = (await served.get(f"/changes?since={_BEGIN}&wait=0&{query}")).json()["rows"]
        state = (await served.get(f"/changes/state?{query}")).json()["rows"]
    for rows in (changes, state):
        assert {(row["kind"], row.get("topic")) for row in rows} == expected


async def test_registrations_are_sent_only_on_request() -> None:
    served = _committed(_log())
    async with served.serving():
        rows = (await served.get(f"/changes?since={_BEGIN}&wait=0")).json()["rows"]
    assert {"broker_data", "queue_data", "kv"} <= {row["kind"] for row in rows}
    assert "registration" not in {row["kind"] for row in rows}


async def test_a_stream_without_changes_sends_its_position_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_page, "_QUIET_S", 0.05)
    served = _committed(_log())
    async with served.serving(), asyncio.timeout(60), _streaming(served) as stream:
        await stream.until("position")
        served.commit([], {0: 9})  # progress only
        event = await stream.event()
    assert (event.name, event.id) == ("position", "1.0000000000004000.9")


async def test_a_large_commit_is_sent_in_pieces_and_the_last_one_is_marked_whole() -> None:
    log = Log()
    log.register(a_registration(topics={f"t{n}": RW for n in range(3_000)}))
    served = HttpRig()
    async with served.serving(), asyncio.timeout(60), _streaming(served, f"/changes?since={_BEGIN}&kind=*") as stream:
        served.commit(log.output.changes, {0: 1})
        events = [await stream.event()]
        while not events[-1].data["whole"]:
            events.append(await stream.event())
    assert len(events) > 2
    assert len(_rows(events)) == len(log.output.changes)
    assert events[0].id.startswith("1.0000000000004000.0_")


async def test_followers_beyond_the_limit_are_refused_while_other_requests_are_answered() -> None:
    served = _committed(_log(), max_streams=1)
    async with served.serving(), asyncio.timeout(60), _streaming(served) as stream:
        await stream.event()
        refused, other = await served.get("/changes?wait=0"), await served.get("/kv")
    assert (refused.status, refused.headers["retry-after"], other.status) == (503, "1", 200)


async def test_streams_end_when_the_server_stops() -> None:
    served = _committed(_log())
    async with asyncio.timeout(60), served.serving(), _streaming(served) as stream:
        await stream.until("position")
        served.http.stop()
        with pytest.raises((EOFError, asyncio.IncompleteReadError)):
            await stream.event()


async def test_a_follower_that_disconnects_is_forgotten() -> None:
    served = _committed(_log())
    async with served.serving(), asyncio.timeout(60):
        async with _streaming(served) as stream:
            await stream.until("position")
            assert served.figures.http.streams == 1
        await eventually(lambda: served.figures.http.streams == 0, "the follower is forgotten")


async def test_a_large_commit_is_sent_to_many_followers_in_many_iterations_of_the_event_loop() -> None:
    log = Log()
    log.register(a_registration(topics={f"t{n}": RW for n in range(2_000)}))
    served = HttpRig()
    async with served.serving(), asyncio.timeout(120):
        asked = [
            asyncio.ensure_future(served.get(f"/changes?since={_BEGIN}&kind=queue_data&wait=60")) for _ in range(20)
        ]
        await eventually(lambda: served.figures.http.streams == len(asked), "all requests have arrived")
        served.commit(log.output.changes, {0: 1})
        turns = 0
        while not all(found.done() for found in asked):
            await asyncio.sleep(0)
            turns += 1
    assert all(found.result().json()["rows"] for found in asked)
    assert turns > len(asked)


async def test_a_follower_gets_the_position_at_once_if_no_more_rows_of_a_commit_match() -> None:
    log = Log()
    log.register(a_registration(topics={f"t{n:05}": RW for n in range(3_000)}))
    served = HttpRig()
    path = f"/changes?since={_BEGIN}&topic=t00001"
    async with served.serving(), asyncio.timeout(60), _streaming(served, path) as stream:
        served.commit(log.output.changes, {0: 1})
        events = [await stream.event(), await stream.event()]
    assert [(e.name, e.data.get("whole")) for e in events] == [("changes", False), ("position", None)]
    assert events[-1].id == "1.0000000000004000.1"
