"""The history tables say what the log says, however it was cut, whatever was killed in between."""

import shutil
from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables import (
    BROKER_EVENTS,
    BROKER_SESSIONS,
    HEARTBEAT_MINUTES,
    HISTORY_PROTOCOL,
    HISTORY_SCHEMAS,
    ROUTE_HISTORY,
    TOPIC_ROUTE_HISTORY,
    table_path,
)
from tests.support.history import HistoryRig
from tests.support.history_life import live_on
from tests.support.history_oracle import instant, intervals, key_of, minutes, sessions

pytestmark = [pytest.mark.spark]

_HOUR_MS = 3_600_000
_TABLES = tuple(HISTORY_SCHEMAS)


@pytest.fixture(scope="module")
def rig(history_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> HistoryRig:
    """The history of two partitions' lives, written in many steps and with kills; each test reads it only."""
    random = Random(6)
    rig = HistoryRig(
        history_spark,
        tmp_path_factory.mktemp("history"),
        2,
        history__max_records=400,
        history__heartbeats_interval_ms=1,
    )
    for log in rig.logs:
        live_on(log, random, 350)
    rig.commit_and_write()  # in two steps
    for number in range(3):
        for log in rig.logs:
            live_on(log, random, 60)
        rig.commit()
        before = rig.dir.parent / "before"
        shutil.copytree(rig.dir, before)
        rig.write()
        if number < 2:
            # As a kill after the commits of some tables leaves it: of any of them, for their order may change.
            for table in random.sample(_TABLES, 3):
                shutil.rmtree(table_path(rig.dir, table))
                shutil.copytree(table_path(before, table), table_path(rig.dir, table))
            rig.restart()
        shutil.rmtree(before)
    rig.write()
    return rig


def test_every_record_is_there_once_and_exactly(rig: HistoryRig) -> None:
    found = sorted(rig.rows(BROKER_EVENTS), key=lambda r: (r["partition"], r["offset"]))
    records = [r for log in rig.logs for r in log.records]
    assert [(r["partition"], r["offset"], r["at"]) for r in found] == [
        (r.partition, r.offset, instant(r.at_ms)) for r in records
    ]
    assert [r["raw"] if r["value"] is None else r["value"].encode() for r in found] == [r.value for r in records]
    assert all(r["event_day"] == r["at"].date() for r in found)


def test_what_an_event_says_is_in_columns(rig: HistoryRig) -> None:
    rows = rig.rows(BROKER_EVENTS)
    registered = next(r for r in rows if r["kind"] == "broker_registered" and r["timeout_ms"] == 5_000)
    assert registered["cluster"] == "c0"
    assert registered["broker_addr"] == f"10.0.0.{registered['broker_id']}:10911"
    assert {r["items"] for r in rows if r["kind"] == "broker_heartbeats"} >= {1, 2, 3}
    assert {r["kind"] for r in rows if r["value"] in (None, "", "{}", "[1]")} == {None}


def test_route_history_is_the_intervals_of_the_folds_rows(rig: HistoryRig) -> None:
    expected = intervals(c for log in rig.logs for c in log.output.changes)
    found = rig.rows(ROUTE_HISTORY)
    assert [(_change(r), r["valid_to"]) for r in found] == [
        (change, None if end is None else instant(end)) for change, end in expected
    ]
    assert {r["kind"] for r in found} >= {ChangeKind.QUEUE_DATA, ChangeKind.KV, ChangeKind.SETTING, ChangeKind.HOLDER}


def test_intervals_of_a_key_have_neither_gaps_nor_overlaps(rig: HistoryRig) -> None:
    of_key: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rig.rows(ROUTE_HISTORY):
        of_key[key_of(_change(row))].append(row)
    assert max(map(len, of_key.values())) > 10
    for rows in of_key.values():
        assert [r["valid_to"] for r in rows[:-1]] == [r["valid_from"] for r in rows[1:]]
        assert rows[-1]["valid_to"] is None
        assert all(r["valid_from"] == instant(r["at_ms"]) for r in rows)


def test_the_rows_valid_at_an_instant_are_the_fold_of_the_log_until_then(rig: HistoryRig) -> None:
    rows = [(_change(r), r["valid_from"], r["valid_to"]) for r in rig.rows(ROUTE_HISTORY)]
    random = Random(1_000)
    first, last = rig.logs[0].records[0].at_ms, max(log.now_ms for log in rig.logs)
    changed = [c.at_ms for log in rig.logs for c in log.output.changes]
    instants = sorted([random.randint(first, last) for _ in range(500)] + [random.choice(changed) for _ in range(500)])
    folded = _folded(rig, instants)
    for at_ms, expected in zip(instants, folded, strict=True):
        at = instant(at_ms)
        table = RouteTable()
        reducer.apply(table, [c for c, begin, end in rows if begin <= at and (end is None or at < end)])
        assert _state(table) == expected, at


def _folded(rig: HistoryRig, instants: list[int]) -> Iterator[Any]:
    """The state after the last change at or before each instant, by the reducer from all rows."""
    table = RouteTable()
    changes = sorted((c for log in rig.logs for c in log.output.changes), key=lambda c: c.at_ms)
    done = 0
    for at_ms in instants:
        begin = done
        while done < len(changes) and changes[done].at_ms <= at_ms:
            done += 1
        reducer.apply(table, changes[begin:done])
        yield _state(table)


def _state(table: RouteTable) -> Any:
    groups = {
        name: (g.cluster, g.clusters, g.zone_name, g.enable_acting_master, g.broker_addrs, g.lives, g.topics)
        for name, g in table.groups.items()
        if g.broker_addrs or g.lives or g.topics
    }
    return groups, dict(table.kv), dict(table.settings), dict(table.servers), dict(table.held)


def test_topic_route_history_is_the_queue_data_of_it(rig: HistoryRig) -> None:
    columns = [name for name in HISTORY_SCHEMAS[TOPIC_ROUTE_HISTORY].names]
    expected = [r for r in rig.rows(ROUTE_HISTORY) if r["kind"] == ChangeKind.QUEUE_DATA]
    assert rig.rows(TOPIC_ROUTE_HISTORY) == [{name: r[name] for name in columns} for r in expected]


def test_broker_sessions_are_those_of_the_log(rig: HistoryRig) -> None:
    expected = [session for log in rig.logs for session in sessions(log)]
    assert rig.rows(BROKER_SESSIONS) == expected
    assert {s["down_cause"] for s in expected} >= {None, "expired", "unregistered"}
    assert max(s["heartbeats"] for s in expected) > 5


def test_heartbeat_minutes_are_those_of_the_log(rig: HistoryRig) -> None:
    expected = [row for log in rig.logs for row in minutes(log, _HOUR_MS)]
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


def test_the_tables_are_read_alike_by_spark_delta_rs_and_polars(rig: HistoryRig, spark: SparkSession) -> None:
    for table in _TABLES:
        path = str(table_path(rig.dir, table))
        plain = [f.name for f in HISTORY_SCHEMAS[table] if not pa.types.is_nested(f.type)]
        order = [
            name
            for name in ("partition", "offset", "seq", "minute", "server_id", "broker_name", "broker_addr")
            if name in plain
        ]
        by_delta_rs = DeltaTable(path).to_pyarrow_table().select(plain).sort_by([(n, "ascending") for n in order])
        by_polars = polars.read_delta(path).select(plain).sort(order)
        by_spark = spark.read.format("delta").load(path).select(plain).orderBy(order).toArrow()
        assert by_polars.rows() == [tuple(r.values()) for r in by_delta_rs.to_pylist()]
        assert by_spark.to_pylist() == by_delta_rs.to_pylist()


def test_the_tables_need_no_feature_that_another_engine_lacks(rig: HistoryRig) -> None:
    for table in _TABLES:
        protocol = DeltaTable(table_path(rig.dir, table)).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) <= HISTORY_PROTOCOL
        assert not protocol.reader_features


def test_columns_and_tables_are_described_in_the_tables_themselves(rig: HistoryRig) -> None:
    for table, schema in HISTORY_SCHEMAS.items():
        delta = DeltaTable(table_path(rig.dir, table))
        assert delta.metadata().description
        comments = {f.name: f.metadata.get("comment") for f in delta.schema().fields}
        assert comments == {f.name: f.metadata[b"comment"].decode() for f in schema}


def test_an_interval_that_ends_before_it_begins_is_refused_by_the_table_itself(
    rig: HistoryRig, spark: SparkSession
) -> None:
    path = table_path(rig.dir, BROKER_SESSIONS)
    row = spark.read.format("delta").load(str(path)).limit(1).withColumn("down_at", f.timestamp_millis(f.lit(0)))
    with pytest.raises(Exception, match="down_at_after_up_at"):
        row.write.format("delta").mode("append").save(str(path))


def _change(row: dict[str, Any]) -> RouteChange:
    values = {name: row[name] for name in RouteChange._fields}
    for name in ("broker_addrs", "clusters", "filter_servers"):
        values[name] = None if values[name] is None else tuple(values[name])
    return RouteChange(**values)
