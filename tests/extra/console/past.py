"""A console with prepared history tables, so that no test has to wait for minutes."""

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from namesrv_stream.clock import SystemClock
from namesrv_stream.route.model import DataVersion
from tests.support.builders import READ_ONLY, RW, Log, a_registration
from tests.support.history_tables import HistoryOfLogs
from tests.support.http_rig import HttpRig

_SPAN_MS = 600_000
_HEARTBEAT_MS = 15_000


class PastConsole:
    """An HTTP port with its own thread; a context manager.

    Attributes:
        url: URL of the console.
        data_dir: Data directory with the tables.
        before: An instant at which the topic ``T`` had another route, as ``as_of`` takes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = Log(begin_ms=SystemClock().now_ms() - _SPAN_MS - 130_000)
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="past-console")
        self.url = self.before = ""
        self.data_dir = folder

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(60), "the console did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tables = self._log_events()
        self.data_dir = tables.settings.data.dir
        rig = HttpRig(tables.settings, past_clock=SystemClock())
        rig.rig.clock.advance(self._log.now_ms - rig.rig.clock.now_ms())
        rig.commit(self._log.output.changes, tables.ends())
        rig.rig.talk()
        self.url = rig.url
        async with rig.serving():
            self._is_up.set()
            await self._stop.wait()

    def _log_events(self) -> HistoryOfLogs:
        """Log five brokers with heartbeats every 15 s: one is silent for 60 s, one leaves, one becomes read-only."""
        log, names = self._log, [f"broker-{n}" for n in range(5)]
        brokers = [
            a_registration(f"10.0.0.{n}:1", broker_name=name, topics={"T": RW, "U": RW}) for n, name in enumerate(names)
        ]
        for broker in brokers:
            log.register(broker)
        for round_ in range(_SPAN_MS // _HEARTBEAT_MS):
            log.tick(after_ms=_HEARTBEAT_MS)
            for n, broker in enumerate(brokers):
                if not (n == 2 and 10 <= round_ < 13):
                    log.beat(broker)
        self.before = str(log.now_ms - 1)
        log.disconnect(brokers[4])
        version = DataVersion(2, 2_000, 0)
        log.register(
            a_registration("10.0.0.0:1", broker_name="broker-0", topics={"T": READ_ONLY, "U": RW}, data_version=version)
        )
        log.tick(after_ms=61_000)
        tables = HistoryOfLogs(self._folder, log)
        tables.write_all()
        return tables
