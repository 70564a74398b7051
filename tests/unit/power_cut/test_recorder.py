"""The recorder: a replay of the trace makes the same directory as the process."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.power_cut.disk import Disk, read_image
from tests.power_cut.trace import Kind, Operation, TraceError, read_trace, recording_environment

_SYSTEM_CALLS = """
    import ctypes, os, shutil, socket, sys
    root = os.path.join(os.getcwd(), sys.argv[1])
    os.mkdir(f"{root}/d")
    folder = os.open(f"{root}/d", os.O_RDONLY)
    file = os.open("a", os.O_CREAT | os.O_RDWR, dir_fd=folder)
    os.write(file, b"0123456789")
    os.writev(file, [b"ab", b"", b"cd"])
    os.pwrite(file, b"XY", 3)
    os.pwritev(file, [b"Z", b"Z"], 20)
    os.ftruncate(file, 30)
    os.truncate(f"{root}/d/a", 25)
    os.posix_fallocate(file, 0, 40)
    copy = os.dup(file)
    os.fsync(copy)
    os.link("a", "b", src_dir_fd=folder, dst_dir_fd=folder)
    os.rename(f"{root}/d/b", f"{root}//d/../c")
    os.chdir(root)
    with open("text", "w") as text:
        text.write("one")
    with open("text", "a") as text:
        text.write("two")
    with open("./text", "r+") as text:
        text.write("O")
    shutil.copyfile("text", "sent")
    target = os.open("ranged", os.O_CREAT | os.O_WRONLY)
    os.copy_file_range(os.open("text", os.O_RDONLY), target, 4, 1)
    synchronous = os.open("synchronous", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
    os.write(synchronous, b"s")
    os.replace("sent", "text")
    os.mkdir("e/")
    os.rename("e", "f")
    os.rmdir("f")
    open("gone", "w").close()
    os.unlink("gone")
    open("removed", "w").close()
    ctypes.CDLL(None).remove(b"removed")
    os.rename("d", "g")
    os.fsync(folder)
    os.fdatasync(target)
    with open(os.path.join(root, "..", "elsewhere"), "w") as elsewhere:
        elsewhere.write("nobody records this")
"""

_LIBRARIES = """
    import sys
    from concurrent.futures import ThreadPoolExecutor
    import obstore, pyarrow as pa, pyarrow.parquet as pq
    from deltalake import DeltaTable, write_deltalake
    from obstore.store import LocalStore
    root = sys.argv[1]
    rows = pa.table({"n": list(range(1_000))})
    def work(number):
        for _ in range(3):
            write_deltalake(f"{root}/table-{number}", rows, mode="append")
        table = DeltaTable(f"{root}/table-{number}")
        table.optimize.compact()
        table.create_checkpoint()
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        pq.write_table(rows, f"{root}/rows-{number}.parquet")
        obstore.put(LocalStore(root), f"objects/{number}", b"content " * 100_000)
        obstore.put(LocalStore(root), f"objects/{number}-once", b"content", mode="create")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
"""


def _recorded(tmp_path: Path, program: str) -> list[Operation]:
    """Run a program under the recorder, and compare the replayed directory with that of the program."""
    (tmp_path / "root").mkdir()
    environment = recording_environment(tmp_path / "root", tmp_path / "trace")
    command = [sys.executable, "-c", textwrap.dedent(program), "root"]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, timeout=120)
    operations = read_trace(tmp_path / "trace")
    disk = Disk()
    for operation in operations:
        disk.apply(operation)
    assert disk.image() == read_image(tmp_path / "root")
    return operations


def _synced(operations: list[Operation]) -> list[str]:
    names = {o.inode: o.path for o in operations if o.kind in (Kind.CREATE, Kind.MAKE_DIRECTORY)}
    return [names[o.inode] for o in operations if o.kind is Kind.SYNC]


def test_system_calls_of_every_kind_are_recorded(tmp_path: Path) -> None:
    operations = _recorded(tmp_path, _SYSTEM_CALLS)
    assert _synced(operations) == ["d/a", "synchronous", "d", "ranged"]
    assert read_image(tmp_path / "root").keys() == {"c", "g", "g/a", "ranged", "synchronous", "text"}


def test_table_writes_from_several_threads_are_recorded(tmp_path: Path) -> None:
    operations = _recorded(tmp_path, _LIBRARIES)
    made = " ".join(operation.target or operation.path for operation in operations)
    for part in ("rows-3.parquet", "objects/3", "checkpoint.parquet", "_last_checkpoint"):
        assert part in made


def test_sync_of_the_file_system_counts_for_all_files(tmp_path: Path) -> None:
    operations = _recorded(tmp_path, "import os; os.sync()")
    assert operations[-1] == Operation(Kind.SYNC)


def test_unsupported_system_calls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="moved into"):
        _recorded(tmp_path, "import os; open('other', 'w').close(); os.rename('other', 'root/other')")


def test_truncated_trace_is_refused(tmp_path: Path) -> None:
    _recorded(tmp_path, "open('root/f', 'w').close()")
    trace = tmp_path / "trace"
    trace.write_bytes(trace.read_bytes()[:-1])
    with pytest.raises(TraceError, match="ends within"):
        read_trace(trace)


def test_children_are_not_recorded(tmp_path: Path) -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'open(\"other\", \"w\")'], check=True)"
    assert [operation.kind for operation in _recorded(tmp_path, program)] == [Kind.BEGIN]
