"""The cost of tables and queries: files and bytes, and processor time of a cold open, each in its own process."""

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.support.kafka import REPOSITORY


@dataclass(frozen=True, slots=True)
class TableSize:
    """A Delta table on disk.

    Attributes:
        rows: Number of rows by the statistics of its files.
        files: Number of files of its newest version.
        bytes: Size of these files.
        old_files: Number of files that no longer belong to it and are not yet vacuumed.
        old_bytes: Size of these files.
        commits: Number of JSON entries of its log.
        checkpoints: Number of checkpoints of its log.
        log_files: Number of all files of its log.
        log_bytes: Size of these files.
        other_files: Number of all other files, for example Hadoop's checksums.
    """

    rows: int
    files: int
    bytes: int
    old_files: int
    old_bytes: int
    commits: int
    checkpoints: int
    log_files: int
    log_bytes: int
    other_files: int


def size_of(path: Path) -> TableSize:
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    found = [f for f in path.rglob("*") if f.is_file() and f.relative_to(path).parts[0] != "_delta_log"]
    data = [f.stat().st_size for f in found if f.suffix == ".parquet"]
    log = [f for f in (path / "_delta_log").rglob("*") if f.is_file()]
    kinds = Counter("checkpoint" if ".checkpoint" in f.name else "commit" if f.suffix == ".json" else "" for f in log)
    live_bytes = pc.sum(actions["size_bytes"]).as_py() or 0
    return TableSize(
        rows=pc.sum(actions["num_records"]).as_py() or 0,
        files=actions.num_rows,
        bytes=live_bytes,
        old_files=len(data) - actions.num_rows,
        old_bytes=sum(data) - live_bytes,
        commits=kinds["commit"],
        checkpoints=kinds["checkpoint"],
        log_files=len(log),
        log_bytes=sum(f.stat().st_size for f in log),
        other_files=len(found) - len(data),
    )


def sizes(tables_dir: Path) -> dict[str, dict[str, int]]:
    """Return the sizes of all tables."""
    return {path.name: asdict(size_of(path)) for path in sorted(tables_dir.iterdir())}


_DELTA_RS: Final = """
from deltalake import DeltaTable
begin()
DeltaTable(path).get_add_actions()
"""
_DUCKDB: Final = """
import duckdb, duckdb_extension_delta
from pathlib import Path
extension = next(Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension"))
connection = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
connection.execute(f"LOAD '{extension}'")
begin()
connection.execute(f"SELECT count(*) FROM delta_scan('{path}')").fetchall()
"""
_SERVER: Final = """
from namesrv_stream.tables.snapshot import load_snapshot
begin()
load_snapshot(Path(path))
"""
_TIMED: Final = """
import json, sys, time
from pathlib import Path
path = sys.argv[1]
def begin():
    global began
    began = time.perf_counter(), time.process_time()
{body}
print(json.dumps([time.perf_counter() - began[0], time.process_time() - began[1]]))
"""


def _timed(body: str, path: Path) -> dict[str, float]:
    script = _TIMED.replace("{body}", body)
    command = [sys.executable, "-c", script, str(path)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=REPOSITORY).stdout
    wall_s, processor_s = json.loads(printed)
    return {"wall_s": round(wall_s, 3), "processor_s": round(processor_s, 3)}


def cold_opens(spark: SparkSession, tables_dir: Path, tables: list[str]) -> dict[str, Any]:
    """Return table → engine → seconds, without imports; for Spark in a running session without caches."""
    found: dict[str, Any] = {}
    for name in tables:
        path = tables_dir / name
        jvm = spark.sparkContext._jvm  # noqa: SLF001  (Delta has no Python call for it)
        assert jvm is not None
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        began = time.perf_counter()
        spark.read.format("delta").load(str(path)).count()
        took_s = time.perf_counter() - began
        found[name] = {
            "delta_rs": _timed(_DELTA_RS, path),
            "duckdb": _timed(_DUCKDB, path),
            "spark": {"wall_s": round(took_s, 3)},
        }
    return found


def server_start(tables_dir: Path) -> dict[str, float]:
    """Measure the loading at the start of a server."""
    return _timed(_SERVER, tables_dir)


def command(*arguments: str) -> dict[str, float]:
    """Measure a whole command of the product."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "namesrv_stream", *arguments], capture_output=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(time.perf_counter() - began, 2), "processor_s": round(processor_s, 2)}
