"""What must be in order before the first part starts: prerequisites, ports, and the lock of the data directory.

The lock is a flock on DATA/run/up.lock that the children inherit: after a ``kill -9`` of ``up`` it stays until the last
child has ended, so that a new start never meets processes of the old one.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import choose_port, port_fault
from namesrv_stream.prerequisites import find_java, kafka_jars, spark_jars
from namesrv_stream.processes import is_writer_alive, read_run_file, write_run_file
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.settings.installation import PORTS_FILE
from namesrv_stream.settings.layers import EFFECTIVE_FILE

_POLL_S: Final = 0.05


def acquire_run_lock(path: Path, print_line: Callable[[str], None], wait_s: float = 15.0) -> int:
    """Take the lock. The call blocks while processes of a killed ``up`` are still ending.

    Args:
        path: The lock file.
        print_line: Called with a line that explains a wait.
        wait_s: Longest wait for those processes, in seconds.

    Returns:
        A file descriptor, which the children inherit; close it when they have ended.

    Raises:
        ConfigError: Another ``up`` runs on this directory, or the directory cannot be written to.
    """
    data_dir = path.parent.parent
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError("settings", "data.dir", f"{data_dir} cannot be written: {error.strerror}") from None
    deadline = time.monotonic() + wait_s
    has_printed = False
    while not _try_lock(lock):
        owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        if (owner.isdecimal() and is_writer_alive({"pid": int(owner)})) or time.monotonic() > deadline:
            os.close(lock)
            raise ConfigError("settings", "data.dir", f"{data_dir} is in use by another `up` (process {owner})")
        if not has_printed:
            print_line(f"waiting for the processes of the previous run (process {owner}) to end")
            has_printed = True
        time.sleep(_POLL_S)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def require_prerequisites(settings: Settings) -> None:
    """Check Java and the jars of every part that will run.

    Raises:
        PrerequisiteMissing: Something is missing; the error names the first such thing.
    """
    find_java()
    spark_jars(settings.jars.spark_dir).require()
    if settings.is_kafka_embedded:
        kafka_jars(settings.jars.kafka_dir).require()


def require_writable(data_dir: Path) -> None:
    """Check that ``data_dir`` exists or can be created, and can be written.

    Raises:
        ConfigError: ``data_dir`` is not a directory, or cannot be written; the error names the key ``data.dir``.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=data_dir):
            pass
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        if data_dir.is_file():
            raise ConfigError("settings", "data.dir", f"{data_dir} is a file, not a directory") from None
        raise ConfigError("settings", "data.dir", f"{data_dir} cannot be written: {reason}") from None


def with_fixed_ports(settings: Settings) -> Settings:
    """Return ``settings`` with a free port in place of every port 0; check that the configured ports are free.

    The chosen ports are stored in the data directory. The next start uses the same ports if they are free, so that
    brokers find the server again, and a restarted child keeps its address.

    Raises:
        ConfigError: A configured port is in use. The error names each such port, its key, and the flag to change it.
    """
    path = settings.data.run_dir / PORTS_FILE
    last = read_run_file(path) or {}
    sections = ["remoting", "http", *(["embedded_kafka"] if settings.is_kafka_embedded else [])]
    tables = {section: getattr(settings, section) for section in sections}
    chosen = {section: table.listen_port for section, table in tables.items() if table.listen_port}
    found = (port_fault(tables[section].listen_host, port, section) for section, port in chosen.items())
    faults = [fault for fault in found if fault is not None]
    if faults:
        keys, reasons = ", ".join(fault.key for fault in faults), "; ".join(fault.reason for fault in faults)
        raise ConfigError("settings", keys, reasons)
    for section in sections:
        if section not in chosen:
            host = tables[section].listen_host
            chosen[section] = choose_port(host, int(last.get(section, 0)), taken=chosen.values())
    write_run_file(path, dict(chosen))
    return settings.model_copy(
        update={
            section: getattr(settings, section).model_copy(update={"listen_port": port})
            for section, port in chosen.items()
        }
    )


def write_effective(settings: Settings) -> Path:
    """Write the settings that all child processes read, without secrets; return the file's path."""
    path = settings.data.run_dir / EFFECTIVE_FILE
    header = "# Written at every start of `up`; not read at the next one.\n"
    path.write_text(header + to_toml(settings), encoding="utf-8")
    return path
