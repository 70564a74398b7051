"""The job's part of the simulated month: it commits the changes of the fleet's log, and keeps its own tables small."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.route.fold.folded_log import Place, fingerprint
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.compaction import FILES_TO_JOIN, JOINED_BYTES, clean_up, join_small_files
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.storage import tables_of
from tests.bench.history_month_fleet import FleetLog

_TOPIC_ID: Final = "t-opic"
_CHECKPOINT: Final = 100  # commits, as in the Compactor


class MonthJob:
    """The job, and its topic.

    Args:
        settings: Settings of the product.
        log: Log of the fleet.
    """

    def __init__(self, settings: Settings, log: FleetLog) -> None:
        self._settings = settings
        self._log = log
        tables = tables_of(settings)
        prepare_tables(settings, _TOPIC_ID)
        self._writer, self._state = ChangesWriter(tables, 0), StateWriter(tables)
        self._records: list[Record] = []
        self._commits = 0

    def commit(self, seconds: int = 1) -> None:
        """Commit all available changes, in one part per second."""
        records, changes = self._log.take()
        self._records = records
        rows = pa.Table.from_batches([encode_changes(changes)])
        lasts = [records[len(records) * (s + 1) // seconds - 1] for s in range(seconds)]
        offsets = rows["offset"].to_numpy()
        begin = 0
        for last in lasts:
            until = int((offsets <= last.offset).sum())
            place = Place(last.offset + 1, fingerprint(last.at_ms, last.value))
            self._writer.write(rows.slice(begin, until - begin), {0: place}, self._commits)
            begin, self._commits = until, self._commits + 1
            if self._commits % _CHECKPOINT == 0:
                self._writer.table.checkpoint()

    def compact(self) -> None:
        """Compact the tables, as the job does every few minutes."""
        self._state.cover({0: self._log.fold_state()})
        join_small_files(self._writer.table, FILES_TO_JOIN, JOINED_BYTES)

    def clean_up(self) -> None:
        """Clean up the tables, as the job does every hour."""
        self._state.cover({0: self._log.fold_state()})
        clean_up(self._settings, self._writer.table, self._state.table)

    def extent(self) -> TopicExtent:
        """Return the extent that Kafka would report."""
        return TopicExtent(_TOPIC_ID, {0: 0}, {0: self._log.next_offset})

    def read(self, spark: SparkSession, begin: Mapping[int, int], end: Mapping[int, int]) -> DataFrame:
        """Return the records of the last commit in the form of Spark's Kafka source."""
        records = [r for r in self._records if begin[0] <= r.offset < end[0]]
        columns = {
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array([r.offset for r in records], pa.int64()),
            "at": pa.array([r.at_ms * 1000 for r in records], pa.timestamp("us", tz="UTC")),
            "value": pa.array([r.value for r in records], pa.binary()),
        }
        return spark.createDataFrame(pa.table(columns))
