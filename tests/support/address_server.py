"""An HTTP server on 127.0.0.1 with one answer for every request: the name-server addresses for clients, or garbage."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def an_address_server(answer: bytes | None, port: int = 0) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Yield the server's address and the list of received requests; without an answer (None) it never responds."""
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
