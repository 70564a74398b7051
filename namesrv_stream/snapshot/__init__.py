"""From the Delta tables to memory: load once, then follow the log."""

from namesrv_stream.snapshot.changes_reader import read_rows
from namesrv_stream.snapshot.commit_log import TOLD_KINDS, log_commit, log_held
from namesrv_stream.snapshot.follower import SnapshotFollower
from namesrv_stream.snapshot.loader import Snapshot, load_snapshot
from namesrv_stream.snapshot.stored_history import KeptState, KeptStates, StoredChanges
from namesrv_stream.snapshot.table_reader import TableRows, open_table, read_tables

__all__ = [
    "TOLD_KINDS",
    "KeptState",
    "KeptStates",
    "Snapshot",
    "SnapshotFollower",
    "StoredChanges",
    "TableRows",
    "load_snapshot",
    "log_commit",
    "log_held",
    "open_table",
    "read_rows",
    "read_tables",
]
