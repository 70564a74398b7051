"""What the history goes on with where changes were removed before it had them."""

import polars as pl
import pyarrow as pa
import pytest

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.streaming.history.lost_changes import StateTime, rows_to_catch_up
from namesrv_stream.tables.schema.columns import ROW_SCHEMA
from namesrv_stream.tables.schema.rows import encode_changes

_KNOWN, _STATE = {0: 100}, {0: StateTime(200, 5_000)}
_CONTENT = ("broker_addrs", "clusters", "read_queue_nums")


def _row(offset: int, topic: str = "t", queues: int = 8, partition: int = 0) -> RouteChange:
    return RouteChange(
        *(partition, offset, 0, offset * 10, ChangeKind.QUEUE_DATA, False, Cause.REGISTERED),
        broker_name="b",
        topic=topic,
        read_queue_nums=queues,
    )


def _of_broker(offset: int, *addrs: tuple[int, str]) -> RouteChange:
    place = (0, offset, 0, offset * 10, ChangeKind.BROKER_DATA, False, Cause.REGISTERED)
    return RouteChange(*place, broker_name="b", broker_addrs=addrs, clusters=("c",))


def _table(*rows: RouteChange) -> pa.Table:
    return pa.Table.from_batches([encode_changes(rows)]).select(ROW_SCHEMA.names).cast(ROW_SCHEMA)


def _caught_up(had: list[RouteChange], live: list[RouteChange]) -> list[tuple[object, ...]]:
    lasting = pl.DataFrame(_table(*had)).to_arrow()  # as read from the table
    found = rows_to_catch_up(lasting, _table(*live), _CONTENT, _KNOWN, _STATE).to_pylist()
    names = ("offset", "seq", "at_ms", "kind", "topic", "gone", "cause", "read_queue_nums")
    return [tuple(row[name] for name in names) for row in found]


def test_what_is_as_it_was_goes_on() -> None:
    assert (
        _caught_up([_row(50), _of_broker(51, (0, "a"), (1, "b"))], [_of_broker(51, (1, "b"), (0, "a")), _row(50)]) == []
    )


def test_a_row_of_the_lost_part_begins_at_its_own_time() -> None:
    assert _caught_up([_row(50)], [_row(150, queues=4)]) == [(150, 0, 1_500, "queue_data", "t", False, "registered", 4)]


def test_a_row_that_differs_but_is_older_begins_at_the_time_of_the_state() -> None:
    found = _caught_up([_row(50)], [_row(60, queues=4)])
    assert found == [(200, -1, 5_000, "queue_data", "t", False, "state_rebuilt", 4)]


def test_what_the_state_does_not_have_is_gone_at_its_time() -> None:
    found = _caught_up([_row(50, "a"), _row(51, "b")], [])
    assert found == [(200, -n, 5_000, "queue_data", t, True, "state_rebuilt", None) for n, t in ((1, "a"), (2, "b"))]


@pytest.mark.parametrize("live", [[], [_row(150, partition=1)]])
def test_partitions_that_nothing_was_lost_of_are_left_alone(live: list[RouteChange]) -> None:
    assert _caught_up([_row(50, partition=1)], live) == []
