"""From the Delta tables to memory: load once, then follow the log."""

from namesrv_stream.snapshot.follower import SnapshotFollower
from namesrv_stream.snapshot.loader import Snapshot, load_snapshot
from namesrv_stream.snapshot.table_reader import TableRows, open_table, read_tables

__all__ = ["Snapshot", "SnapshotFollower", "TableRows", "load_snapshot", "open_table", "read_tables"]
