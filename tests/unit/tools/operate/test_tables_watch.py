"""Waiting until the tables have reached an offset."""

import threading
from pathlib import Path

from namesrv_stream.tools.operate.operator_events import TablesWatch
from tests.support.tables import TablesOfLog, settings_in


def test_the_watch_waits_for_a_commit_and_has_its_rows(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.change_settings(default_timeout_ms=60_000)
    tables.commit()
    with TablesWatch(tables.settings) as watch:
        assert watch.exists
        assert watch.wait({0: 0}, 0) == []
        tables.log.change_settings(default_timeout_ms=90_000)
        committing = threading.Thread(target=tables.commit)
        committing.start()
        assert watch.wait({0: 1}, 60) == []
        committing.join()
    assert watch.table.settings["effective", "default_timeout_ms"] == "90000"


def test_the_watch_names_the_partitions_that_are_behind(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.tick()
    tables.commit()
    with TablesWatch(tables.settings) as watch:
        assert watch.wait({0: 1, 3: 0}, 0.05) == [0, 3]


def test_the_watch_without_tables_reports_every_partition_as_behind(tmp_path: Path) -> None:
    with TablesWatch(settings_in(tmp_path)) as watch:
        assert not watch.exists
        assert watch.wait({0: 0}, 0) == [0]
