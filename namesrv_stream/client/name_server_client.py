"""The client, which returns routes and queues of topics from whichever name server answers."""

import asyncio
import contextlib
import logging
import os
import random
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from namesrv_stream.client import queries
from namesrv_stream.client.client_errors import AddressServerUnreachable, ClientClosed, NoQueue
from namesrv_stream.client.name_servers import (
    CONNECT_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    NameServers,
    fetch_name_servers,
    is_address_server,
    parse_name_servers,
)
from namesrv_stream.client.queues import MessageQueue, next_queue
from namesrv_stream.client.route import ClusterInfo, TopicRouteData
from namesrv_stream.client.route_cache import RouteCache, TopicRoute
from namesrv_stream.logs import safe
from namesrv_stream.remoting.command import AclCredentials

# Addresses reserved for documentation: nothing is sent, the system only selects its own address for them.
_ELSEWHERE = {socket.AF_INET: ("192.0.2.1", 9), socket.AF_INET6: ("2001:db8::1", 9)}
logger = logging.getLogger(__name__)


def default_client_id() -> str:
    """Return ``ip@pid``: the address of this machine, in brackets if it is IPv6, and the id of this process.

    Differs from RocketMQ: 5.x adds the time to the pid, so that every client of a process has a different id.
    """
    return f"{_local_ip()}@{os.getpid()}"


