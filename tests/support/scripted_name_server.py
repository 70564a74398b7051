"""Servers on this machine whose answers a test scripts: name servers, which may misbehave, and address servers."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import orjson

from namesrv_stream.addresses import join_addr
from namesrv_stream.errors import RemotingError
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode, response_to
from namesrv_stream.remoting.frame import FrameBuffer, decode_frame, encode_frame

#: Commands and raw bytes to write, in order; None closes the connection.
Answers = list[RemotingCommand | bytes | None]
Script = Callable[[RemotingCommand], Answers]


def accept_all(request: RemotingCommand) -> Answers:
    """Answer SUCCESS to every request that expects an answer."""
    return [] if request.is_oneway else [response_to(request, 0, ext_fields={})]


def say_nothing(request: RemotingCommand) -> Answers:
    """Do not answer."""
    return []


@dataclass
class ScriptedNameServer:
    """A scripted name server; an async context manager.

    Attributes:
        script: Returns the answers to a request; a test may replace it at any time.
        tls: The TLS context; None for plain text.
        requests: All requests so far, in order of arrival.
        connections: Connections so far.
    """

    script: Script = accept_all
    port: int = 0
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    requests: list[RemotingCommand] = field(default_factory=list)
    connections: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None

    @property
    def addr(self) -> str:
        """``host:port`` on which the server listens; a restart does not change it."""
        return join_addr(self.host, self.port)

    @property
    def open_connections(self) -> int:
        """Connections that neither side has closed."""
        return len(self._writers)

    def codes(self) -> list[int]:
        """Codes of all requests so far."""
        return [request.code for request in self.requests]

    async def start(self) -> None:
        """Start listening."""
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and all connections."""
        assert self._server is not None
        self._server.close()
        self.drop_connections()
        await self._server.wait_closed()

    def drop_connections(self) -> None:
        """Close all connections; clients may open new ones."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        frames = FrameBuffer()
        try:
            while data := await reader.read(65_536):
                for frame in frames.feed(data):
                    self._answer(decode_frame(frame), writer)
        except (ConnectionError, RemotingError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, request: RemotingCommand, writer: asyncio.StreamWriter) -> None:
        self.requests.append(request)
        for answer in self.script(request):
            if answer is None:
                writer.close()
            else:
                writer.write(answer if isinstance(answer, bytes) else encode_frame(answer))

    async def __aenter__(self) -> Self:
        """Listen."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the listener and all connections."""
        await self.stop()


async def until(condition: Callable[[], object], what: str, timeout_s: float = 10) -> None:
    """Wait until a condition is true; checks it every millisecond.

    Raises:
        AssertionError: The condition did not become true in time.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {timeout_s:g} s: {what}"
        await asyncio.sleep(0.001)


@dataclass
class ScriptedRoutes:
    """A script for `ScriptedNameServer` with routes that a test can change.

    Attributes:
        routes: Topic to broker name to write (and read) queues; the master of ``b`` is ``b:10911``.
        requested_topics: Topics of all route requests so far.
    """

    routes: dict[str, dict[str, int]] = field(default_factory=dict)
    requested_topics: list[str] = field(default_factory=list)

    def __call__(self, request: RemotingCommand) -> Answers:
        topic = (request.ext_fields or {}).get("topic", "")
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            self.requested_topics.append(topic)
            if topic not in self.routes:
                return [response_to(request, ResponseCode.TOPIC_NOT_EXIST, remark="none")]
            return [response_to(request, 0, body=self._body(self.routes[topic]))]
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return [response_to(request, 0, body=orjson.dumps({"topicList": sorted(self.routes)}))]
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return [response_to(request, 0, body=self._cluster_info())]
        if request.code == RequestCode.GET_KVLIST_BY_NAMESPACE:
            return [response_to(request, ResponseCode.QUERY_NOT_FOUND, remark="none")]
        return [response_to(request, 0, ext_fields={})]

    def _cluster_info(self) -> bytes:
        names = sorted({name for queues in self.routes.values() for name in queues})
        brokers = {n: {"brokerName": n, "cluster": "c0", "brokerAddrs": {"0": f"{n}:10911"}} for n in names}
        return orjson.dumps({"brokerAddrTable": brokers, "clusterAddrTable": {"c0": names} if names else {}})

    def _body(self, queues: dict[str, int]) -> bytes:
        brokers = [
            {"brokerName": name, "cluster": "c0", "brokerAddrs": {"0": f"{name}:10911"}, "enableActingMaster": False}
            for name in queues
        ]
        datas = [
            {"brokerName": name, "perm": 6, "readQueueNums": n, "writeQueueNums": n, "topicSysFlag": 0}
            for name, n in queues.items()
        ]
        return orjson.dumps({"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": datas})


@asynccontextmanager
async def an_address_server(answer: bytes | None, port: int = 0) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run an address server; yields its address and the received requests. With ``answer`` None it never responds."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/rocketmq/nsaddr", requests
