"""The processes of the demo: the product, and the brokers that register with it."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from namesrv_stream.client import NameServers, topic_route
from namesrv_stream.errors import NamesrvStreamError, TopicNotExist
from namesrv_stream.tools.demo.output import History, Output

# Makes a process of the product end with its parent; see namesrv_stream.processes.
_PARENT_PID_VARIABLE: Final = "NAMESRV_STREAM_PARENT_PID"
_KEPT_LINES: Final = 200
CLUSTER: Final = "demo"
TOPIC: Final = "orders"
_READY: Final = re.compile(r"READY remoting=(\S+) http=(\S+) kafka=(\S+) data=(.+)")
_STAMP: Final = re.compile(r"^\[ *[\d.]+ s\] ")  # the demo prints its own
_JOB_READY: Final = "committed its first batch"
_START_S: Final = 180.0
_STOP_S: Final = 15.0
_POLL_S: Final = 0.02
_FIRST_PORT: Final = 20_911  # of the brokers' addresses; nothing listens there


class DemoProcess:
    """One ``namesrv-stream`` command, in a session of its own so that Ctrl-C reaches the demo only."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Use ``start`` instead."""
        self.name = name
        #: The newest lines of both streams.
        self.lines: list[str] = []
        self._process = process
        self._pumps: list[asyncio.Task[None]] = []
        self._is_frozen = False

    @classmethod
    async def start(
        cls,
        name: str,
        arguments: list[str],
        on_line: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Start ``namesrv-stream ARGUMENTS``.

        Args:
            name: Name of the process in messages.
            arguments: Command and flags.
            on_line: Called with every line of standard output and standard error.
        """
        environ = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "namesrv_stream",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=environ | {_PARENT_PID_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
        )
        started = cls(name, process)
        loop = asyncio.get_running_loop()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                started._pumps.append(loop.create_task(started._pump(stream, on_line)))
        return started

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    def kill(self) -> None:
        """Send SIGKILL: the connections of the process close, and it does not unregister."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Send SIGSTOP: the process sends no more heartbeats, but its connections stay open."""
        self._is_frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT: the process continues."""
        self._is_frozen = False
        self._signal(signal.SIGCONT)

    async def stop(self, timeout_s: float) -> int:
        """Send SIGTERM, and after the time limit SIGKILL to its whole session.

        Returns:
            Its exit code.
        """
        if self._is_frozen:
            self.thaw()
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                code = await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            code = await self._process.wait()
        await asyncio.wait(self._pumps, timeout=1)
        return code

    async def wait(self) -> int:
        """Wait until it ends; returns its exit code."""
        return await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _pump(self, stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
        async for raw in stream:
            line = raw.decode("utf-8", "replace").rstrip()
            self.lines.append(line)
            del self.lines[:-_KEPT_LINES]
            on_line(line)


def up_arguments(data_dir: Path) -> list[str]:
    """Return the arguments of `up` for a separate installation: its own folder, free ports, loopback only."""
    sets = ("remoting.listen_host=127.0.0.1", "embedded_kafka.listen_port=0")
    flags = ["--data-dir", str(data_dir), "--remoting-port", "0", "--http-port", "0"]
    return ["up", *flags, *(argument for text in sets for argument in ("--set", text))]


class StepFailed(NamesrvStreamError):
    """A step did not have its expected result."""


class StartFailed(StepFailed):
    """The product did not start.

    Attributes:
        exit_code: That of `up`.
    """

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code  # type: ignore[misc] # of this one error


@dataclass(slots=True)
class Stage:
    """The processes that the steps act on.

    Attributes:
        brokers: The running broker agents by broker name.
        name_server: Address of the name server, once it runs.
    """

    output: Output
    data_dir: Path
    history: History
    brokers: dict[str, DemoProcess] = field(default_factory=dict)
    name_server: str = ""
    up: DemoProcess | None = None
    servers: NameServers | None = None
    is_job_ready: bool = False

    async def start_up(self) -> None:
        """Start Kafka, the job and the server, and wait for READY.

        Raises:
            StartFailed: `up` ended; contains its reason.
            StepFailed: The processes were not ready in time.
        """
        up = self.up = await DemoProcess.start("up", up_arguments(self.data_dir), self._on_line_of_up)
        await self.measure(lambda: bool(self.name_server) or up.exit_code is not None, _START_S, "READY")
        if not self.name_server:
            code = await up.stop(_STOP_S)
            reasons = [line.removeprefix("error: ") for line in up.lines if line.startswith("error: ")]
            raise StartFailed(reasons[-1] if reasons else f"`up` ended with {code}: {up.lines[-1:]}", code)
        self.servers = NameServers([self.name_server])

    async def start_broker(self, name: str, *flags: str) -> None:
        """Start a broker agent that serves the topic."""
        addr = f"127.0.0.1:{_FIRST_PORT + 10 * len(self.brokers)}"
        identity = ("--cluster", CLUSTER, "--name", name, "--addr", addr)
        arguments = ["agent", "-n", self.name_server, *identity, "--topics", "0", "--topic", TOPIC, *flags]
        self.brokers[name] = await DemoProcess.start(name, arguments)

    async def serving(self) -> frozenset[str]:
        """Names of the brokers in the present route of the topic."""
        assert self.servers is not None, "the name server runs"
        try:
            return (await topic_route(self.servers, TOPIC)).broker_names
        except TopicNotExist:
            return frozenset()

    async def until_serving(self, names: set[str], limit_s: float) -> float:
        """Wait until exactly these brokers serve the topic.

        Args:
            names: Broker names; empty for no route.
            limit_s: Time limit in seconds.

        Returns:
            Seconds until these brokers served it.

        Raises:
            StepFailed: The time limit passed before.
        """

        async def is_so() -> bool:
            return await self.serving() == names

        return await self.measure(is_so, limit_s, f"the route to be {', '.join(sorted(names)) or 'empty'}")

    async def measure(self, condition: Callable[[], bool | Awaitable[bool]], limit_s: float, what: str) -> float:
        """Check every 20 ms until a condition is true.

        Returns:
            Seconds that it took.

        Raises:
            StepFailed: It took longer than ``limit_s``.
        """
        began = time.monotonic()
        while True:
            answer = condition()
            holds = answer if isinstance(answer, bool) else await answer
            took_s = time.monotonic() - began
            if holds and took_s <= limit_s:
                return took_s
            if took_s > limit_s:
                raise StepFailed(f"waited {took_s:.1f} s for {what}; the limit is {limit_s:g} s")
            await asyncio.sleep(_POLL_S)

    async def close(self) -> list[str]:
        """Stop everything.

        Returns:
            A sentence for every process that did not stop cleanly.
        """
        complaints = []
        if self.servers is not None:
            await self.servers.close()
        for broker in [broker for broker in self.brokers.values() if broker.exit_code is None]:
            if code := await broker.stop(_STOP_S):
                complaints.append(f"{broker.name} ended with {code}: {broker.lines[-1:]}")
        if self.up is not None and self.name_server:
            had_ended = self.up.exit_code is not None
            code = await self.up.stop(_STOP_S)
            if code or had_ended:
                complaints.append(f"`up` ended with {code}: {self.up.lines[-1:]}")
        elif self.up is not None:
            await self.up.stop(_STOP_S)
        return complaints

    def _on_line_of_up(self, line: str) -> None:
        if match := _READY.fullmatch(line):
            self.name_server = match[1]
        elif not line.startswith("error: "):
            self.is_job_ready = self.is_job_ready or _JOB_READY in line
            self.output.note(f"up: {_STAMP.sub('', line)}")
