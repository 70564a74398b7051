"""The fold starts from the newest state that the tables cover, and continues with the log."""

from pathlib import Path

import pytest

from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.route.digest import decode_group
from namesrv_stream.route.fold.state import decode_state
from namesrv_stream.route.fold.step import GroupDict
from namesrv_stream.streaming.route_table.fold_query import InitialState, StartPoint, find_start_point
from namesrv_stream.table_errors import LogTruncated, StateFromNewerVersion, StateMissing
from namesrv_stream.tables.route_writers import StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow
from namesrv_stream.tables.stored_changes import KeptStates
from tests.support.builders import Log, a_registration
from tests.support.tables import TOPIC_ID, TablesOfLog


def _extent(earliest: int, end: int) -> TopicExtent:
    return TopicExtent(TOPIC_ID, {0: earliest}, {0: end})


def _start(tables: TablesOfLog, extent: TopicExtent) -> StartPoint:
    return find_start_point(KeptStates(tables.storage), tables.new_writer().committed, {}, extent)


def _register(tables: TablesOfLog, number: int) -> None:
    tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
    tables.commit()


def _resumed(initial: InitialState, log: Log) -> Log:
    """Return a log that continues from a start, at the offset of its state."""
    [content] = [content for _, name, content in initial if name is None]
    resumed = Log()
    resumed.state = decode_state(content)
    resumed.groups = GroupDict({n: decode_group(c) for _, n, c in initial if n is not None})
    resumed.records = log.records[: resumed.state.next_offset]
    resumed.now_ms = log.now_ms
    return resumed


def test_fold_continues_from_route_state(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    for number in range(3):
        _register(tables, number)
    tables.compact()
    _register(tables, 3)
    start = _start(tables, _extent(2, 500))
    assert start.offsets == {0: 3}
    resumed = _resumed(start.initial_state, tables.log)
    resumed.append(tables.log.records[3].value)
    assert resumed.groups.groups == tables.log.groups.groups


def test_fold_of_an_empty_table_begins_where_the_log_begins(tmp_path: Path) -> None:
    assert _start(TablesOfLog(tmp_path), _extent(7, 500)) == StartPoint({0: 7}, [])


def test_a_state_that_is_ahead_of_route_changes_is_skipped_for_an_older_one(tmp_path: Path) -> None:
    """After a restore of ``route_changes``, a start from the newer state would never write the missing rows."""
    tables = TablesOfLog(tmp_path)
    _register(tables, 0)
    tables.compact()
    _register(tables, 1)
    _register(tables, 2)
    tables.compact()
    start = find_start_point(KeptStates(tables.storage), {0: 2}, {}, _extent(0, 500))
    assert start.offsets == {0: 1}


def test_without_a_state_the_whole_log_is_folded_again(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    _register(tables, 0)
    assert _start(tables, _extent(0, 500)) == StartPoint({0: 0}, [])


def test_truncated_log_without_a_state_is_refused(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    _register(tables, 0)
    with pytest.raises(
        StateMissing, match=r"begins at 1, route_changes reaches to 1, .*namesrv-stream rebuild"
    ) as refused:
        _start(tables, _extent(1, 500))
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(("earliest", "end", "extent"), [(3, 500, "begins at 3"), (0, 1, "ends at 1")])
def test_a_record_that_kafka_does_not_have_is_refused(tmp_path: Path, earliest: int, end: int, extent: str) -> None:
    tables = TablesOfLog(tmp_path)
    _register(tables, 0)
    _register(tables, 1)
    tables.compact()
    with pytest.raises(LogTruncated, match=f"offset 2 must be .* {extent}: .*rebuild --accept-loss") as refused:
        _start(tables, _extent(earliest, end))
    assert refused.value.exit_code == 2


def test_folded_records_that_kafka_has_removed_are_not_a_loss(tmp_path: Path) -> None:
    """``rebuild`` computes a state from the rows, so the error must not ask for ``--accept-loss``."""
    tables = TablesOfLog(tmp_path)
    _register(tables, 0)
    tables.compact()
    _register(tables, 1)
    with pytest.raises(StateMissing, match="namesrv-stream rebuild"):
        _start(tables, _extent(2, 500))
    with pytest.raises(LogTruncated, match="offset 2 must be folded next"):
        _start(tables, _extent(3, 500))


def test_a_state_of_a_newer_release_is_refused_with_a_remedy(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    _register(tables, 0)
    StateWriter(tables.storage).cover({0: FoldStateRow(1, 1, b'{"state_version":99}')})
    with pytest.raises(StateFromNewerVersion, match="namesrv-stream rebuild"):
        _start(tables, _extent(0, 500))


def test_a_start_is_refused_if_lost_route_changes_are_no_longer_in_kafka(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    _register(tables, 0)
    tables.compact()
    with pytest.raises(StateMissing):
        find_start_point(KeptStates(tables.storage), {0: 0}, {}, _extent(3, 500))


def test_rows_removed_by_retention_cannot_be_rebuilt_without_a_state(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    _register(tables, 0)
    with pytest.raises(StateMissing):
        find_start_point(KeptStates(tables.storage), {0: 1}, {0: 1}, _extent(0, 500))
