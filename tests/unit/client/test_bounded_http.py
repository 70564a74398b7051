"""Requests over HTTP end in time, whatever the peer or the network does, and do not follow redirects."""

import socket
import urllib.request

import pytest

from namesrv_stream.client.bounded_http import answer_to
from namesrv_stream.client.server_states import ServerUnreachable, fetch
from tests.support.slow_peer import slow_peer
from tests.support.webhook_receiver import Receiver


@pytest.mark.parametrize("header", [b"X-Slow: ", b"Content-Length: 100000\r\n\r\n"])
def test_a_server_that_sends_byte_by_byte_does_not_hold_its_client(header: bytes) -> None:
    with slow_peer(b"HTTP/1.1 200 OK\r\n" + header, b" ") as port, pytest.raises(ServerUnreachable, match="complete"):
        fetch(f"http://127.0.0.1:{port}", "/state", timeout_s=0.1)


def test_the_addresses_of_a_host_share_the_time_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, tried = 100.0, []

    def connect(_address: object, timeout_s: float) -> socket.socket:
        nonlocal now_s
        tried.append(timeout_s)
        now_s += timeout_s
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("192.0.2.1", 80))] * 4)
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    request = urllib.request.Request("http://receiver.invalid/")
    with (
        pytest.raises(OSError, match="timed out"),
        answer_to(request, urllib.request.ProxyHandler({}), timeout_s=20.0, total_s=50.0),
    ):
        pass
    assert tried == [20.0, 20.0, 10.0, 0.001]


def test_redirects_are_answers() -> None:
    with Receiver() as receiver:
        receiver.statuses = [302]
        request = urllib.request.Request(receiver.url, b"{}", method="POST")
        with answer_to(request, timeout_s=10.0, total_s=10.0) as answer:
            assert answer.status == 302
    assert len(receiver.reports) == 1
