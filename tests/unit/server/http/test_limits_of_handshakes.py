"""The limits of the HTTP port apply to peers that have not finished their TLS handshake."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from namesrv_stream.settings import TlsSettings
from tests.support.certificates import Authority
from tests.support.http_rig import HttpRig, eventually, http_settings


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def _rig(authority: Authority, **http: object) -> HttpRig:
    cert, key = authority.issue()
    settings = http_settings(**http)
    return HttpRig(
        settings.model_copy(
            update={
                "tls": TlsSettings(cert_file=str(cert), key_file=str(key)),
                "http": settings.http.model_copy(update={"tls": True}),
            }
        )
    )


async def _events(rig: HttpRig) -> list[str]:
    text = (await rig.figures.text()).decode()
    return [
        line.partition("{")[2]
        for line in text.splitlines()
        if "http_events_total{" in line and not line.endswith(" 0.0")
    ]


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_address"])
async def test_connections_during_the_handshake_count_towards_the_limits(authority: Authority, limit: str) -> None:
    async with _rig(authority, **{limit: 2}).serving() as rig, asyncio.timeout(60):
        host, _, port = rig.http.address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        await eventually(lambda: rig.figures.http.connections() == 2, "they are counted")
        _, writer = await asyncio.open_connection(host, int(port), ssl=authority.client_context())
        with suppress(ConnectionError):
            assert await silent[0][0].read() == b"", "it has waited longest"
        assert await _events(rig) == ['event="connection_refused"} 1.0']
        for each in (*(other for _, other in silent), writer):
            each.close()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_a_handshake_has_the_timeout_of_a_request(authority: Authority, sent: bytes) -> None:
    async with _rig(authority, request_timeout_ms=50).serving() as rig, asyncio.timeout(60):
        host, _, port = rig.http.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()
        assert await _events(rig) == ['event="request_late"} 1.0']


async def test_a_stopping_server_closes_connections_during_the_handshake(authority: Authority) -> None:
    async with asyncio.timeout(60):
        async with _rig(authority).serving() as rig:
            host, _, port = rig.http.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            await eventually(lambda: rig.figures.http.connections() == 1, "it is there")
        assert await reader.read() == b""
        writer.close()
