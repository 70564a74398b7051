"""Brokers that a test can kill."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.kafka import REPOSITORY
from tests.support.processes import Process
from tests.support.stack import Stack


class AgentProcess:
    """``namesrv-stream agent`` with the brokers of one cluster; a context manager."""

    def __init__(self, folder: Path, stack: Stack, cluster: str, brokers: int = 1, topics: int = 2) -> None:
        command = [sys.executable, "-m", "namesrv_stream", "agent", "-n", stack.remoting, "--cluster", cluster]
        command += ["--name", f"{cluster}-broker", "--brokers", str(brokers), "--topics", str(topics)]
        command += ["--topic", "Shared", "--heartbeat-interval", "5s"]
        self._process = Process(f"agent-{cluster}", command, folder / f"agent-{cluster}.log", cwd=REPOSITORY)

    def start(self) -> None:
        self._process.start()

    def kill(self) -> None:
        """Kill it with SIGKILL: the machine closes its connections."""
        self._process.kill()

    def close(self) -> None:
        self._process.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
