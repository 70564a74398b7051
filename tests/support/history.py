"""The history tables made by a real Spark from logs that are folded in the test's own process, without Kafka."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from namesrv_stream.kafka.extent import TopicExtent
from namesrv_stream.route.fold import Record
from namesrv_stream.route.fold_state import encode_state
from namesrv_stream.settings import Flag, Settings, load_settings
from namesrv_stream.streaming.history.history_run import HistoryRun
from namesrv_stream.tables.changes_writer import ChangesWriter
from namesrv_stream.tables.compaction import clean_up
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_state import StateWriter
from namesrv_stream.tables.route_tables import FoldStateRow
from namesrv_stream.tables.schema.rows import encode_changes, in_log_order
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import Log

TOPIC_ID = "t-opic"


class HistoryRig:
    """Logs, what the job would have made of them, and the history.

    Args:
        spark: The session.
        data_dir: The data directory.
        partitions: Of the topic.
        flags: Settings, ``section__key="value"``.
    """

    def __init__(self, spark: SparkSession, data_dir: Path, partitions: int = 1, **flags: str | int) -> None:
        values = {"data.dir": data_dir, "kafka.partitions": partitions}
        values |= {name.replace("__", ".", 1): value for name, value in flags.items()}
        loaded = load_settings(environ={}, flags=[Flag("test", key, str(value)) for key, value in values.items()])
        self.settings: Settings = loaded.settings
        self.dir = self.settings.data.tables_dir
        self.logs = [Log(partition=p, partitions=partitions) for p in range(partitions)]
        self.earliest = dict.fromkeys(range(partitions), 0)
        self._spark = spark
        self.storage = tables_of(self.settings)
        prepare_tables(self.settings, TOPIC_ID)
        self.writer = ChangesWriter(self.storage, 0)
        self._state_writer = StateWriter(self.storage)
        self._run = HistoryRun(spark, self.settings, self.read)

    @property
    def log(self) -> Log:
        """The log of a topic of one partition."""
        (log,) = self.logs
        return log

    def commit(self) -> None:
        """The job commits what the logs have."""
        changes = [c for log in self.logs for c in log.output.changes if c.offset >= self.writer.committed[c.partition]]
        rows = pa.Table.from_batches([encode_changes(changes)])
        self.writer.write(rows, {p: log.place() for p, log in enumerate(self.logs)}, 0)

    def compact(self) -> None:
        """The job rewrites ``route_state`` at the logs' ends."""
        states = {
            p: FoldStateRow(log.state.next_offset, log.state.at_ms, encode_state(log.state))
            for p, log in enumerate(self.logs)
        }
        self._state_writer.cover(states)

    def clean_up(self) -> None:
        """The job removes what is past its retention."""
        clean_up(self.settings, self.writer.table, self._state_writer.table)

    def restart(self) -> None:
        """The history process is killed and started again."""
        self._run = HistoryRun(self._spark, self.settings, self.read)

    def write(self) -> dict[str, int] | None:
        """One run of the history."""
        ends = {p: len(log.records) for p, log in enumerate(self.logs)}
        return self._run.run(TopicExtent(TOPIC_ID, self.earliest, ends))

    def commit_and_write(self) -> dict[str, int] | None:
        self.commit()
        return self.write()

    def read(self, begin: Mapping[int, int], end: Mapping[int, int]) -> DataFrame:
        """Records as Spark's Kafka source gives them."""
        records: list[Record] = [r for p, log in enumerate(self.logs) for r in log.records[begin[p] : end[p]]]
        columns = {
            "partition": pa.array([r.partition for r in records], pa.int32()),
            "offset": pa.array([r.offset for r in records], pa.int64()),
            "at": pa.array([r.at_ms * 1000 for r in records], pa.timestamp("us", tz="UTC")),
            "value": pa.array([r.value for r in records], pa.binary()),
        }
        return self._spark.createDataFrame(pa.table(columns))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a history table, in log order where they have one."""
        found = DeltaTable(self.dir / table).to_pyarrow_table()
        rows: list[dict[str, Any]] = (in_log_order(found) if "seq" in found.column_names else found).to_pylist()
        return rows

    def version(self, table: str) -> int:
        return int(DeltaTable(self.dir / table).version())
