"""The start of a server's process."""

import subprocess
import sys
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.server.main import serve
from namesrv_stream.settings import load_settings
from namesrv_stream.settings.layers import Flag

_START = """
import gc, sys
from namesrv_stream.server.start.process import keep_all, prepare_imports
prepare_imports()
import namesrv_stream.server.main
print(sorted({"numpy", "pandas", "polars", "pyspark"} & sys.modules.keys()))
keep_all()
print(gc.isenabled(), gc.get_freeze_count() > 0)
"""

_RETURN = """
import asyncio, os
from namesrv_stream.server.start import process
from tests.bench.machine import memory_mb
async def main():
    process.prepare_process(100)
    process._RETURN_EVERY_S = 0.01
    blocks = [bytes([1]) * 10_000 for _ in range(10_000)]
    blocks = blocks[::1_000]  # 100 MB between blocks in use
    most_mb = memory_mb([os.getpid()])
    returning = asyncio.create_task(process.return_free_memory())
    while memory_mb([os.getpid()]) > most_mb - 50:
        await asyncio.sleep(0.01)
    returning.cancel()
asyncio.run(main())
"""


def test_free_memory_between_blocks_in_use_is_returned() -> None:
    subprocess.run([sys.executable, "-c", _RETURN], check=True, timeout=60)


def test_a_server_starts_without_large_libraries_and_freezes_its_objects_for_the_gc() -> None:
    run = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]", "True True"]


def test_files_in_the_settings_are_checked_before_the_data_directory_is_used(tmp_path: Path) -> None:
    flags = [Flag("test", "data.dir", str(tmp_path / "data")), Flag("test", "admin.accounts_file", str(tmp_path / "a"))]
    settings = load_settings(environ={}, flags=flags).settings
    with pytest.raises(ConfigError, match=r"admin\.accounts_file: No such file"):
        serve(settings)
    assert not (tmp_path / "data").exists()
