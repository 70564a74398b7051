"""The history tables contain exactly what the log says, whatever the batches were and whichever process was killed."""

import polars
import pyarrow as pa
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.tables.change_rows import in_log_order
from namesrv_stream.tables.layout import (
    BROKER_EVENTS,
    HEARTBEAT_MINUTES,
    HISTORY_PROTOCOL,
    HISTORY_SCHEMAS,
)
from tests.support.analytics.document import POLARS, SPARK, connect_as_documented
from tests.support.history_oracle import instant, intervals, minutes, sessions
from tests.support.history_rig import HistoryRig, WrittenHistory
from tests.support.history_views import BROKER_SESSIONS, ROUTE_HISTORY, TOPIC_ROUTE_HISTORY, change_of

pytestmark = [pytest.mark.spark]

_HOUR_MS = 3_600_000
_TABLES = tuple(HISTORY_SCHEMAS)


@pytest.fixture
def rig(written_history: WrittenHistory) -> HistoryRig:
    return written_history.rig


def test_broker_events_has_every_record_once_and_unchanged(rig: HistoryRig, written_history: WrittenHistory) -> None:
    found = sorted(rig.rows(BROKER_EVENTS), key=lambda r: (r["partition"], r["offset"]))
    records = [r for log in written_history.read_logs for r in log.records]
    assert [(r["partition"], r["offset"], r["at"]) for r in found] == [
        (r.partition, r.offset, instant(r.at_ms)) for r in records
    ]
    assert [r["raw"] if r["value"] is None else r["value"].encode() for r in found] == [r.value for r in records]
    assert all(r["event_day"] == r["at"].date() for r in found)


def test_fields_of_an_event_are_in_columns(rig: HistoryRig) -> None:
    rows = rig.rows(BROKER_EVENTS)
    registered = next(r for r in rows if r["kind"] == "broker_registered" and r["timeout_ms"] == 5_000)
    assert registered["cluster"] == "c0"
    assert registered["broker_addr"] == f"10.0.0.{registered['broker_id']}:10911"
    assert {r["items"] for r in rows if r["kind"] == "broker_heartbeats"} >= {1, 2, 3}
    assert {r["kind"] for r in rows if r["value"] in (None, "", "{}", "[1]")} == {None}


def test_route_history_has_the_intervals_of_the_fold(rig: HistoryRig) -> None:
    expected = intervals(c for log in rig.logs for c in log.output.changes)
    found = rig.rows(ROUTE_HISTORY)
    assert [(change_of(r), r["valid_to"]) for r in found] == [
        (change, None if end is None else instant(end)) for change, end in expected
    ]
    assert {r["kind"] for r in found} >= {ChangeKind.QUEUE_DATA, ChangeKind.KV, ChangeKind.SETTING, ChangeKind.HOLDER}


def test_topic_route_history_is_the_queue_data_of_route_history(rig: HistoryRig) -> None:
    expected = [r for r in rig.rows(ROUTE_HISTORY) if r["kind"] == ChangeKind.QUEUE_DATA]
    found = rig.rows(TOPIC_ROUTE_HISTORY)
    assert found == [{name: r[name] for name in found[0]} for r in expected]


def test_broker_sessions_are_those_of_the_log(rig: HistoryRig) -> None:
    expected = [session for log in rig.logs for session in sessions(log)]
    assert rig.rows(BROKER_SESSIONS) == expected
    assert {s["down_cause"] for s in expected} >= {None, "expired", "unregistered"}


def test_heartbeat_minutes_are_those_of_the_log(rig: HistoryRig, written_history: WrittenHistory) -> None:
    expected = [row for log in written_history.read_logs for row in minutes(log, _HOUR_MS)]
    found = sorted(
        rig.rows(HEARTBEAT_MINUTES),
        key=lambda r: (r["partition"], r["cluster"], r["broker_name"], r["broker_addr"], r["server_id"], r["minute"]),
    )
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        gaps = wanted.pop("gaps")
        quantiles = [row.pop(name) for name in ("gap_p50_ms", "gap_p99_ms", "gap_max_ms")]
        assert row == wanted
        if gaps is not None:
            ordered = sorted(gaps)
            assert quantiles == ([ordered[(len(ordered) - 1) // 2], ordered[-1], ordered[-1]] if gaps else [None] * 3)


def test_spark_delta_rs_and_polars_read_the_same_rows(rig: HistoryRig, spark: SparkSession) -> None:
    for table in _TABLES:
        path = str(rig.dir / table)
        plain = [f.name for f in HISTORY_SCHEMAS[table] if not pa.types.is_nested(f.type)]
        order = [
            name
            for name in ("partition", "offset", "seq", "minute", "server_id", "broker_name", "broker_addr")
            if name in plain
        ]
        by_delta_rs = DeltaTable(path).to_pyarrow_table().select(plain).sort_by([(n, "ascending") for n in order])
        by_polars = polars.read_delta(path).select(plain).sort(order)
        assert by_polars.rows() == [tuple(r.values()) for r in by_delta_rs.to_pylist()]
        by_spark = spark.read.format("delta").load(path).select(plain).orderBy(order)
        assert_df_equality(by_spark, spark.createDataFrame(by_delta_rs), ignore_nullable=True, ignore_metadata=True)


def test_tables_use_only_features_that_every_engine_supports(rig: HistoryRig) -> None:
    for table in _TABLES:
        protocol = DeltaTable(rig.dir / table).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) <= HISTORY_PROTOCOL
        assert not protocol.reader_features


def test_tables_store_descriptions_of_themselves_and_their_columns(rig: HistoryRig) -> None:
    for table, schema in HISTORY_SCHEMAS.items():
        delta = DeltaTable(rig.dir / table)
        assert delta.metadata().description
        comments = {f.name: f.metadata.get("comment") for f in delta.schema().fields}
        assert comments == {f.name: f.metadata[b"comment"].decode() for f in schema}


def test_views_are_equal_in_spark_polars_and_duckdb(rig: HistoryRig, spark: SparkSession) -> None:
    connect_as_documented(SPARK, rig.dir, {"spark": spark})
    context = connect_as_documented(POLARS, rig.dir, {})["context"]
    for view in (ROUTE_HISTORY, TOPIC_ROUTE_HISTORY, BROKER_SESSIONS):
        names = [name for name, value in rig.rows(view)[0].items() if not isinstance(value, list)]
        expected = [{name: row[name] for name in names} for row in rig.rows(view)]
        assert in_log_order(spark.table(view).select(*names).toArrow()).to_pylist() == expected
        by_polars = context.execute(f"SELECT * FROM {view}", eager=True).select(names)
        assert by_polars.sort("partition", "offset", "seq").to_dicts() == expected
