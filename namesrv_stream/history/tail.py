"""What ``route_changes`` has beyond a history table: the rows of the last minute, where the history process runs."""

import polars as pl

from namesrv_stream.errors import TableSchemaMismatch
from namesrv_stream.history.opening import MarkedTable
from namesrv_stream.route.changes import STATELESS_KINDS, ChangeKind, RouteChange
from namesrv_stream.tables.delta.predicates import Condition, all_of, any_of, at_least, equals
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.schema.layout import PARTITIONS_PROPERTY, TOPIC_ID_PROPERTY, removed_app_id

#: Kinds that the history does not have: no state, or the fold's own.
_LEFT_OUT = [kind.value for kind in (*STATELESS_KINDS, ChangeKind.REGISTRATION)]


class Tail:
    """The rows of ``route_changes`` that a history table does not have; read once, when they are first needed.

    Attributes:
        lost: Whether some of them were removed for their age before the history had them.
    """

    def __init__(self, changes: StoredTable, stored: MarkedTable) -> None:
        """Find out where they begin.

        Args:
            changes: ``route_changes``, opened after ``stored``.
            stored: The history table.

        Raises:
            TableSchemaMismatch: The two were made from different logs.
        """
        topic_id = changes.properties.get(TOPIC_ID_PROPERTY, "")
        of_history = stored.table.properties.get(TOPIC_ID_PROPERTY, "")
        if topic_id != of_history:
            reason = f"was made from the topic with id {of_history!r}, route_changes from {topic_id!r}"
            raise TableSchemaMismatch(str(stored.table.storage), reason)
        partitions = range(int(changes.properties.get(PARTITIONS_PROPERTY, 0)))
        self._changes = changes
        self._begin = {p: stored.mark.next_offset(p) for p in partitions}
        self._all: pl.DataFrame | None = None
        self.lost = any(o < changes.transaction_version(removed_app_id(topic_id, p)) for p, o in self._begin.items())

    def rows(self, *conditions: Condition) -> pl.DataFrame:
        """Those that meet all conditions, columns of ``RouteChange``, in log order."""
        if self._all is None:
            beyond = any_of(
                *(all_of(equals("partition", p), at_least("offset", o)) for p, o in sorted(self._begin.items()))
            )
            rows = self._changes.rows(beyond, columns=RouteChange._fields)
            self._all = rows.filter(~pl.col("kind").is_in(_LEFT_OUT)).sort("partition", "offset", "seq")
        return self._all.filter(all_of(*conditions).rows)
