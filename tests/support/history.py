"""The history tables made by a real Spark from logs that are folded in the test's own process, without Kafka."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Flag, Settings, load_settings
from namesrv_stream.settings.names import public_key
from namesrv_stream.streaming.history.history_writer import History, step_end
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.compaction import clean_up
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import Log
from tests.support.history_views import rows_of

TOPIC_ID = "t-opic"

#: Records between offsets, as Spark's Kafka source gives them.
Read = Callable[[Mapping[int, int], Mapping[int, int]], DataFrame]


class HistoryRig:
    """Logs, the tables that the job would have written from them, and the history.

    Args:
        spark: The session.
        data_dir: The data directory.
        partitions: Of the topic.
        flags: Settings, ``section__key="value"``.
    """

    def __init__(self, spark: SparkSession, data_dir: Path, partitions: int = 1, **flags: str | int) -> None:
        values: dict[str, object] = {"data.dir": data_dir, "kafka.partitions": partitions}
        values |= {public_key(name.replace("__", ".", 1)): value for name, value in flags.items()}
        loaded = load_settings(environ={}, flags=[Flag("test", key, str(value)) for key, value in values.items()])
        self.settings: Settings = loaded.settings
        self.logs = [Log(partition=p, partitions=partitions) for p in range(partitions)]
        self.earliest = dict.fromkeys(range(partitions), 0)
        self._spark = spark
        self.storage = tables_of(self.settings)
        prepare_tables(self.settings, TOPIC_ID)
        self.writer = ChangesWriter(self.storage, 0)
        self._state_writer = StateWriter(self.storage)
        self._history: History | None = None

    @property
    def dir(self) -> Path:
        """The folder of the tables."""
        return self.settings.data.tables_dir

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
        self._history = None

    def write(self, settings: Settings | None = None) -> dict[str, int]:
        """Batches of the history, until it has everything.

        Args:
            settings: Of other tables than the rig's.
        """
        ends = {p: len(log.records) for p, log in enumerate(self.logs)}
        history = self._history if settings is None else None
        if history is None:
            history = History(self._spark, settings or self.settings, TopicExtent(TOPIC_ID, self.earliest, ends))
        if settings is None:
            self._history = history
        return write_to_the_end(history, self.read, ends, self.settings.history.max_records)

    def commit_and_write(self) -> dict[str, int]:
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
        """All rows of a history table, or of a view of it, in log order where they have one."""
        return rows_of(self.storage, table)

    def version(self, table: str) -> int:
        return int(DeltaTable(self.dir / table).version())


def write_to_the_end(history: History, read: Read, ends: Mapping[int, int], limit: int) -> dict[str, int]:
    """Batches of at most ``limit`` records, until the history has everything; table → rows of the last ones."""
    begin, written = history.next_offsets, dict[str, int]()
    while begin != ends:
        end = step_end(begin, ends, limit)
        written |= history.take(read(begin, end), end)
        begin = end
    rest = history.follow(is_last=True)
    return {table: rest.get(table, 0) + written.get(table, 0) for table in rest | written}
