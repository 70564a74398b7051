"""The rows that Spark makes of a few records and changes."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import BrokerRegistered
from namesrv_stream.streaming.history.history_rows import (
    archive_rows,
    event_rows,
    heartbeats,
    minute_rows,
    rows_to_catch_up,
    running_minutes,
)
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.layout import HEARTBEAT_MINUTES, HISTORY_SCHEMAS
from tests.support.builders import BEGIN_MS, S1, a_proof, a_registration, heartbeats_with, over
from tests.support.history_oracle import instant

pytestmark = [pytest.mark.spark]

_BEGIN = instant(BEGIN_MS).replace(second=0, microsecond=0)
_BROKER = a_registration()
_REGISTERED = encode_event(BrokerRegistered(over(S1, 1), _BROKER))
_HEARD = heartbeats_with([a_proof(_BROKER)], {"proof": "heartbeat"})


def _records(spark: SparkSession, *records: tuple[int, bytes]) -> DataFrame:
    """Records of one partition: (seconds after the first minute began, value)."""
    rows = [(0, offset, _BEGIN + timedelta(seconds=at_s), value) for offset, (at_s, value) in enumerate(records)]
    return spark.createDataFrame(rows, "partition INT, offset BIGINT, at TIMESTAMP, value BINARY")


def test_every_record_becomes_a_row_even_if_invalid(spark: SparkSession) -> None:
    found = event_rows(_records(spark, (0, _REGISTERED), (1, _HEARD), (2, b"{}"), (3, b"\xff")))
    columns = "offset BIGINT, kind STRING, broker_addr STRING, server_id STRING, items INT, value STRING, raw BINARY"
    addr = _BROKER.broker_addr
    rows: list[tuple[Any, ...]] = [
        (0, "broker_registered", addr, "s1", None, _REGISTERED.decode(), None),
        (1, "broker_heartbeats", None, "s1", 2, _HEARD.decode(), None),
        (2, None, None, None, None, "{}", None),
        (3, None, None, None, None, None, bytearray(b"\xff")),
    ]
    names = [column.split()[0] for column in columns.split(", ")]
    expected = spark.createDataFrame(rows, columns)
    assert_df_equality(found.select(*names), expected, ignore_nullable=True, ignore_row_order=True)


def test_heartbeats_are_counted_by_minute_except_the_current_one(spark: SparkSession) -> None:
    events = event_rows(_records(spark, (5, _REGISTERED), (15, _HEARD), (35, _HEARD), (65, _HEARD), (70, b"{}")))
    running = running_minutes(events)
    at_ms = round(_BEGIN.timestamp() * 1000) + 60_000
    expected = spark.createDataFrame([(0, 3, at_ms)], "partition INT, offset BIGINT, at_ms BIGINT")
    assert_df_equality(running, expected, ignore_nullable=True)
    before = spark.createDataFrame(HISTORY_SCHEMAS[HEARTBEAT_MINUTES].remove_metadata().empty_table())
    found = minute_rows(heartbeats(events.where("offset < 3")), before)
    columns = "minute TIMESTAMP, heartbeats BIGINT, gap_p50_ms BIGINT, gap_max_ms BIGINT, last_at TIMESTAMP"
    row = (_BEGIN, 3, 10_000, 20_000, _BEGIN + timedelta(seconds=35))
    names = [column.split()[0] for column in columns.split(", ")]
    assert_df_equality(found.select(*names), spark.createDataFrame([row], columns), ignore_nullable=True)


def test_after_a_rebuild_known_changes_are_kept_and_remaining_differences_are_added(spark: SparkSession) -> None:
    """A key may be in another partition than before."""
    queues = RouteChange(1, 5, 0, 1_000, ChangeKind.QUEUE_DATA, False, Cause.REGISTERED, broker_name="a", topic="t")
    wiped = queues._replace(offset=7, at_ms=2_000, cause=Cause.WRITE_PERM_WIPED, perm=4)
    lost = queues._replace(seq=1, topic="lost")
    reach = spark.createDataFrame(
        [(0, 0, 0, 3_000), (1, 6, 9, 3_000)], "partition INT, known BIGINT, state_offset BIGINT, state_at_ms BIGINT"
    )
    archived, changes = archive_rows(_changes(spark, queues, lost)), archive_rows(_changes(spark, wiped))
    found = rows_to_catch_up(archived, changes, _changes(spark, wiped._replace(partition=0)), reach)
    gone = lost._replace(offset=9, seq=-1, at_ms=3_000, gone=True, cause=Cause.STATE_REBUILT)
    names = ["partition", "offset", "seq", "at_ms", "kind", "gone", "cause", "broker_name", "topic", "perm"]
    expected = _changes(spark, wiped, gone).select(*names)
    assert_df_equality(found.select(*names), expected, ignore_nullable=True, ignore_row_order=True)


def _changes(spark: SparkSession, *changes: RouteChange) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([encode_changes(changes)]).replace_schema_metadata())
