"""The job's part of the simulated month: it commits what the fleet's log has, and keeps its own tables small."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from namesrv_stream.route.fold import Record
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.changes_writer import ChangesWriter
from namesrv_stream.streaming.compaction import clean_up, join_small_files, write_route_state
from namesrv_stream.streaming.delta_tables import ensure_tables
from namesrv_stream.streaming.topic import TopicExtent
from namesrv_stream.tables import ROUTE_CHANGES, encode_changes, table_path
from tests.bench.history_month_fleet import FleetLog

_TOPIC_ID: Final = "t-opic"
#: As in the Compactor: the size of what is joined between its hourly clean-ups, and how many, and commits a checkpoint.
_JOINED_FILES: Final = 64
_JOINED_BYTES: Final = 1 << 20
_CHECKPOINT: Final = 100


class MonthJob:
    """The job, and its topic.

    Args:
        settings: Ours.
        log: The fleet's.
    """

    def __init__(self, settings: Settings, log: FleetLog) -> None:
        self._settings = settings
        self._log = log
        self._tables = settings.data.tables_dir
        ensure_tables(settings, _TOPIC_ID)
        self._writer = ChangesWriter(self._tables, _TOPIC_ID, 1, 0)
        self._records: list[Record] = []
        self._commits = 0

    def commit(self, seconds: int = 1) -> None:
        """Commit what there is, a part each second."""
        records, changes = self._log.take()
        self._records = records
        rows = pa.Table.from_batches([encode_changes(changes)])
        ends = [records[len(records) * (s + 1) // seconds - 1].offset + 1 for s in range(seconds)]
        offsets = rows["offset"].to_numpy()
        begin = 0
        for end in ends:
            until = int((offsets < end).sum())
            self._writer.write(rows.slice(begin, until - begin), {0: end}, self._commits)
            begin, self._commits = until, self._commits + 1
            if self._commits % _CHECKPOINT == 0:
                DeltaTable(table_path(self._tables, ROUTE_CHANGES)).create_checkpoint()

    def compact(self) -> None:
        """As each few minutes."""
        write_route_state(self._settings, {0: self._log.fold_state()})
        join_small_files(self._settings, _JOINED_FILES, _JOINED_BYTES)

    def clean_up(self) -> None:
        """As each hour."""
        write_route_state(self._settings, {0: self._log.fold_state()})
        clean_up(self._settings)

    def extent(self) -> TopicExtent:
        """What Kafka would say that it holds."""
        return TopicExtent(_TOPIC_ID, {0: 0}, {0: self._log.next_offset})

    def read(self, spark: SparkSession, begin: Mapping[int, int], end: Mapping[int, int]) -> DataFrame:
        """Records of the last commit, as Spark's Kafka source gives them."""
        records = [r for r in self._records if begin[0] <= r.offset < end[0]]
        columns = {
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array([r.offset for r in records], pa.int64()),
            "at": pa.array([r.at_ms * 1000 for r in records], pa.timestamp("us", tz="UTC")),
            "value": pa.array([r.value for r in records], pa.binary()),
        }
        return spark.createDataFrame(pa.table(columns))
