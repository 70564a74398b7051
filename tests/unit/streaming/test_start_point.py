"""Where the fold goes on."""

import json
from pathlib import Path

import pytest

from namesrv_stream.errors import LogTruncated
from namesrv_stream.streaming.start_point import checkpoint_offsets, find_start_point
from namesrv_stream.streaming.topic import TopicExtent
from tests.support.builders import a_registration
from tests.support.tables import TOPIC_ID, TablesOfLog


def _extent(earliest: int, end: int) -> TopicExtent:
    return TopicExtent(TOPIC_ID, {0: earliest}, {0: end})


def _checkpoint(tables: TablesOfLog, *, batches: int, committed: int) -> Path:
    """As Spark writes it: batch n ends at offset 10 (n + 1)."""
    folder = tables.settings.data.checkpoint_dir
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    topic = tables.settings.kafka.broker_events_topic
    for batch in range(batches):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({topic: {"0": 10 * (batch + 1)}})]
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))
    for batch in range(committed):
        (folder / "commits" / str(batch)).write_text("v1\n{}")
        (folder / "commits" / f".{batch}.crc").write_text("")
    return folder


def test_a_checkpoint_goes_on_after_its_last_whole_batch(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    folder = _checkpoint(tables, batches=12, committed=11)
    assert checkpoint_offsets(folder, tables.settings.kafka.broker_events_topic) == {0: 110}
    start = find_start_point(tables.settings, _extent(0, 500), True)
    assert (start.origin, start.offsets, start.initial_state) == ("checkpoint", {0: 110}, [])


def test_a_checkpoint_whose_tables_are_gone_is_removed(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    folder = _checkpoint(tables, batches=3, committed=3)
    start = find_start_point(tables.settings, _extent(0, 500), False)
    assert (start.origin, start.offsets) == ("log", {0: 0})
    assert not folder.exists()


def test_a_checkpoint_without_a_whole_batch_is_removed(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    folder = _checkpoint(tables, batches=1, committed=0)
    assert find_start_point(tables.settings, _extent(0, 500), True).origin == "log"
    assert not folder.exists()


def test_without_a_checkpoint_it_goes_on_from_route_state(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    tables.compact()
    start = find_start_point(tables.settings, _extent(0, 500), True)
    assert (start.origin, start.offsets) == ("route_state", {0: 1})
    assert {name for _, name, _ in start.initial_state} == {None, "broker-a"}


def test_an_empty_table_begins_where_the_log_begins(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    assert find_start_point(tables.settings, _extent(40, 50), False).offsets == {0: 40}


def test_a_record_that_kafka_no_longer_has_is_refused(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    _checkpoint(tables, batches=1, committed=1)
    with pytest.raises(LogTruncated) as refused:
        find_start_point(tables.settings, _extent(11, 50), True)
    assert (refused.value.partition, refused.value.wanted, refused.value.earliest) == (0, 10, 11)


def test_rows_without_state_need_the_whole_log(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    with pytest.raises(LogTruncated):
        find_start_point(tables.settings, _extent(1, 50), True)
