"""The product's own processes, started as a user would, and ended whatever happens to the demonstration."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

# Tells a process of ours to end with its parent; see namesrv_stream.up.parent_death.
_PARENT_PID_VARIABLE: Final = "NAMESRV_STREAM_PARENT_PID"
_KEPT_LINES: Final = 200


class DemoProcess:
    """One ``namesrv-stream`` command, in a session of its own so that Ctrl-C reaches the demonstration alone."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Used by ``start``, which is the way to make one."""
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
            name: For messages.
            arguments: Command and flags.
            on_line: Told each line of standard output and standard error.
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
        """SIGKILL: its connections close, it says nothing."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP: it falls silent, its connections stay open."""
        self._is_frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._is_frozen = False
        self._signal(signal.SIGCONT)

    async def stop(self, timeout_s: float) -> int:
        """SIGTERM, and SIGKILL to its whole session if it takes longer.

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
        """Wait for its end; its exit code."""
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
    """Everything on this machine, out of the way of all else: own folder, free ports, loopback only."""
    sets = ("remoting.listen_host=127.0.0.1", "embedded_kafka.listen_port=0")
    flags = ["--data-dir", str(data_dir), "--remoting-port", "0", "--http-port", "0"]
    return ["up", *flags, *(word for text in sets for word in ("--set", text))]
