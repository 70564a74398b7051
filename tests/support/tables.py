"""Real Delta tables made without Spark: what the job would have written for a log."""

from pathlib import Path

import pyarrow as pa

from namesrv_stream.route.fold_state import encode_state
from namesrv_stream.settings import Settings, load_settings
from namesrv_stream.settings.layers import Flag
from namesrv_stream.snapshot.table_reader import FoldStateRow
from namesrv_stream.streaming.changes_writer import ChangesWriter
from namesrv_stream.streaming.compaction import write_route_state
from namesrv_stream.streaming.delta_tables import ensure_tables
from namesrv_stream.tables import encode_changes
from tests.support.builders import Log

TOPIC_ID = "t-opic"


def settings_in(data_dir: Path) -> Settings:
    """Defaults, with everything in ``data_dir``."""
    return load_settings(environ={}, flags=[Flag("test", "data.dir", str(data_dir))]).settings


class TablesOfLog:
    """The tables of a log of one partition; grow with it. Below ``data_dir``, unless settings say otherwise."""

    def __init__(self, data_dir: Path, settings: Settings | None = None) -> None:
        self.settings = settings or settings_in(data_dir)
        self.location = self.settings.data.tables_location
        self.log = Log()
        ensure_tables(self.settings, TOPIC_ID)
        self.writer = self.new_writer()
        self._batches = 0

    @property
    def dir(self) -> Path:
        """Their folder, where they are in one."""
        return self.settings.data.tables_dir

    def new_writer(self) -> ChangesWriter:
        """A writer as a restarted job has it."""
        return ChangesWriter(self.location, TOPIC_ID, 1, 0)

    def rows_from(self, offset: int) -> pa.Table:
        """What a batch that begins at ``offset`` would bring."""
        changes = [c for c in self.log.output.changes if c.offset >= offset]
        return pa.Table.from_batches([encode_changes(changes)])

    def commit(self) -> int:
        """Commit what the log has beyond the table; returns the number of rows."""
        self._batches += 1
        rows = self.rows_from(self.writer.committed[0])
        return int(self.writer.write(rows, {0: self.log.state.next_offset}, self._batches).num_rows)

    def compact(self) -> None:
        """Rewrite ``route_state`` at the log's end."""
        state = FoldStateRow(self.log.state.next_offset, self.log.state.at_ms, encode_state(self.log.state))
        write_route_state(self.settings, {0: state})
