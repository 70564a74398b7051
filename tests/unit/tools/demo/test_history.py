"""Reading the audit trail from a Delta table."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from namesrv_stream.tables.change_rows import CHANGES_SCHEMA
from namesrv_stream.tools.demo.output import COLUMNS, History, cells, ends_of

AT_MS = 1_700_000_000_123


def a_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(CHANGES_SCHEMA.names)
    required = {"partition": 0, "offset": 1, "seq": 0, "at_ms": AT_MS, "kind": "broker_live", "gone": False}
    return {**row, **required, "cause": "registered", "batch_id": 0, "broker_name": "b", **changes}


def a_history(data_dir: Path, *rows: dict[str, Any]) -> History:
    path = data_dir / "tables" / "route_changes"
    write_deltalake(path, pa.Table.from_pylist(list(rows), schema=CHANGES_SCHEMA))
    return History(data_dir)


def test_missing_table_gives_no_rows(tmp_path: Path) -> None:
    assert History(tmp_path).brokers() == []


def test_rows_about_broker_processes_are_in_the_order_of_the_log(tmp_path: Path) -> None:
    rows = [a_row(offset=7, seq=1), a_row(offset=7, seq=0), a_row(offset=2), a_row(offset=1, kind="queue_data")]
    history = a_history(tmp_path, *rows)
    assert [(row["offset"], row["seq"]) for row in history.brokers()] == [(2, 0), (7, 0), (7, 1)]
    assert history.count() == 4


def test_the_ends_of_a_broker_are_its_rows_with_gone_set(tmp_path: Path) -> None:
    end = a_row(offset=3, gone=True, cause="expired")
    rows = a_history(tmp_path, a_row(), end, a_row(offset=4, broker_name="other", gone=True)).brokers()
    assert [row["cause"] for row in ends_of(rows, "b")] == ["expired"]


def test_row_is_shown_with_time_and_broker() -> None:
    shown = dict(zip(COLUMNS, cells(a_row(gone=True, cause="expired", detail="silent")), strict=True))
    assert shown == {
        "at": "22:13:20.123",
        "offset": "1",
        "kind": "broker_live gone",
        "cause": "expired",
        "broker_name": "b",
        "detail": "silent",
    }
