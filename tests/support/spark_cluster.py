"""Spark with several processes: a standalone master with workers, and the executors of ``local-cluster``."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from signal import SIGKILL

import pyspark

from tests.bench.machine import family
from tests.support.processes import Process, free_port, wait_until

SPARK_HOME = Path(pyspark.__file__).parent
_START_S = 180.0
_DAEMON = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Worker:
    """A standalone worker and its executors in one process group, so that a test can kill all at once."""

    def __init__(self, name: str, master: str, folder: Path, memory: str, pinning: Sequence[str] = ()) -> None:
        self._work_dir = folder / name
        self._process = Process(
            name,
            [
                *pinning,
                *(SPARK_HOME / "bin" / "spark-class", "org.apache.spark.deploy.worker.Worker"),
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", str(free_port())),
                *("--cores", "1", "--memory", memory, "--work-dir", self._work_dir, master),
            ],
            folder / f"{name}.log",
            # The executors must receive this package from the driver.
            env=_DAEMON | {"SPARK_LOCAL_DIRS": str(folder / f"{name}-local"), "PYTHONPATH": ""},
            cwd=folder,
        )

    @property
    def holds_state(self) -> bool:
        """Whether one of its executors has opened a part of the fold's state."""
        return any("RocksDB" in log.read_text(errors="replace") for log in self._work_dir.glob("app-*/*/stderr"))

    def start(self) -> None:
        self._process.start()
        self._process.wait_for_log("Successfully registered with master", _START_S)

    def kill(self) -> None:
        """Kill the worker and its executors."""
        self._process.close()

    close = kill


class Cluster:
    """A master and its workers."""

    def __init__(self, url: str, workers: list[Worker]) -> None:
        self.url = url
        self.workers = workers


@contextmanager
def standalone_cluster(
    folder: Path, workers: int = 2, memory: str = "512m", *, is_pinned: bool = False
) -> Iterator[Cluster]:
    """Start a master and workers with one core each; all of them end with the context.

    Args:
        folder: Folder for logs and files.
        workers: Number of workers.
        memory: Memory of each worker.
        is_pinned: Whether all processes of a worker are limited to one core of the machine.
    """
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    folder.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [SPARK_HOME / "bin" / "spark-class", "org.apache.spark.deploy.master.Master"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
    with ExitStack() as stack:
        master = stack.enter_context(Process("master", command, folder / "master.log", env=_DAEMON, cwd=folder))
        master.wait_for_log("I have been elected leader", _START_S)
        started = []
        for number in range(workers):
            worker = Worker(f"worker-{number}", url, folder, memory, pinning=_core(number) if is_pinned else ())
            stack.callback(worker.close)
            worker.start()
            started.append(worker)
        yield Cluster(url, started)


def _core(number: int) -> list[str]:
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "--cpu-list", str(cores[number % len(cores)])]


def spark_home_of_its_own(folder: Path) -> Path:
    """Make a SPARK_HOME with its own ``work`` folder, since ``local-cluster`` writes there without a setting."""
    folder.mkdir(parents=True)
    for part in SPARK_HOME.iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part)
    return folder


def executors_of(driver: int) -> list[int]:
    """Return the process ids of the executors below a process, oldest first."""
    found = []
    for pid in sorted(family(driver)):
        with suppress(OSError):
            if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
    return found


def kill_one_executor(driver: int) -> None:
    """Kill the newest executor; returns when another has replaced it."""
    before = executors_of(driver)
    os.kill(before[-1], SIGKILL)
    wait_until(
        lambda: len(set(executors_of(driver)) - {before[-1]}) >= len(before), _START_S, "another executor replaces it"
    )
