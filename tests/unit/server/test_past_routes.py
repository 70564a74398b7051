"""``GET /routes/{topic}?as_of=`` over a real socket."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, get_ident
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from namesrv_stream.clock import SystemClock
from namesrv_stream.server.http.routes_page import PastRoutes
from namesrv_stream.settings import Settings
from namesrv_stream.tables.layout import ROUTE_ARCHIVE
from namesrv_stream.tables.storage import Folder
from tests.support.builders import BEGIN_MS, Log, a_registration
from tests.support.history_tables import HistoryOfLogs
from tests.support.http_rig import HttpRig
from tests.support.tables import settings_in

_ASKERS: Final = ThreadPoolExecutor(40)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return settings with tables in which broker-a was registered for two minutes."""
    log = Log()
    log.register(a_registration())
    log.pass_time(130_000)
    tables = HistoryOfLogs(tmp_path_factory.mktemp("past"), log)
    tables.write_all()
    return tables.settings


@asynccontextmanager
async def _serving(settings: Settings) -> AsyncIterator[str]:
    async with HttpRig(settings, past_clock=SystemClock()).serving() as served:
        yield served.url


async def _get(url: str) -> tuple[int, Any]:
    def get() -> tuple[int, Any]:
        try:
            with urlopen(url, timeout=30) as response:
                return response.status, json.load(response)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    return await asyncio.get_running_loop().run_in_executor(_ASKERS, get)


async def test_a_past_route_is_returned_with_its_last_change(settings: Settings) -> None:
    async with _serving(settings) as url:
        status, found = await _get(f"{url}/routes/TopicTest?as_of={BEGIN_MS + 60_000}")
    assert status == 200
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}
    assert (found["asOf"], found["lastChange"]["cause"]) == (BEGIN_MS + 60_000, "registered")


@pytest.mark.parametrize(
    ("as_of", "status", "words"),
    [
        (str(BEGIN_MS - 1), 404, "is before the start of the history"),
        (str(BEGIN_MS + 129_000), 404, "the last change was: broker-a expired at"),
        ("soon", 400, "query: as_of: 'soon' is not a point in time"),
        ("2106-01-01", 400, "is in the future"),
        ("", 400, "is not a point in time"),
        (f"-{'9' * 400}d", 400, "is not a point in time"),
        ("2106-01-01\r\nx: y\x00", 400, "is not a point in time"),
    ],
)
async def test_a_missing_route_or_an_invalid_time_is_an_error_with_its_reason(
    settings: Settings, as_of: str, status: int, words: str
) -> None:
    async with _serving(settings) as url:
        found = await _get(f"{url}/routes/TopicTest?as_of={quote(as_of)}")
    assert found[0] == status
    assert words in found[1]["detail"]


@pytest.mark.parametrize("zone", ["+01:00", "%2B01:00"])
async def test_the_plus_sign_of_a_time_zone_may_be_unescaped(settings: Settings, zone: str) -> None:
    # BEGIN_MS is 2023-11-14 22:13:20 UTC.
    async with _serving(settings) as url:
        status, found = await _get(f"{url}/routes/TopicTest?as_of=2023-11-14T23:14:20{zone}")
    assert (status, found["asOf"]) == (200, BEGIN_MS + 60_000)


async def test_without_a_history_the_answer_names_the_missing_table(tmp_path: Path) -> None:
    async with _serving(settings_in(tmp_path)) as url:
        status, found = await _get(f"{url}/routes/TopicTest?as_of=-1h")
    assert status == 404
    assert "there is no table route_archive" in found["detail"]


class StuckTables:
    """Tables whose log blocks every reader until ``release``.

    Attributes:
        is_asked: Set when a reader is blocked.
    """

    def __init__(self, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = settings_in(data_dir)
        self._table = self.settings.data.tables_dir / ROUTE_ARCHIVE
        log_dir = self._table / "_delta_log"
        log_dir.mkdir(parents=True)
        (log_dir / f"{0:020}.json").write_text('{"commitInfo":{}}\n')
        self.is_asked = Event()
        self._is_released = Event()
        read = Folder.read

        def stuck(folder: Folder, name: str) -> bytes:
            self.is_asked.set()
            self._is_released.wait(60)
            return read(folder, name)

        monkeypatch.setattr(Folder, "read", stuck)

    def release(self) -> None:
        """Remove the table and unblock all readers."""
        shutil.rmtree(self._table)
        self._is_released.set()


async def test_a_slow_query_of_a_past_route_does_not_delay_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = StuckTables(tmp_path, monkeypatch)
    async with _serving(tables.settings) as url:
        asked = asyncio.ensure_future(_get(f"{url}/routes/TopicTest?as_of=-1h"))
        assert await asyncio.to_thread(tables.is_asked.wait, 30)
        assert (await _get(f"{url}/healthz"))[0] == 200
        assert not asked.done()
        tables.release()
        assert (await asked)[0] == 404


async def test_the_answer_with_a_past_route_is_made_in_another_thread(settings: Settings) -> None:
    past = PastRoutes(settings, SystemClock())
    found = await past.ask("TopicTest", str(BEGIN_MS + 60_000), lambda answer: (answer.notes(), get_ident()))
    assert found[1] != get_ident()


async def test_queries_of_past_routes_are_refused_if_too_many_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = StuckTables(tmp_path, monkeypatch)
    async with _serving(tables.settings) as url:
        asked = [asyncio.ensure_future(_get(f"{url}/routes/TopicTest?as_of=-1h")) for _ in range(40)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert {question.result()[0] for question in done} == {503}
        tables.release()
        assert {status for status, _ in await asyncio.gather(*asked)} == {404, 503}
