"""Checks of the machine: Python and its packages, Java, jars, memory, open files, disk, clock."""

import ctypes
import os
import platform
import resource
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from namesrv_stream import __version__
from namesrv_stream.errors import ConfigError, PrerequisiteMissing
from namesrv_stream.jvm import check_cluster_variables, foreign_variables, is_one_process
from namesrv_stream.prerequisites import find_java, kafka_jars, spark_jars
from namesrv_stream.server.native.lane import open_lane
from namesrv_stream.server.start.process import require_files
from namesrv_stream.settings import Settings
from namesrv_stream.settings.checks import named_files
from namesrv_stream.settings.installation import running_parts
from namesrv_stream.text_table import counted
from namesrv_stream.tools.doctor.finding import Finding, fault, fine, note, warning

_DISTRIBUTION = "namesrv-stream"
_LANE = "native lane"
_LANE_REMEDY = "run `make setup`, or install the wheel that was built for this machine"
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
#: A Python process with Arrow and Delta loaded; the server with 1,000 brokers and 20,000 topics.
_PYTHON_BYTES: Final = 250 * _MIB
#: Memory of a JVM beyond its heap, as measured for the job.
_JVM_EXTRA_BYTES: Final = 400 * _MIB
_LOW_DISK_BYTES: Final = 5 * _GIB
_NO_DISK_BYTES: Final = 512 * _MIB
#: Files other than connections: jars, tables, Kafka.
_OTHER_FILES: Final = 512
#: The result of ``adjtimex`` if the kernel considers the clock wrong (TIME_ERROR of sys/timex.h).
_TIME_ERROR: Final = 5
_TABLES: Final = "data.tables"
_NEED_JAVA: Final = frozenset({"job", "history-job"})
_FOR_SERVERS: Final = "enough for a server, not for the job and the history process"
_TIMEX_BYTES: Final = 512  # struct timex has 208 on 64 bits


