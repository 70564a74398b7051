"""Clients that several parts of a program share, and a client for programs without asyncio.

Source: rocketmq 5.3.3, MQClientManager: one MQClientInstance per client id.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from namesrv_stream.client.client_errors import ClientClosed
from namesrv_stream.client.name_server_client import Client, ClientOptions, default_client_id
from namesrv_stream.client.queues import MessageQueue
from namesrv_stream.client.route import ClusterInfo
from namesrv_stream.client.route_cache import TopicRoute
from namesrv_stream.errors import ConfigError
from namesrv_stream.remoting.command import AclCredentials

_lock = threading.Lock()  # event loops may run in several threads
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Terms:
    """The arguments that all users of one client must share."""

    name_servers: str
    credentials: AclCredentials | None
    options: ClientOptions


@dataclass(slots=True, eq=False)
class _Instance:
    client: Client
    terms: _Terms
    loop: asyncio.AbstractEventLoop
    starting: asyncio.Lock
    users: int = 0


_instances: dict[str, _Instance] = {}


@asynccontextmanager
async def client_for(
    name_servers: str,
    *,
    client_id: str | None = None,
    credentials: AclCredentials | None = None,
    options: ClientOptions | None = None,
) -> AsyncIterator[Client]:
    """Provide the started client of this id; the first caller creates it, and the last one closes it.

    Args:
        name_servers: See `Client`; the same text for all callers of one id.
        client_id: The id of the client; ``ip@pid`` by default.
        credentials: See `Client`; the same for all callers of one id.
        options: See `Client`; the same for all callers of one id.

    Raises:
        ConfigError: The client of this id has other name servers, credentials or options, or belongs to another event
            loop; or ``name_servers`` cannot be read.
        AddressServerUnreachable: The address server returned no list.
    """
    client_id = client_id or default_client_id()
    instance = _acquire(client_id, _Terms(name_servers.strip(), credentials, options or ClientOptions()))
    try:
        async with instance.starting:
            await instance.client.start()
        yield instance.client
    finally:
        if _is_last(client_id, instance):
            await instance.client.close()


def _acquire(client_id: str, terms: _Terms) -> _Instance:
    loop = asyncio.get_running_loop()
    with _lock:
        instance = _instances.get(client_id)
        if instance is None or instance.loop.is_closed():
            client = Client(
                terms.name_servers, client_id=client_id, credentials=terms.credentials, options=terms.options
            )
            instance = _instances[client_id] = _Instance(client, terms, loop, asyncio.Lock())
        elif instance.loop is not loop:
            raise ConfigError("client", client_id, "belongs to another event loop; give this one another client_id")
        elif instance.terms != terms:
            other = _difference(instance.terms, terms)
            raise ConfigError("client", client_id, f"exists with other {other}; use the same or another client_id")
        instance.users += 1
        return instance


def _is_last(client_id: str, instance: _Instance) -> bool:
    with _lock:
        instance.users -= 1
        if instance.users == 0 and _instances.get(client_id) is instance:
            del _instances[client_id]
        return instance.users == 0


def _difference(there: _Terms, wanted: _Terms) -> str:
    if there.name_servers != wanted.name_servers:
        return f"name servers ({there.name_servers})"
    return "credentials" if there.credentials != wanted.credentials else "options"


class BlockingClient:
    """A `Client` on an event loop in its own thread; a context manager that any number of threads may share."""

    def __init__(
        self,
        name_servers: str,
        *,
        client_id: str | None = None,
        credentials: AclCredentials | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        """See `Client`."""
        self._client = Client(name_servers, client_id=client_id, credentials=credentials, options=options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="name-server-client", daemon=True)
        self._is_open = False
        self._lock = threading.Lock()  # otherwise a call to a loop that has just stopped would wait forever

    def __enter__(self) -> Self:
        """Start the client."""
        self._thread.start()
        self._is_open = True
        try:
            self.run(lambda client: client.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client and end its thread; calls of other threads raise ClientClosed."""
        self._end()

    def run(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Call any method of the client, and wait: ``run(lambda client: client.topic_list())``.

        Raises:
            ClientClosed: The call is outside the ``with`` block, or the client was closed meanwhile.
        """
        with self._lock:
            if not self._is_open:
                raise ClientClosed
            future = self._submit(call)
        try:
            return future.result()
        finally:
            future.cancel()  # the interrupted caller was the only one

    def route(self, topic: str) -> TopicRoute:
        """See `Client.route`."""
        return self.run(lambda client: client.route(topic))

    def select_queue(self, topic: str, exclude: Collection[str] = ()) -> MessageQueue:
        """See `Client.select_queue`."""
        return self.run(lambda client: client.select_queue(topic, exclude))

    def readable_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """See `Client.readable_queues`."""
        return self.run(lambda client: client.readable_queues(topic))

    def cluster_info(self) -> ClusterInfo:
        """See `Client.cluster_info`."""
        return self.run(lambda client: client.cluster_info())

    def topic_list(self, cluster: str | None = None) -> tuple[str, ...]:
        """See `Client.topic_list`."""
        return self.run(lambda client: client.topic_list(cluster))

    def _submit(self, call: Callable[[Client], Awaitable[T]]) -> Future[T]:
        async def do() -> T:
            return await call(self._client)

        return asyncio.run_coroutine_threadsafe(do(), self._loop)

    def _end(self) -> None:
        with self._lock:
            self._is_open = False
        try:
            self._submit(_close).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _close(client: Client) -> None:
    await client.close()
    # Other threads still have to get ClientClosed.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)
