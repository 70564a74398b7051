"""Real Delta tables without Spark, as the job would have written them for a log."""

import shutil
from pathlib import Path

import pyarrow as pa

from namesrv_stream.route.fold.folded_log import Place, fingerprint
from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.settings import Settings, load_settings
from namesrv_stream.settings.layers import Flag
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.snapshot import FoldStateRow
from namesrv_stream.tables.storage import tables_of
from tests.support.builders import Log

TOPIC_ID = "t-opic"


def settings_in(data_dir: Path) -> Settings:
    """Return the default settings, with everything in ``data_dir``."""
    return load_settings(environ={}, flags=[Flag("test", "data.dir", str(data_dir))]).settings


class TablesOfLog:
    """The tables of a log of one partition, in ``data_dir`` unless settings name another place."""

    def __init__(self, data_dir: Path, settings: Settings | None = None) -> None:
        self.settings = settings or settings_in(data_dir)
        self.storage = tables_of(self.settings)
        self.changes = self.storage / ROUTE_CHANGES
        self.state = self.storage / ROUTE_STATE
        self.log = Log()
        prepare_tables(self.settings, TOPIC_ID)
        self.writer = self.new_writer()
        self._batches = 0

    def copied(self, data_dir: Path) -> "TablesOfLog":
        """Return a copy of the tables and their log in another data directory; faster than writing them again."""
        shutil.copytree(self.settings.data.dir, data_dir, dirs_exist_ok=True)
        copied = TablesOfLog(data_dir)
        for record in self.log.records:
            copied.log.append(record.value, record.at_ms - copied.log.now_ms)
        return copied

    @property
    def dir(self) -> Path:
        """Folder of the tables, if they are in one."""
        return self.settings.data.tables_dir

    def new_writer(self) -> ChangesWriter:
        """Return a writer, as after a restart of the job."""
        return ChangesWriter(self.storage, 0)

    def rows_from(self, offset: int) -> pa.Table:
        """Return the rows of a batch that begins at ``offset``."""
        changes = [c for c in self.log.output.changes if c.offset >= offset]
        return pa.Table.from_batches([encode_changes(changes)])

    def reached(self) -> dict[int, Place]:
        """Return the progress of a batch that ends with the log."""
        last = self.log.records[-1]
        return {0: Place(self.log.state.next_offset, fingerprint(last.at_ms, last.value))}

    def commit(self) -> int:
        """Commit the rows of the log that the table does not have; returns their number."""
        self._batches += 1
        rows = self.rows_from(self.writer.committed[0])
        return int(self.writer.write(rows, self.reached(), self._batches).num_rows)

    def fold_state(self) -> FoldStateRow:
        """Return the fold's state at the log's end."""
        return FoldStateRow(self.log.state.next_offset, self.log.state.at_ms, encode_state(self.log.state))

    def compact(self) -> None:
        """Rewrite ``route_state`` at the log's end."""
        StateWriter(self.storage).cover({0: self.fold_state()})
