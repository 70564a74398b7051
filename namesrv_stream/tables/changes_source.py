"""``route_changes`` for the history: how far it reaches, and which of its files have what is beyond a place."""

from collections.abc import Mapping
from dataclasses import dataclass

from namesrv_stream.tables.delta.data_file import DataFile
from namesrv_stream.tables.delta.table_version import open_version
from namesrv_stream.tables.schema.columns import CHANGES_SCHEMA
from namesrv_stream.tables.schema.layout import ROUTE_CHANGES
from namesrv_stream.tables.storage import Storage


@dataclass(frozen=True, slots=True)
class ChangesSource:
    """``route_changes`` at one version.

    Attributes:
        topic_id: Of the topic it was made from.
        changes_id: Delta's id of the table: another one after a rebuild.
        committed: partition → first offset that it does not cover.
        removed_below: partition → first offset from which on no row has been removed for its age.
        files: Its data files.
    """

    topic_id: str
    changes_id: str
    committed: Mapping[int, int]
    removed_below: Mapping[int, int]
    files: tuple[DataFile, ...]

    @classmethod
    def open(cls, tables: Storage) -> "ChangesSource | None":
        """The newest version; None where the job has not made the table yet; blocks.

        Raises:
            TableSchemaMismatch: It is not as this version of the code expects.
            StoreUnreachable: The object store does not answer.
        """
        table = open_version(tables / ROUTE_CHANGES, CHANGES_SCHEMA)
        if table is None:
            return None
        return cls(table.topic_id, table.table_id, table.next_offsets, table.removed_below(), table.files)

    @property
    def newest_at_ms(self) -> int:
        """Highest ``at_ms`` of its rows, epoch milliseconds; 0 where it has none."""
        return max((file.newest_at_ms for file in self.files), default=0)
