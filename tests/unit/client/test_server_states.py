"""Queries over HTTP end in time, whatever the server sends, and say why there is no answer."""

import pytest

from namesrv_stream.client.server_states import BadAnswer, ServerUnreachable, fetch
from tests.support.processes import free_port
from tests.support.slow_peer import slow_peer


@pytest.mark.parametrize(
    ("scheme", "begin"),
    [
        ("http", b"HTTP/1.1 200 OK\r\nX-Slow: "),
        ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"),
        ("https", b"\x16\x03\x03\x40\x00"),  # the begin of a long TLS record
    ],
)
def test_a_server_that_sends_byte_by_byte_does_not_hold_its_client(scheme: str, begin: bytes) -> None:
    with slow_peer(begin, b" ") as port, pytest.raises(ServerUnreachable, match="timed out"):
        fetch(f"{scheme}://127.0.0.1:{port}", "/state", timeout_s=0.1)


def test_the_size_of_an_answer_is_limited() -> None:
    with slow_peer(b"HTTP/1.1 200 OK\r\n\r\n", b"a") as port, pytest.raises(BadAnswer, match="more than 2 bytes"):
        fetch(f"http://127.0.0.1:{port}", "/state", most_bytes=2)


def test_a_refused_a_closed_and_a_garbled_connection_are_told_apart() -> None:
    with pytest.raises(ServerUnreachable, match="connection refused"):
        fetch(f"http://localhost:{free_port()}", "/state")
    with slow_peer(b"", b"", 1) as port, pytest.raises(ServerUnreachable, match="disconnected"):
        fetch(f"http://127.0.0.1:{port}", "/state")
    with slow_peer(b"SSH-2.0\r\n", b"\r\n") as port, pytest.raises(BadAnswer, match="not HTTP"):
        fetch(f"http://127.0.0.1:{port}", "/state")
