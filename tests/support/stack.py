"""The whole product as a user runs it: `namesrv-stream up` with a new data directory."""

import json
import os
import re
import signal
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars

from namesrv_stream.processes import read_run_file
from namesrv_stream.settings import Settings
from namesrv_stream.settings.names import public_key
from tests.support.kafka import REPOSITORY, settings_for
from tests.support.processes import Process, wait_until

READY = re.compile(r"^READY remoting=(\S+) http=(\S+) kafka=(\S+) data=(\S+)$", re.MULTILINE)
READY_TIMEOUT_S = 120.0
JOB_TIMEOUT_S = 180.0


class Stack:
    """Kafka, Spark job and server under one supervisor; a restart continues with the same data directory.

    Args:
        data_dir: The data directory.
        flags: Settings, ``section__key="value"``.
    """

    def __init__(self, data_dir: Path, **flags: str | int) -> None:
        self.data_dir = data_dir
        # Most tests need no history; its Spark would occupy a core for ten seconds.
        flags = {"history__enabled": "false", **flags}
        self.settings: Settings = settings_for(data_dir, **flags)
        sets = {
            "remoting.listen_host": "127.0.0.1",
            "remoting.listen_port": self.settings.remoting.listen_port,
            "http.listen_port": self.settings.http.listen_port,
            "embedded_kafka.listen_port": self.settings.embedded_kafka.listen_port,
            "advanced.embedded_kafka.heap": self.settings.embedded_kafka.heap,
            **{public_key(name.replace("__", ".", 1)): value for name, value in flags.items()},
        }
        self._process = Process(
            "up",
            [
                *(sys.executable, "-m", "namesrv_stream", "up", "--data-dir", data_dir),
                *(part for key, value in sets.items() for part in ("--set", f"{key}={value}")),
            ],
            data_dir.parent / f"{data_dir.name}-up.log",
            cwd=REPOSITORY,
            stdout_path=data_dir.parent / f"{data_dir.name}-up.out",
        )

    def start(self) -> None:
        """Start it and wait for its READY line.

        Raises:
            AssertionError: ``up`` ended, or was not ready in time; shows its log.
        """
        self._process.start()
        wait_until(self._is_ready_or_dead, READY_TIMEOUT_S, f"READY line of up; see {self._process.log_path}")
        assert self._process.is_alive, self._process.log_text()

    def wait_job(self) -> None:
        """Wait until the Spark job has committed its first batch."""
        wait_until(lambda: self._run_file("job"), JOB_TIMEOUT_S, f"first batch of the job; see {self.data_dir}/logs")

    def stop(self) -> int | None:
        """Stop ``up`` (SIGTERM); returns its exit code."""
        self._process.terminate(30)
        return self._process.exit_code

    def close(self) -> None:
        self._process.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._process.is_alive:
                self.stop()
        finally:
            self.close()

    @property
    def remoting(self) -> str:
        """HOST:PORT for brokers and clients, from the READY line."""
        return self._ready_line()[1]

    @property
    def http(self) -> str:
        return self._ready_line()[2]

    @property
    def output(self) -> str:
        """The output of ``up`` on the terminal."""
        return self._process.log_text()

    def pid(self, part: str) -> int:
        """Return the current process id of ``serve`` or ``job``."""
        return int(self._run_file(part)["pid"])

    def kill(self, part: str) -> None:
        """Kill one part with SIGKILL; returns when its successor is ready."""
        old = wait_until(lambda: self.pid(part), JOB_TIMEOUT_S, f"{part} runs", ignoring=(KeyError, TypeError))
        os.kill(old, signal.SIGKILL)
        wait_until(
            lambda: self._run_file(part) and self.pid(part) != old,
            JOB_TIMEOUT_S,
            f"{part} is restarted",
            ignoring=(KeyError, TypeError),
        )

    def get(self, path: str) -> Any:
        """Return the JSON at a path of the HTTP port."""
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=60) as answer:
            return json.load(answer)

    def changes(self, **equal: object) -> list[dict[str, Any]]:
        """Return the rows of ``route_changes`` whose columns have these values, in log order."""
        path = self.settings.data.tables_dir / "route_changes"
        if not (path / "_delta_log").exists():
            return []
        frame = polars.read_delta(str(path)).sort("partition", "offset", "seq")
        for column, value in equal.items():
            frame = frame.filter(polars.col(column) == value)
        return frame.to_dicts()

    def wait_change(self, timeout_s: float = 30.0, **equal: object) -> list[dict[str, Any]]:
        """Wait until there are rows with these values."""
        return wait_until(lambda: self.changes(**equal), timeout_s, f"a row of route_changes with {equal}")

    def _run_file(self, part: str) -> dict[str, str | int]:
        return read_run_file(self.settings.data.run_dir / f"{part}.json") or {}

    def _ready_line(self) -> re.Match[str]:
        found = READY.search(self._stdout())
        assert found is not None, "up is not ready"
        return found

    def _is_ready_or_dead(self) -> bool:
        return READY.search(self._stdout()) is not None or not self._process.is_alive

    def _stdout(self) -> str:
        path = self._process.stdout_path
        return path.read_text() if path is not None and path.exists() else ""
