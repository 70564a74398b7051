"""The limits of the HTTP port protect it from single peers."""

import asyncio
import re
import socket
from contextlib import ExitStack

import pytest

from namesrv_stream.client.server_states import ServerState
from namesrv_stream.server.http import protocol
from tests.support.builders import RW, Log, a_registration
from tests.support.http_rig import HttpRig, eventually, http_settings, read_answer, read_head


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


async def test_a_connection_beyond_the_limit_takes_the_place_of_the_one_that_has_waited_longest() -> None:
    served = HttpRig(http_settings(max_connections=2))
    async with served.serving(), asyncio.timeout(60):
        connections = [await _connect(served) for _ in range(3)]
        assert await _is_closed(connections[0][0])
        for _, writer in connections:
            writer.close()
        await eventually(lambda: not served.figures.http.connections(), "all connections are closed")
        assert await _event_count(served, "connection_refused")


async def test_a_connection_beyond_the_limit_is_closed_if_all_others_are_being_answered() -> None:
    served = HttpRig(http_settings(max_connections=2))
    async with served.serving(), asyncio.timeout(60):
        followers = [await _connect(served) for _ in range(2)]
        for _, writer in followers:
            writer.write(b"GET /changes HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        await eventually(lambda: served.figures.http.streams == 2, "both follow the changes")
        further = await _connect(served)
        assert await _is_closed(further[0])
        assert served.figures.http.streams == 2
        for _, writer in (*followers, further):
            writer.close()


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


_VITAL = ["/healthz", "/readyz", "/metrics", "/rocketmq/nsaddr", "/rocketmq/", "/rocketmq/nsaddr-hz?nofix=1"]


async def test_requests_beyond_the_limit_are_answered_503_with_retry_after_but_vital_ones_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = HttpRig(http_settings(max_requests=1))
    continues = asyncio.Event()
    describe = served.state.describe

    async def wait() -> ServerState:
        await continues.wait()
        return await describe()

    monkeypatch.setattr(served.state, "describe", wait)
    async with served.serving(), asyncio.timeout(60):
        slow = asyncio.ensure_future(served.get("/state"))
        await eventually(lambda: served.figures.http.inflight == 1, "the request has arrived")
        refused = await served.get("/kv")
        vital = [(await served.get(path)).status for path in _VITAL]
        continues.set()
        answered = await slow
    assert (refused.status, refused.headers["retry-after"], answered.status) == (503, "1", 200)
    assert refused.json()["type"] == "urn:namesrv-stream:problem:try-again"
    assert {status for path, status in zip(_VITAL, vital, strict=True) if path != "/readyz"} == {200}


async def test_vital_requests_are_answered_while_all_others_wait_for_readers_that_do_not_read() -> None:
    served = HttpRig(http_settings(max_requests=4, max_connections_per_address=8))
    served.rig.talk()
    log = Log()
    log.register(a_registration(topics={f"{'t' * 220}{n}": RW for n in range(30_000)}))
    served.commit(log.output.changes, {0: 1})
    host, _, port = served.http.address.rpartition(":")
    async with served.serving(), asyncio.timeout(120):
        with ExitStack() as peers:
            for _ in range(8):
                peer = peers.enter_context(socket.socket())
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                peer.connect((host, int(port)))
                peer.sendall(b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await eventually(lambda: served.figures.http.inflight == 4, "the limit is reached")
            assert (await served.get("/topics")).status == 503
            assert [(await served.get(path)).status for path in _VITAL] == [200] * len(_VITAL)


async def test_unread_answers_are_limited_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_UNREAD_BYTES", 1 << 20)
    served, log = HttpRig(), Log()
    log.register(a_registration(topics={f"{'t' * 220}{n}": RW for n in range(30_000)}))
    served.commit(log.output.changes, {0: 1})
    host, _, port = served.http.address.rpartition(":")
    async with served.serving(), asyncio.timeout(120):
        with ExitStack() as peers:
            for _ in range(12):
                peer = peers.enter_context(socket.socket())
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                peer.connect((host, int(port)))
                peer.sendall(b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            count = served.rig.core.services.counters.value
            await eventually(lambda: count("rocketmq_namesrv_http_events_total", "unread") > 0, "some are given up")
            assert not await _event_count(served, "slow_reader")
        assert (await served.get("/topics")).json()["count"] == 30_000, "who reads gets the whole answer"


_LONG = [
    b"GET /kv?" + b"x" * 20_000,
    b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /kv HTTP/1.1\r\nHost: localhost\r\n" + b"a:b\r\n" * 300 + b"\r\n",
]


@pytest.mark.parametrize("head", _LONG, ids=["incomplete", "path", "lines"])
async def test_a_request_head_that_is_too_long_is_refused(head: bytes) -> None:
    served = HttpRig()
    async with served.serving(), asyncio.timeout(60):
        reader, writer = await _connect(served)
        writer.write(head)
        answer = await read_answer(reader)
        writer.close()
    assert (answer.status, answer.json()["detail"]) == (
        400,
        "this is not an HTTP request, or its head has more than 16 KiB or 200 lines",
    )


async def test_requests_that_are_sent_before_the_answer_to_an_earlier_one_are_answered_in_order() -> None:
    served = HttpRig()
    async with served.serving(), asyncio.timeout(60):
        paths = ["/kv", "/nowhere", "/clusters"] * 20
        requests = [f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths]
        last = b"GET /kv HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answers = await served.send_raw(b"".join(requests) + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"404", b"200"] * 20 + [b"200"]


async def test_a_peer_that_sends_too_much_before_an_answer_is_closed() -> None:
    served = HttpRig()
    async with served.serving(), asyncio.timeout(60):
        reader, writer = await _connect(served)
        writer.write(b"GET /kv HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)
        assert (await reader.read()).count(b"HTTP/1.1 200") < 1_000
        writer.close()
        assert await _event_count(served, "request_broken")


async def test_a_body_is_refused_whatever_its_size_and_form() -> None:
    served = HttpRig()
    chunks = b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 30_000
    async with served.serving(), asyncio.timeout(60):
        for rest in (b"Content-Length: 300000\r\n\r\n" + b"x" * 300_000, chunks):
            reader, writer = await _connect(served)
            writer.write(b"GET /kv HTTP/1.1\r\nHost: localhost\r\n" + rest)
            status, _ = await read_head(reader)
            assert status == 413
            writer.close()


async def test_a_query_with_too_many_parameters_is_refused() -> None:
    served = HttpRig()
    async with served.serving(), asyncio.timeout(60):
        for path in ("/topics", "/rocketmq/nsaddr"):
            assert (await served.get(f"{path}?{'a&' * 1_000}")).status == 400


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
