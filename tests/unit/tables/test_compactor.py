"""The compaction thread: its work when a batch has fold states, and when it ends the job."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.table_errors import TablesTakenOver
from namesrv_stream.tables.compaction import FILES_TO_JOIN, Compactor
from namesrv_stream.tables.route_writers import StateWriter
from namesrv_stream.tables.snapshot import read_newest_state
from tests.support.builders import a_registration
from tests.support.tables import TablesOfLog

_DEADLINE_S: Final = 30.0


def _wait_until(is_so: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + _DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def _started(tables: TablesOfLog) -> tuple[Compactor, list[NamesrvStreamError]]:
    refused: list[NamesrvStreamError] = []
    compactor = Compactor(tables.settings, tables.writer.table, StateWriter(tables.storage), refused.append)
    compactor.start()
    return compactor, refused


def test_fold_states_are_covered_and_small_files_are_joined(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    for number in range(FILES_TO_JOIN):
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
        tables.commit()
    compactor, refused = _started(tables)
    compactor.submit({0: tables.fold_state()})
    _wait_until(lambda: len(tables.writer.table.files()) == 1)
    assert read_newest_state(tables.storage).fold_states == {0: tables.fold_state()}
    assert refused == []


def test_a_table_that_another_job_has_written_ends_the_job(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    compactor, refused = _started(tables)
    tables.compact()
    tables.log.tick()
    tables.commit()
    compactor.submit({0: tables.fold_state()})
    _wait_until(lambda: refused)
    assert isinstance(refused[0], TablesTakenOver)
