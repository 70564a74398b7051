"""A JVM that runs out of memory must exit, so that its supervisor restarts it; otherwise it may hang for ever."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.dependencies import REPOSITORY

pytestmark = [pytest.mark.spark]

_TIMEOUT_S: Final = 120
_GREEDY: Final = """
import sys
from pathlib import Path
from tests.support.kafka import settings_for
from namesrv_stream.streaming.spark_session import build_session

spark = build_session(settings_for(Path(sys.argv[1]), streaming__driver_memory="512m"))
print("started", flush=True)
try:
    spark.sparkContext._jvm.java.nio.ByteBuffer.allocate(2_000_000_000)
finally:
    print("exit code", spark.sparkContext._gateway.proc.wait(60), flush=True)
"""


def test_jvm_exits_when_it_runs_out_of_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _GREEDY, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, cwd=REPOSITORY, check=False)
    assert ended.stdout.splitlines()[-1:] == ["exit code 3"], ended.stderr
