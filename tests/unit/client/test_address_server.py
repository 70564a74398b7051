"""Reading the list of name servers from an address server."""

import pytest

from namesrv_stream.client import AddressServerUnreachable
from namesrv_stream.client.name_servers import fetch_name_servers, is_address_server
from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import choose_port
from tests.support.scripted_name_server import an_address_server


@pytest.mark.parametrize("body", ["a:9876;b:9876", "\r\n a:9876;b:9876 \nmore", "a:9876;b:9876\n"])
async def test_the_first_line_is_the_list(body: str) -> None:
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{body}".encode()
    async with an_address_server(answer) as (url, requests):
        assert await fetch_name_servers(f"{url}-unit?nofix=1") == ("a:9876", "b:9876")
    assert requests[0].startswith(b"GET /rocketmq/nsaddr-unit?nofix=1 HTTP/1.0\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "answered 'HTTP/1.1 404 Not Found'"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "its first line is not a list"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "its first line is not a list"),
        (b"", "answered ''"),
        (b"\x00\x00\x00\x10garbage", "answered"),
        (b"x" * 1_000_000, "answered"),
        (None, "no answer within 50 ms"),
    ],
)
async def test_invalid_list_is_reported_in_one_line(answer: bytes | None, words: str) -> None:
    async with an_address_server(answer) as (url, _):
        with pytest.raises(AddressServerUnreachable) as caught:
            await fetch_name_servers(url, 50 if answer is None else 5_000)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


async def test_unreachable_address_server_is_reported() -> None:
    with pytest.raises(AddressServerUnreachable, match=r"\(connection refused\)"):
        await fetch_name_servers(f"http://127.0.0.1:{choose_port('127.0.0.1')}/rocketmq/nsaddr")


@pytest.mark.parametrize(
    "url", ["http://", "http:///x", "http://h:x/", "http://h:99999/", "http://h/a b", "http://[::1"]
)
async def test_invalid_address_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError):
        await fetch_name_servers(url)


@pytest.mark.parametrize(
    ("text", "is_one"), [("http://h/x", True), (" HTTPS://h", True), ("h:80", False), ("http:9876", False)]
)
def test_list_is_distinguished_from_an_address_server(text: str, is_one: bool) -> None:
    assert is_address_server(text) is is_one
