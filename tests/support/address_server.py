"""An HTTP server on 127.0.0.1 that answers every request the same: it tells clients their name servers, or garbage."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def an_address_server(answer: bytes | None, port: int = 0) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Its address, and the requests that come; None for an answer that never comes."""
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
