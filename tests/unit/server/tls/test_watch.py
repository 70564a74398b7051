"""Files of a certificate that change without new size and time, or cannot be read for a while."""

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from namesrv_stream.metrics import Counters
from namesrv_stream.server.tls import ServerTls
from namesrv_stream.server.tls.server_tls import SECURITY_EVENTS
from namesrv_stream.settings import TlsSettings
from tests.support.certificates import Authority, KeyPair
from tests.support.clocks import ManualClock
from tests.support.http_rig import eventually

_SIZE = 8_192


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@asynccontextmanager
async def watched(pair: KeyPair) -> AsyncIterator[ServerTls]:
    settings = TlsSettings(cert_file=str(pair.cert), key_file=str(pair.key), reload_interval_ms=10)
    tls = ServerTls(settings, Counters(), ManualClock())
    watch = asyncio.ensure_future(tls.watch())
    try:
        yield tls
    finally:
        watch.cancel()


def reloads(tls: ServerTls, result: str) -> int:
    return tls.counters.value(SECURITY_EVENTS, "tls_reload", result)


def _write(path: Path, text: bytes) -> None:
    """Write in place, with an unchanged size and time."""
    path.write_bytes(text.ljust(_SIZE, b"\n"))
    os.utime(path, ns=(10**18, 10**18))


@contextmanager
def no_more_files() -> Iterator[None]:
    """Make it impossible to open a file, without a change of the files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_change_with_unchanged_size_and_time_is_detected(authority: Authority) -> None:
    pair, renewed = authority.issue(), authority.issue("renewed")
    for path in pair:
        _write(path, path.read_bytes())
    async with watched(pair) as tls:
        _write(pair.cert, renewed.cert.read_bytes())
        _write(pair.key, renewed.key.read_bytes())
        await eventually(lambda: reloads(tls, "ok") == 1, "it is read")


async def test_files_that_could_not_be_read_are_read_when_this_is_possible_again(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.issue()
    async with watched(pair) as tls:
        authority.issue()
        with no_more_files():
            await eventually(lambda: reloads(tls, "failed") == 1, "it fails")
        await eventually(lambda: reloads(tls, "ok") == 1, "it is read")
    assert "Too many open files" in caplog.text


async def test_a_failure_is_reported_once_for_unchanged_files(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.issue()
    tls = ServerTls(TlsSettings(cert_file=str(pair.cert), key_file=str(pair.key)), Counters(), ManualClock())
    pair.key.write_text("no key")
    assert [await tls.reload() for _ in range(3)] == [False] * 3
    assert caplog.text.count("not reloaded") == reloads(tls, "failed") == 1
    pair.key.unlink()
    assert not await tls.reload()
    assert caplog.text.count("not reloaded") == 2


async def test_a_failure_is_reported_again_after_a_change_of_the_files(authority: Authority) -> None:
    pair = authority.issue()
    async with watched(pair) as tls:
        for number in (1, 2):
            pair.key.write_text("no key" + " " * number)
            await eventually(lambda number=number: reloads(tls, "failed") == number, "it is reported")  # type: ignore[misc]
