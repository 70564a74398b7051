"""The limits of the HTTP port protect it from single peers."""

import asyncio
import socket

import pytest

from tests.support.builders import RW, Log, a_registration
from tests.support.http_rig import HttpRig, eventually, http_settings, read_answer


async def _connect(served: HttpRig) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = served.http.address.rpartition(":")
    return await asyncio.open_connection(host, int(port), limit=1 << 30)


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def _event_count(served: HttpRig, event: str) -> bool:
    metrics = (await served.get("/metrics")).body.decode()
    return f'rocketmq_namesrv_http_events_total{{event="{event}"}} 1.0' in metrics


async def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    served = HttpRig(http_settings(max_connections=2))
    async with served.serving(), asyncio.timeout(60):
        first, second, third = [await _connect(served) for _ in range(3)]
        assert await _is_closed(third[0])
        for _, writer in (first, second, third):
            writer.close()
        await eventually(lambda: not served.figures.http.connections(), "all connections are closed")
        assert await _event_count(served, "connection_refused")


@pytest.mark.parametrize("sent", [b"", b"GET /kv HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
async def test_the_connection_of_an_incomplete_request_is_closed_after_its_timeout(sent: bytes) -> None:
    served = HttpRig(http_settings(request_timeout_ms=50))
    async with served.serving(), asyncio.timeout(60):
        reader, writer = await _connect(served)
        writer.write(sent)
        assert await _is_closed(reader)
        writer.close()
        assert await _event_count(served, "request_late")


async def test_the_connection_of_an_incomplete_second_request_is_closed_as_well() -> None:
    served = HttpRig(http_settings(request_timeout_ms=50))
    async with served.serving(), asyncio.timeout(60):
        reader, writer = await _connect(served)
        writer.write(b"GET /kv HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answered = await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"GET /kv HT")
        assert answered.startswith(b"HTTP/1.1 200")
        assert await _is_closed(reader)
        writer.close()


async def test_the_connection_of_a_peer_that_does_not_read_is_closed() -> None:
    log = Log()
    log.register(a_registration(topics={f"{'t' * 220}{n}": RW for n in range(30_000)}))
    served = HttpRig(http_settings(slow_reader_ms=100))
    served.commit(log.output.changes, {0: 1})
    async with served.serving(), asyncio.timeout(120):
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            host, _, port = served.http.address.rpartition(":")
            peer.connect((host, int(port)))
            peer.sendall(b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await eventually(lambda: served.figures.http.inflight == 1, "the request has arrived")
            await eventually(lambda: served.figures.http.inflight == 0, "it is given up")
        assert await _event_count(served, "slow_reader")


async def test_requests_beyond_the_limit_are_answered_503_with_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    served = HttpRig(http_settings(max_requests=1))
    continues = asyncio.Event()

    async def wait() -> bytes:
        await continues.wait()
        return b""

    monkeypatch.setattr(served.figures, "text", wait)
    async with served.serving(), asyncio.timeout(60):
        slow = asyncio.ensure_future(served.get("/metrics"))
        await eventually(lambda: served.figures.http.inflight == 1, "the request has arrived")
        refused = await served.get("/kv")
        continues.set()
        answered = await slow
    assert (refused.status, refused.headers["retry-after"], answered.status) == (503, "1", 200)
    assert refused.json()["type"] == "urn:namesrv-stream:problem:try-again"


async def test_a_request_head_that_is_too_long_is_refused() -> None:
    served = HttpRig()
    async with served.serving(), asyncio.timeout(60):
        reader, writer = await _connect(served)
        writer.write(b"GET /kv?" + b"x" * 20_000)
        answer = await read_answer(reader)
        writer.close()
    assert answer.status == 400


async def test_a_large_list_does_not_block_the_event_loop() -> None:
    log = Log()
    log.register(a_registration(topics={f"topic-{n * 7919 % 100_003}": RW for n in range(20_000)}))
    served = HttpRig()
    served.commit(log.output.changes, {0: 1})
    turns = 0
    async with served.serving(), asyncio.timeout(120):
        asked = asyncio.ensure_future(served.get("/topics"))
        while not asked.done():
            await asyncio.sleep(0)
            turns += 1
    assert asked.result().json()["count"] == 20_000
    assert turns > 20
