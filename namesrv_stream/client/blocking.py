"""The client for programs that do not use asyncio: the same calls, which wait."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from namesrv_stream.client.client import Client, ClientOptions
from namesrv_stream.client.errors import ClientClosed
from namesrv_stream.client.queues import MessageQueue
from namesrv_stream.client.route import ClusterInfo
from namesrv_stream.client.route_cache import TopicRoute
from namesrv_stream.remoting.acl import AclCredentials

T = TypeVar("T")


class BlockingClient:
    """A `Client` on an event loop in a thread of its own; a context manager that any number of threads may share."""

    def __init__(
        self,
        name_servers: str,
        *,
        client_id: str | None = None,
        credentials: AclCredentials | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        """See `Client`; connects to nothing yet."""
        self._client = Client(name_servers, client_id=client_id, credentials=credentials, options=options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="name-server-client", daemon=True)
        self._is_open = False
        self._lock = threading.Lock()  # else a call could be handed to a loop that has just stopped, and wait for ever

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
        """Close the client and end its thread; calls of other threads end with ClientClosed."""
        self._end()

    def run(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Have the client do anything that it can do, and wait: ``run(lambda client: client.topic_list())``.

        Raises:
            ClientClosed: Outside the ``with`` block.
        """
        with self._lock:
            if not self._is_open:
                raise ClientClosed
            future = self._submit(call)
        try:
            return future.result()
        finally:
            future.cancel()  # an interrupted caller waits no more, so nobody does

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
    # Other threads may still be told that it is closed.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)
