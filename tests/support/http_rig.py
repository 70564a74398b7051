"""A server's HTTP port on a real socket, with a view that tests change like a follower of the tables."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from namesrv_stream.clock import Clock
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.steps import finish
from namesrv_stream.route.table import RouteTable
from namesrv_stream.server.http.console.console_page import Sources
from namesrv_stream.server.http.http_server import HttpServer
from namesrv_stream.server.http.routes_page import PastRoutes
from namesrv_stream.server.native.lane import LaneStatus
from namesrv_stream.server.server_metrics import ServerMetrics
from namesrv_stream.server.start.process import NameServerAddrs
from namesrv_stream.server.view.commit_applier import HistoryAge, TableStatus
from namesrv_stream.server.view.feed import ChangeFeed
from namesrv_stream.server.view.fleet import Fleet
from namesrv_stream.server.view.recent_events import RecentEvents
from namesrv_stream.server.view.rows import generation_of
from namesrv_stream.server.view.served_state import ServedState
from namesrv_stream.settings import Settings, load_settings
from namesrv_stream.settings.layers import Flag
from namesrv_stream.tables.job_commits import JobFigures
from namesrv_stream.tables.snapshot import Snapshot
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import Log, a_registration
from tests.support.server_rig import Rig

TABLE_ID = "00000000-0000-4000-8000-000000000001"
NO_LANE: Final = LaneStatus(False, "off")
FLEET: Final = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}") for n in range(3)]
JOB: Final = JobFigures(1_700_000_000_000, 1_700_000_000_000, 4_711, 0, (3, 2, *[0] * 9, 1), 31_000)


def http_settings(**http: object) -> Settings:
    """Return default settings with these changes of the section ``http``."""
    flags = [Flag("test", f"http.{key}", str(value)) for key, value in http.items()]
    return load_settings(environ={}, flags=flags).settings


class HttpRig:
    """One server with its HTTP port.

    Attributes:
        failure: Why the tables cannot be read.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        partitions: int = 1,
        table_id: str = TABLE_ID,
        past_clock: Clock | None = None,
        native_lane: LaneStatus = NO_LANE,
    ) -> None:
        settings = settings or load_settings(environ={}).settings
        self.rig = Rig(partitions=partitions, tls=settings.tls)
        rig, http = self.rig, settings.http
        self.failure = ""
        self.feed = ChangeFeed(
            generation_of(table_id), rig.view.next_offsets, http.changes_kept_rows, http.changes_kept_bytes
        )
        self.recent_events = RecentEvents(tables_of(settings), rig.clock)
        stale_after_ms = settings.snapshot.stale_after_ms
        counters = rig.core.services.counters
        self.tables = TableStatus(Snapshot(RouteTable(), {}, -1), counters, rig.clock, stale_after_ms)
        self.tables.failure = lambda: self.failure
        self.state = ServedState(rig.identity, rig.view, self.tables, partitions)
        fleet = Fleet(rig.view, rig.gateway, self.recent_events)
        history_age = HistoryAge(settings, rig.clock)
        self.figures = ServerMetrics(rig.identity, rig.core, fleet, self.tables, history_age, native_lane)
        sources = Sources(
            rig.server,
            name_server_addrs=NameServerAddrs((), "127.0.0.1", 9876),
            state=self.state,
            past_routes=PastRoutes(settings, past_clock or rig.clock),
            feed=self.feed,
            recent_events=self.recent_events,
            figures=self.figures,
            tls=rig.tls,
            clock=rig.clock,
            settings=settings,
            peer_log=rig.peer_log,
        )
        self.http = HttpServer(socket.create_server(("127.0.0.1", 0)), sources)
        self.url = f"http://{self.http.address}"

    def commit(
        self, changes: Sequence[RouteChange], next_offsets: Mapping[int, int], job: JobFigures | None = None
    ) -> None:
        """Apply one commit of the job."""
        self.rig.served.committed(list(changes), next_offsets)
        self.tables.count(changes)
        self.tables.committed(self.tables.version + 1, job)
        self.rig.gateway.last_heartbeats.committed(changes, lambda key: self.rig.served.live(key) is not None)
        self.recent_events.committed(changes)
        finish(self.feed.committed(changes, next_offsets))

    def reload(self, table: RouteTable, next_offsets: Mapping[int, int], table_id: str = TABLE_ID) -> None:
        """Reopen the tables."""
        self.rig.served.reloaded(table, next_offsets)
        self.tables.reloaded(Snapshot(table, next_offsets, self.tables.version + 1))
        self.recent_events.reloaded()
        self.feed.reloaded(generation_of(table_id), next_offsets)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["HttpRig"]:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.http.run())
            try:
                yield self
            finally:
                self.http.stop()

    async def get(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> "Answer":
        """Send a request over a new connection."""
        host, _, port = self.http.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            headers = {"Host": self.http.address, **headers}
            lines = [f"{method} {path} HTTP/1.1", "Connection: close"]
            lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            return await read_answer(reader, has_body=method != "HEAD")
        finally:
            writer.close()

    async def samples(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """Return the samples of ``/metrics``: (name, values of the labels by their names) → value."""
        answer = await self.get("/metrics")
        text = answer.body.decode()
        assert answer.status == 200, text
        return {
            (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def send_raw(self, request: bytes) -> bytes:
        """Send these bytes over a new connection and return all that the server answers before it closes it."""
        host, _, port = self.http.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


def a_served_fleet() -> tuple[HttpRig, Log]:
    """Return a server with the brokers of ``FLEET``, which the job has committed, and their log."""
    log = Log(FoldSettings(guard_known_ms=0, guard_min_brokers=2))
    for registration in FLEET:
        log.register(registration)
    served = HttpRig()
    served.rig.talk()
    served.commit(log.output.changes, {0: 3}, JOB)
    return served, log


class Answer(NamedTuple):
    """A received answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Return status and headers."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.partition(": ") for line in head[1:] if line)
    return int(head[0].split()[1]), {name.lower(): value for name, _, value in pairs}


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    """Return one chunk of a chunked body; b"" at its end."""
    size = int(await reader.readuntil(b"\r\n"), 16)
    return (await reader.readexactly(size + 2))[:-2]


async def read_answer(reader: asyncio.StreamReader, *, has_body: bool = True) -> Answer:
    """Return a whole answer, up to the end of the connection."""
    status, headers = await read_head(reader)
    if not has_body or "chunked" not in headers.get("transfer-encoding", ""):
        return Answer(status, headers, await reader.read())
    body = b""
    while chunk := await read_chunk(reader) if not reader.at_eof() else b"":
        body += chunk
    return Answer(status, headers, body)


async def eventually(is_so: Callable[[], bool], what: str) -> None:
    """Run the event loop until a condition is true."""
    for _ in range(6_000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not within a minute: {what}")