def _local_ip() -> str:
    for family, elsewhere in _ELSEWHERE.items():
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(elsewhere)
            ip = str(probe.getsockname()[0])
            return f"[{ip}]" if ":" in ip else ip
    return "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of a client; all durations are in milliseconds.

    Attributes:
        connect_timeout_ms: Time limit of a connection attempt.
        request_timeout_ms: Time limit of an answer.
        poll_name_server_interval_ms: Interval between refreshes of all routes.
        missing_topic_interval_ms: Shortest interval between queries for a topic without a route or a writable queue.
        unused_topic_ms: A topic that was not requested for this time is no longer refreshed.
        address_server_interval_ms: Interval between queries to the HTTP address server, if one is used.

    Source: the defaults are those of rocketmq 5.3.3 (NettyClientConfig, ClientConfig, MQClientInstance), which has no
    limits for missing and unused topics.
    """

    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    poll_name_server_interval_ms: int = 30_000
    missing_topic_interval_ms: int = 1_000
    unused_topic_ms: int = 600_000
    address_server_interval_ms: int = 120_000


class Client:
    """A client of name servers; an async context manager. It belongs to the event loop that started it."""

    def __init__(
        self,
        name_servers: str,
        *,
        client_id: str | None = None,
        credentials: AclCredentials | None = None,
        options: ClientOptions | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare the client, without a connection.

        Args:
            name_servers: ``host:port;host:port``, or ``http://host/rocketmq/nsaddr``, which returns such a list.
            client_id: Name for log lines; ``ip@pid`` by default.
            credentials: Credentials that sign every request; None for unsigned requests.
            options: Durations.
            tls: TLS, see ``client_context``; None for plain connections.

        Raises:
            ConfigError: ``name_servers`` is neither a list nor a URL.
        """
        self.client_id = client_id or default_client_id()
        self.options = options or ClientOptions()
        self._credentials = credentials
        self._tls = tls
        self._address_server = name_servers.strip() if is_address_server(name_servers) else None
        self._addrs = () if self._address_server else parse_name_servers(name_servers)
        self._servers: NameServers | None = None
        self._turns: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._routes = RouteCache(
            self._fetch_route, self.options.missing_topic_interval_ms, self.options.unused_topic_ms
        )

    async def start(self) -> None:
        """Start refreshing routes in the background; if there is an address server, fetch its list first.

        Raises:
            AddressServerUnreachable: The address server returned no list.
        """
        if self._servers is not None:
            return
        if self._address_server is not None:
            self._addrs = await fetch_name_servers(self._address_server, self.options.connect_timeout_ms)
        self._servers = NameServers(self._addrs, self.options.connect_timeout_ms, self._credentials, self._tls)
        self._every("routes", self.options.poll_name_server_interval_ms, self._refresh_routes)
        if self._address_server is not None:
            self._every("name servers", self.options.address_server_interval_ms, self._refresh_name_servers)

    async def close(self) -> None:
        """Stop the background work and close all connections; pending requests raise ClientClosed."""
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._tasks.clear()
            await self._routes.close()
        finally:  # the caller may be cancelled meanwhile, which must not leave a connection open
            if self._servers is not None:
                await self._servers.close()

    async def __aenter__(self) -> Self:
        """Start the client, as ``start``."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client, as ``close``."""
        await self.close()

    @property
    def name_servers(self) -> NameServers:
        """The name servers, as an argument of the functions of ``queries`` and ``admin``.

        Raises:
            ClientClosed: The client has not been started.
        """
        if self._servers is None:
            raise ClientClosed
        return self._servers

    @property
    def topics(self) -> frozenset[str]:
        """The topics whose routes are refreshed."""
        return self._routes.topics

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic, from memory if it was requested before.

        Raises:
            TopicNotExist: No broker serves the topic.
            UnexpectedAnswer: The name server refused, or its answer cannot be read.
            NameServersUnreachable: No name server answered.
            ClientClosed: The client has not been started, or is closed.
        """
        if self._servers is None:
            raise ClientClosed
        return await self._routes.get(topic)

    async def select_queue(self, topic: str, exclude: Collection[str] = ()) -> MessageQueue:
        """Return the queue to write to next; the queues take turns, beginning with a random one.

        Args:
            exclude: Names of brokers that have just failed; their queues are used only if there are no others.

        Returns:
            A queue whose ``broker_addr`` is that of a master.

        Raises:
            NoQueue: The route has no writable queue.
            TopicNotExist: No broker serves the topic.
            UnexpectedAnswer: The name server refused, or its answer cannot be read.
            NameServersUnreachable: No name server answered.
            ClientClosed: The client has not been started, or is closed.
        """
        avoided = {exclude} if isinstance(exclude, str) else exclude
        queue = self._next_queue(await self.route(topic), avoided)
        if queue is None:
            queue = self._next_queue(await self._routes.renew(topic), avoided)
        if queue is None:
            raise NoQueue(topic)
        return queue

    async def readable_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that consumers may read.

        Raises:
            TopicNotExist: No broker serves the topic.
            UnexpectedAnswer: The name server refused, or its answer cannot be read.
            NameServersUnreachable: No name server answered.
            ClientClosed: The client has not been started, or is closed.
        """
        return (await self.route(topic)).readable_queues

    async def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers that a name server knows.

        Raises the errors of `route`, except TopicNotExist.
        """
        return await queries.cluster_info(self.name_servers, self.options.request_timeout_ms)

    async def topic_list(self, cluster: str | None = None) -> tuple[str, ...]:
        """Return all topics, or those of one cluster, sorted.

        Raises the errors of `route`, except TopicNotExist.
        """
        if cluster is None:
            return await queries.topic_list(self.name_servers, self.options.request_timeout_ms)
        return await queries.topics_of_cluster(self.name_servers, cluster, self.options.request_timeout_ms)

    def _next_queue(self, route: TopicRoute, avoided: Collection[str]) -> MessageQueue | None:
        turn = self._turns.get(route.topic)
        if turn is None:
            turn = random.randrange(max(1, len(route.writable_queues)))
        queue, self._turns[route.topic] = next_queue(route.writable_queues, turn, avoided)
        return queue

    async def _fetch_route(self, topic: str) -> TopicRouteData:
        return await queries.topic_route(self.name_servers, topic, self.options.request_timeout_ms)

    def _every(self, what: str, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                try:
                    await work()
                except ClientClosed:
                    return
                except Exception:
                    # A bug must not end the refreshes of a running client.
                    logger.exception("refresh failed what=%s client_id=%s", what, safe(self.client_id))

        name = f"{self.client_id} {what}"
        self._tasks.append(asyncio.get_running_loop().create_task(repeat(), name=name))

    async def _refresh_routes(self) -> None:
        await self._routes.refresh()
        known = self._routes.topics
        self._turns = {topic: turn for topic, turn in self._turns.items() if topic in known}

    async def _refresh_name_servers(self) -> None:
        assert self._address_server is not None
        try:
            addrs = await fetch_name_servers(self._address_server, self.options.connect_timeout_ms)
        except AddressServerUnreachable as error:
            logger.warning("cannot refresh name servers, keeping the old list reason=%s", safe(str(error)))
            return
        if set(addrs) != set(self.name_servers.addrs):
            logger.info("name servers changed addrs=%s", safe(";".join(addrs)))
            await self.name_servers.replace_addrs(addrs)
