"""What a server's process does without."""

import subprocess
import sys

_START = """
import gc, sys
from namesrv_stream.server.start.process import keep_all, prepare_imports
prepare_imports()
import namesrv_stream.server.main
print(sorted({"numpy", "pandas", "polars", "pyspark"} & sys.modules.keys()))
keep_all()
print(gc.isenabled(), gc.get_freeze_count() > 0)
"""


def test_a_server_starts_without_large_libraries_and_keeps_them_from_the_collector() -> None:
    run = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]", "True True"]
