"""``python -m tests.support.hanging_history_job TABLE FILE ARGUMENTS``: runs the history process until a commit.

Instead of its second commit of data to the table it creates the file and hangs, so that a test can kill it there. It
keeps the normal priority.
"""

import sys
import time
from pathlib import Path

import pyarrow as pa

from namesrv_stream.cli import main
from namesrv_stream.streaming.history import history_job
from namesrv_stream.tables.history_files import HistoryMark
from namesrv_stream.tables.history_tables import HistoryTable

_, _TABLE, _REACHED, *_ARGUMENTS = sys.argv
_commit = HistoryTable.commit
_made: list[HistoryMark] = []


def _hang(table: HistoryTable, files: pa.Table, mark: HistoryMark) -> int:
    if table.name == _TABLE and files.num_rows:
        _made.append(mark)
        if len(_made) == 2:
            Path(_REACHED).touch()
            time.sleep(3_600)
    return _commit(table, files, mark)


setattr(HistoryTable, "commit", _hang)  # noqa: B010  # mypy refuses the assignment
setattr(history_job, "lower_priority", lambda pid, niceness: None)  # noqa: B010
sys.argv[1:] = _ARGUMENTS
sys.exit(main())
