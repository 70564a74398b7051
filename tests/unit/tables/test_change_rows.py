"""Rows are converted to columns and back without loss."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.route.changes import RouteChange, diff
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.tables.change_rows import (
    QUEUE_DATA_SCHEMA,
    ROW_SCHEMA,
    as_read,
    changes_from_ipc,
    changes_to_ipc,
    decode_changes,
    decode_queue_data,
    encode_changes,
    in_log_order,
)
from tests.support.strategies_route import groups

_NAMES = st.sampled_from(["a", "b", "", None])


def _rows_of(group: BrokerGroup) -> list[RouteChange]:
    differences = enumerate(diff(BrokerGroup(group.broker_name), group))
    return [RouteChange(0, 5, n, 1, d.kind, d.gone, "registered", **d.columns) for n, d in differences]


@given(groups())
def test_rows_of_any_group_survive_the_tables(group: BrokerGroup) -> None:
    rows = _rows_of(group)
    assert decode_changes(encode_changes(rows)) == rows
    assert decode_changes(changes_from_ipc(changes_to_ipc(rows))) == rows


def test_empty_list_of_rows_is_read_back() -> None:
    assert decode_changes(changes_from_ipc(changes_to_ipc([]))) == []


def test_many_rows_are_encoded_compactly_and_read_back() -> None:
    # A storm of registrations is a million rows in one batch: 250 MB, more than the driver's JVM can hold twice.
    one = RouteChange(0, 7, 0, 1_800_000_000_000, "queue", False, "registered", broker_name="broker-a")
    rows = [one._replace(seq=n, topic=f"orders-{n}") for n in range(20_000)]
    ipc = changes_to_ipc(rows)
    assert len(ipc) <= 50 * len(rows)
    assert decode_changes(changes_from_ipc(ipc)) == rows


@given(st.lists(st.tuples(_NAMES, _NAMES, st.integers(0, 2), st.integers(0, 1), st.booleans())), st.booleans())
def test_last_row_of_a_topic_has_the_offer_of_a_broker_name(rows: list[Any], is_in_parts: bool) -> None:
    changes = [
        RouteChange(
            *(0, 0, seq, 0, "queue_data", gone, ""), broker_name=name, topic=topic, read_queue_nums=nums, perm=perm
        )
        for seq, (name, topic, nums, perm, gone) in enumerate(rows)
    ]
    parts = [changes[:2], changes[2:]] if is_in_parts else [changes]
    columns = pa.Table.from_batches([encode_changes(part) for part in parts])
    expected: dict[str, dict[str, object]] = {}
    for name, topic, nums, perm, gone in rows:
        expected.setdefault(name or "", {})[topic or ""] = None if gone else (nums, 0, perm, 0)
    assert decode_queue_data(columns.select(QUEUE_DATA_SCHEMA.names).cast(QUEUE_DATA_SCHEMA)) == expected


@given(groups())
def test_columns_with_the_types_of_a_read_table_are_decoded_to_the_same_rows(group: BrokerGroup) -> None:
    rows = _rows_of(group)
    assert decode_changes(pa.Table.from_batches([encode_changes(rows)]).cast(as_read(ROW_SCHEMA))) == rows


def test_columns_that_only_the_table_has_are_ignored_when_rows_are_decoded() -> None:
    row = RouteChange(0, 1, 0, 5, "kv", False, "kv_put", namespace="n", key="k", value="v")
    table = pa.Table.from_batches([encode_changes([row])]).append_column("batch_id", pa.array([7]))
    assert decode_changes(table) == [row]


@given(st.permutations([(0, 1, 0), (0, 1, 1), (0, 2, 0), (1, 0, 0), (1, 0, 1)]))
def test_log_order_is_partition_then_offset_then_seq(order: list[tuple[int, int, int]]) -> None:
    rows = [RouteChange(p, o, s, 0, "kv", False, "kv_put") for p, o, s in order]
    found = decode_changes(in_log_order(pa.Table.from_batches([encode_changes(rows)])))
    assert [(r.partition, r.offset, r.seq) for r in found] == sorted(order)
