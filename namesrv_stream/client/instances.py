"""One client for all in this process who name it alike, closed with the last of them.

Source: rocketmq 5.3.3, MQClientManager: one MQClientInstance a client id.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from namesrv_stream.client.client import Client, ClientOptions
from namesrv_stream.client.client_id import default_client_id
from namesrv_stream.errors import ConfigError
from namesrv_stream.remoting.acl import AclCredentials


@dataclass(frozen=True, slots=True)
class _Terms:
    """What all users of one client must agree on."""

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
_lock = threading.Lock()  # event loops may run in several threads


@asynccontextmanager
async def client_for(
    name_servers: str,
    *,
    client_id: str | None = None,
    credentials: AclCredentials | None = None,
    options: ClientOptions | None = None,
) -> AsyncIterator[Client]:
    """The client of this id, started; made by the first who asks, closed when the last leaves.

    Args:
        name_servers: See `Client`; the same text for all.
        client_id: ``ip@pid`` if not given.
        credentials: See `Client`; the same for all.
        options: See `Client`; the same for all.

    Raises:
        ConfigError: The client of this id has other name servers, credentials or options, or belongs to another event
            loop; or ``name_servers`` cannot be read.
        AddressServerUnreachable: There is an address server, and it gave no list.
    """
    client_id = client_id or default_client_id()
    instance = _take(client_id, _Terms(name_servers.strip(), credentials, options or ClientOptions()))
    try:
        async with instance.starting:
            await instance.client.start()
        yield instance.client
    finally:
        if _is_last(client_id, instance):
            await instance.client.close()


def _take(client_id: str, terms: _Terms) -> _Instance:
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
