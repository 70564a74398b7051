"""Spark writes the history tables of logs that the test folds in its own process; no Kafka is needed."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

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
from namesrv_stream.tables.history_upkeep import Upkeep
from namesrv_stream.tables.layout import HISTORY_SCHEMAS
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import Log
from tests.support.history_views import rows_of
from tests.support.random_events import append_random_events

TOPIC_ID = "t-opic"
_PARTITIONS = 3
_RUNS = 4

#: Reads the records between offsets, in the columns of Spark's Kafka source.
Read = Callable[[Mapping[int, int], Mapping[int, int]], DataFrame]


class HistoryRig:
    """Logs, the tables that the job would have written from them, and the history tables.

    Args:
        spark: The session.
        data_dir: The data directory.
        partitions: Number of partitions of the topic.
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
        """Commit all changes of the logs, as the job does."""
        changes = [c for log in self.logs for c in log.output.changes if c.offset >= self.writer.committed[c.partition]]
        rows = pa.Table.from_batches([encode_changes(changes)])
        self.writer.write(rows, {p: log.place() for p, log in enumerate(self.logs)}, 0)

    def compact(self) -> None:
        """Rewrite ``route_state`` at the end of the logs, as the job does."""
        states = {
            p: FoldStateRow(log.state.next_offset, log.state.at_ms, encode_state(log.state))
            for p, log in enumerate(self.logs)
        }
        self._state_writer.cover(states)

    def clean_up(self) -> None:
        """Remove rows that are past their retention, as the job does."""
        clean_up(self.settings, self.writer.table, self._state_writer.table)

    def restart(self) -> None:
        """Replace the history process by a new one, as after a kill."""
        self._history = None

    def write(self, settings: Settings | None = None) -> dict[str, int]:
        """Write batches of the history until it contains everything.

        Args:
            settings: Names other tables than those of this rig.
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
        """Return the records in the columns of Spark's Kafka source."""
        records: list[Record] = [r for p, log in enumerate(self.logs) for r in log.records[begin[p] : end[p]]]
        columns = {
            "partition": pa.array([r.partition for r in records], pa.int32()),
            "offset": pa.array([r.offset for r in records], pa.int64()),
            "at": pa.array([r.at_ms * 1000 for r in records], pa.timestamp("us", tz="UTC")),
            "value": pa.array([r.value for r in records], pa.binary()),
        }
        return self._spark.createDataFrame(pa.table(columns))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows of a history table or view, in log order if they have one."""
        return rows_of(self.storage, table)

    def version(self, table: str) -> int:
        return int(DeltaTable(self.dir / table).version())


def write_to_the_end(history: History, read: Read, ends: Mapping[int, int], limit: int) -> dict[str, int]:
    """Write batches of at most ``limit`` records up to ``ends``; returns table → number of rows in the last batches."""
    begin, written = history.next_offsets, dict[str, int]()
    while begin != ends:
        end = step_end(begin, ends, limit)
        written |= history.take(read(begin, end), end)
        begin = end
    rest = history.follow(is_last=True)
    return {table: rest.get(table, 0) + written.get(table, 0) for table in rest | written}


class WrittenHistory(NamedTuple):
    """A history that several runs of the writer have made.

    Attributes:
        rig: Its logs are longer than the history: the job has committed changes that the history has not read.
        read_logs: The logs as far as the history has read them.
    """

    rig: HistoryRig
    read_logs: list[Log]


def write_history_in_runs(spark: SparkSession, data_dir: Path) -> WrittenHistory:
    """Write the history of three random logs in several runs, with kills and compactions between them."""
    rig = HistoryRig(spark, data_dir, _PARTITIONS, history__max_records=700, history__heartbeats_interval_ms=1)
    random = Random(20)
    before = data_dir / "before"
    for number in range(_RUNS):
        for log in rig.logs:
            append_random_events(log, random, 300 if number == 0 else 60)
        rig.commit()
        shutil.copytree(rig.dir, before)
        rig.write()
        if number in (1, 2):
            # As a kill between the commits leaves them. Any table may lack its commit, since their order may change.
            for table in random.sample(list(HISTORY_SCHEMAS), 3):
                shutil.rmtree(rig.dir / table)
                shutil.copytree(before / table, rig.dir / table)
        shutil.rmtree(before)
        rig.compact()
        rig.restart()
        if number == 1:
            Upkeep(rig.settings).join_files()
    rig.write()  # completes what the last kill has left
    read_logs = [_copy(log) for log in rig.logs]
    for log in rig.logs:
        append_random_events(log, random, 20)
    rig.commit()
    return WrittenHistory(rig, read_logs)


def _copy(log: Log) -> Log:
    again = Log(partition=log.state.partition, partitions=log.state.partitions)
    for record in log.records:
        again.append(record.value, record.at_ms - again.now_ms)
    return again
