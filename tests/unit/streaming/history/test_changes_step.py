"""The next step of a table made from ``route_changes``."""

from pathlib import Path

import pyarrow as pa

from namesrv_stream.settings import Flag, load_settings
from namesrv_stream.streaming.history.changes_step import next_step
from namesrv_stream.tables.changes_source import ChangesSource
from namesrv_stream.tables.changes_writer import ChangesWriter
from namesrv_stream.tables.history_mark import HistoryMark
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.schema.history_columns import ROUTE_HISTORY
from namesrv_stream.tables.schema.rows import encode_changes
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import Log, a_registration
from tests.support.history_life import names_of

_TOPIC_ID = "t-opic"
_RECORDS = 6


def _source(tmp_path: Path) -> ChangesSource:
    """Two partitions, six records each."""
    values = {"data.dir": tmp_path, "kafka.partitions": 2}
    settings = load_settings(
        environ={}, flags=[Flag("test", key, str(value)) for key, value in values.items()]
    ).settings
    prepare_tables(settings, _TOPIC_ID)
    logs = [Log(partition=partition, partitions=2) for partition in range(2)]
    for partition, log in enumerate(logs):
        (name,) = names_of(partition, 2, 1)
        for number in range(_RECORDS):
            log.register(a_registration(f"10.0.0.{number}:10911", broker_name=name), after_ms=1_000)
    rows = pa.Table.from_batches([encode_changes([c for log in logs for c in log.output.changes])])
    writer = ChangesWriter(tables_of(settings), 0)
    writer.write(rows, {p: log.place() for p, log in enumerate(logs)}, 0)
    source = ChangesSource.open(tables_of(settings))
    assert source is not None
    return source


def test_a_step_never_takes_a_table_back_behind_where_it_has_caught_up_to(tmp_path: Path) -> None:
    source = _source(tmp_path)
    begin = {0: 9, 1: 2}  # partition 0 went on from a route_state newer than this version of route_changes
    mark = HistoryMark(_TOPIC_ID, source.changes_id, begin, {0: 1 << 50})
    for limit in (1, 1_000_000):
        step = next_step(ROUTE_HISTORY, mark, source, begin, source.committed, limit)
        assert step.mark.next_offsets == step.end
        assert step.end[0] == 9
        assert step.mark.at_ms[0] == 1 << 50
        assert set(step.changes["partition"].to_pylist()) == {1}
    assert step.end == {0: 9, 1: _RECORDS}
