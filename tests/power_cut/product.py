"""The interface to the product's tables: the job without Spark, and the loading at the start of a server.

No other module here knows how tables are opened, written, or kept small.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.route.digest import decode_group
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.folded_log import Place, fingerprint
from namesrv_stream.route.fold.state import FoldState, decode_state, encode_state
from namesrv_stream.route.fold.step import FoldOutput, GroupDict
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings, load_settings
from namesrv_stream.settings.layers import Flag
from namesrv_stream.streaming.route_table.fold_query import find_start_point
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.compaction import clean_up, join_small_files
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow, load_snapshot
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptStates
from tests.power_cut.made_up_log import PARTITIONS, RecordsOf

_TOPIC_ID: Final = "topic-of-the-rig"
_FILES_TO_JOIN: Final = 6
_JOINED_BYTES: Final = 1 << 20

Offsets = Mapping[int, int]
#: partition → fold state that a batch passes to the compaction.
FoldStates = dict[int, FoldStateRow]


def settings_in(data_dir: Path) -> Settings:
    """Defaults, with everything in ``data_dir``."""
    flags = [Flag("rig", "data.dir", str(data_dir)), Flag("rig", "kafka.partitions", str(PARTITIONS))]
    return load_settings(environ={}, flags=flags).settings


@dataclass(frozen=True, slots=True)
class Loaded:
    """The state of a server after its start.

    Attributes:
        table: The table from which it answers.
        next_offsets: Partition → first offset that the table does not cover, as the server reports it.
    """

    table: RouteTable
    next_offsets: Offsets


def load(settings: Settings) -> Loaded:
    """Load the tables as at the start of a server."""
    snapshot = load_snapshot(tables_of(settings))
    return Loaded(snapshot.table, snapshot.next_offsets)


class Job:
    """The job without Spark: it opens the tables, finds its start, folds the log in batches and commits each.

    Args:
        settings: Settings of the product.
        log: The whole log.
        earliest: First offset of each partition that Kafka still has.

    Attributes:
        offsets: partition → offset of the next record to fold.
        repaired: A sentence for each repair.
    """

    def __init__(self, settings: Settings, log: RecordsOf, earliest: Offsets) -> None:
        self._settings = settings
        self._log = log
        self.repaired = prepare_tables(settings, _TOPIC_ID)
        tables = tables_of(settings)
        self._writer, self._state_writer = ChangesWriter(tables, 0), StateWriter(tables)
        extent = TopicExtent(_TOPIC_ID, earliest, {partition: len(records) for partition, records in log.items()})
        start = find_start_point(KeptStates(tables), self._writer.committed, self._writer.table.removed_below, extent)
        self.offsets = dict(start.offsets)
        self._states = {partition: FoldState(partition, PARTITIONS) for partition in log}
        self._groups = {partition: GroupDict() for partition in log}
        for partition, broker_name, content in start.initial_state:
            if broker_name is None:
                self._states[partition] = decode_state(content)
            else:
                self._groups[partition].put(decode_group(content))
        self._batches = 0

    @property
    def is_done(self) -> bool:
        """Whether the whole log is folded."""
        return all(self.offsets[partition] >= len(records) for partition, records in self._log.items())

    def run_batch(self, sizes: Mapping[int, int]) -> None:
        """Fold the next ``sizes`` records of the partitions, and commit."""
        output, reached = FoldOutput(), dict[int, Place]()
        for partition, size in sizes.items():
            begin = self.offsets[partition]
            for record in self._log[partition][begin : begin + size]:
                fold(self._states[partition], self._groups[partition], record, output)
                self.offsets[partition] = record.offset + 1
                reached[partition] = Place(record.offset + 1, fingerprint(record.at_ms, record.value))
        rows = pa.Table.from_batches([encode_changes(output.changes)])
        self._writer.write(rows, reached, self._batches)
        self._batches += 1

    def durable_offsets(self) -> Offsets:
        """Return the offsets that the product promises to be durable from now on."""
        return self._writer.committed

    def fold_states(self) -> FoldStates:
        """Return the fold states, as a batch passes them to the compaction."""
        return {p: FoldStateRow(s.next_offset, s.at_ms, encode_state(s)) for p, s in self._states.items()}

    def compact(self, states: FoldStates) -> None:
        """Do what the compaction does: rewrite ``route_state``, join small files, write a checkpoint."""
        self._state_writer.cover(states)
        join_small_files(self._writer.table, _FILES_TO_JOIN, _JOINED_BYTES)
        self._writer.table.checkpoint()

    def clean_up(self) -> None:
        """Do what the compaction does once an hour."""
        clean_up(self._settings, self._writer.table, self._state_writer.table)