def packages() -> Finding:
    """Check that every required package is installed at a permitted version."""
    wrong = []
    try:
        required = [Requirement(text) for text in metadata.requires(_DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        return fault(
            "packages", f"{_DISTRIBUTION} is not installed", "run `make setup` in the checkout, or pip install it"
        )
    for requirement in required:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} is {found}, not {requirement.specifier}")
    versions = f"namesrv-stream {__version__}, Python {platform.python_version()}"
    if wrong:
        return fault(
            "packages", f"{versions}: {'; '.join(wrong)}", "run `make setup`, or reinstall namesrv-stream with pip"
        )
    parts = f"Spark {metadata.version('pyspark')}, Delta {metadata.version('delta-spark')}"
    return fine("packages", f"{versions}, {parts}")


def native_lane(settings: Settings) -> Finding:
    """Check whether a server with these settings has the native lane."""
    try:
        _, status = open_lane(settings.remoting)
    except ConfigError as error:
        return fault(
            _LANE, f"{error.key}: {error.reason}", f"{_LANE_REMEDY}, or set advanced.remoting.native_lane to auto"
        )
    if status.is_fault:
        return warning(_LANE, status.text, _LANE_REMEDY)
    if status.is_active or settings.remoting.native_lane in ("off", "python"):
        return fine(_LANE, status.text)
    return note(_LANE, status.text, _LANE_REMEDY)


def environment(settings: Settings) -> Iterator[Finding]:
    """Check the variables that Java, Spark and Hadoop read, if there are any."""
    names = foreign_variables(os.environ)
    if not names:
        return
    masters = [settings.streaming.master, *([settings.history.master] if settings.has_history else [])]
    shown, cluster = ", ".join(names), next((master for master in masters if not is_one_process(master)), None)
    if cluster is None:
        yield fine("environment", f"{shown}: Spark and the embedded Kafka of this product ignore them")
        return
    try:
        check_cluster_variables(os.environ)
    except ConfigError as error:
        yield fault("environment", f"{error.key}: {error.reason}", f"correct {error.key}, or start the job without it")
    else:
        yield note("environment", f"{shown}: Spark reads them, because its master is {cluster}")


def java_and_jars(settings: Settings) -> Iterator[Finding]:
    """Check Java and the jars. Servers do not need them; the job, the history process and the embedded Kafka do."""
    try:
        yield fine("Java", str(find_java()))
    except PrerequisiteMissing as missing:
        yield _without("Java", missing, settings)
    wanted = [spark_jars(settings.jars.spark_dir)]
    wanted += [kafka_jars(settings.jars.kafka_dir)] if settings.is_kafka_embedded else []
    for jars in wanted:
        try:
            jars.require()
        except PrerequisiteMissing as missing:
            yield _without(jars.name, missing, settings)
        else:
            yield fine(jars.name, str(jars.folder))


def _without(area: str, missing: PrerequisiteMissing, settings: Settings) -> Finding:
    if settings.is_kafka_embedded or not _NEED_JAVA.isdisjoint(running_parts(settings.data.run_dir)):
        return fault(area, missing.name, missing.remedy)
    return note(area, f"{missing.name}: {_FOR_SERVERS}", f"where they run, {missing.remedy}")


def files(settings: Settings) -> Iterator[Finding]:
    """Check the files that settings name: whether this user can read them, and whether the server can use them."""
    named, are_readable = list(named_files(settings)), True
    for key, path in named:
        try:
            path.open("rb").close()
        except OSError as error:
            are_readable = False
            yield fault("files", f"{key} = {path}: {error.strerror}", f"correct {key}, or the rights of that file")
    if not (named and are_readable):
        return
    try:
        require_files(settings)
    except ConfigError as error:
        yield fault("files", f"{error.key} = {error.source}: {error.reason}", "correct that file, or the setting")
    else:
        text = f"{counted(len(named), 'file')} named by settings can be read"
        yield fine("files", text)


def memory(settings: Settings, limit_bytes: int | None) -> Finding:
    """Check that everything ``up`` starts fits into memory: heaps, other memory of JVMs, the product's own processes.

    Args:
        limit_bytes: The memory limit of this process, see :func:`memory_limit_bytes`.
    """
    heaps = [settings.streaming.driver_memory]
    heaps += [settings.history.driver_memory] if settings.has_history else []
    heaps += [settings.embedded_kafka.heap] if settings.is_kafka_embedded else []
    wanted = sum(_bytes(heap) + _JVM_EXTRA_BYTES for heap in heaps) + 3 * _PYTHON_BYTES
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if limit_bytes is not None and limit_bytes < there:
        allowed = f"{limit_bytes / _GIB:.1f} GiB allowed here"
        return note("memory", f"{allowed}; all processes of `up` together use at most {wanted / _GIB:.1f} GiB")
    text = f"`up` uses at most {wanted / _GIB:.1f} GiB; the machine has {there / _GIB:.1f} GiB"
    if wanted > there:
        return warning(
            "memory", text, "lower streaming.driver_memory, history.driver_memory, advanced.embedded_kafka.heap"
        )
    return fine("memory", text)


def _bytes(heap: str) -> int:
    return int(heap[:-1]) * (_GIB if heap.endswith("g") else _MIB)


def memory_limit_bytes() -> int | None:
    """Return the memory limit of this process's control group, such as a container's, in bytes; None for no limit."""
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(limit).read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() else None
    return None


def open_files(settings: Settings) -> Finding:
    """Check that the limit of open files allows all permitted connections at the same time."""
    allowed, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.remoting.max_connections + settings.http.max_connections + _OTHER_FILES
    text = f"{allowed} allowed, {wanted} needed for remoting.max_connections and advanced.http.max_connections"
    if allowed in (resource.RLIM_INFINITY, -1) or allowed >= wanted:
        return fine("open files", text)
    if highest == resource.RLIM_INFINITY or highest >= wanted:
        return warning(
            "open files", text, f"run `ulimit -n {wanted}` before the start, or set LimitNOFILE={wanted} in systemd"
        )
    return warning("open files", text, f"raise the hard limit of {highest}, or lower remoting.max_connections")


def disk(settings: Settings) -> Iterator[Finding]:
    """Check that the directories can be written, and how much space is free.

    Tables outside the data directory may be read-only: a server, perhaps on another machine, only reads them.
    """
    for key, folder in _folders(settings).items():
        there = _nearest(folder)
        if not os.access(there, os.W_OK | os.X_OK):
            if key == _TABLES and there == folder.absolute() and os.access(there, os.R_OK | os.X_OK):
                yield note(
                    "disk", f"{key} = {folder}: is read-only: {_FOR_SERVERS}", f"where they run, chown it or set {key}"
                )
                continue
            yield fault("disk", f"{key} = {folder}: {there} cannot be written", f"chown it, or set {key}")
            continue
        free = shutil.disk_usage(there).free
        text = f"{key} = {folder}: {free / _GIB:.1f} GiB free"
        if free < _NO_DISK_BYTES:
            yield fault("disk", text, f"free some space (the log and the tables grow), or set {key}")
        elif free < _LOW_DISK_BYTES:
            yield warning("disk", text, f"free some space, or set {key}")
        else:
            yield fine("disk", text)


def _folders(settings: Settings) -> dict[str, Path]:
    data = settings.data
    folders = {"data.dir": data.dir}
    if data.tables and data.store is None:
        folders[_TABLES] = data.tables_dir
    return folders


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it."""
    return next(f for f in (folder.absolute(), *folder.absolute().parents) if f.exists())


def clock_sync() -> Finding:
    """Check that this machine's clock is synchronized, according to the kernel."""
    remedy = "run chrony or systemd-timesyncd: reports and --as-of depend on clocks (expiry does not)"
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (AttributeError, OSError):
        return note("clock", "this system does not report whether it is synchronized")
    if state < 0:
        return note("clock", "this system does not report whether it is synchronized")
    if state == _TIME_ERROR:
        return note(
            "clock", "it is not synchronized, according to the kernel (which may not know in a container)", remedy
        )
    return fine("clock", "synchronized by NTP, according to the kernel")
