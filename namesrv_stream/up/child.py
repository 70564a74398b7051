"""A child process: how it starts, what it prints, and how it ends."""

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from namesrv_stream.jvm import last_failure
from namesrv_stream.logs import kept_line, read_line, safe
from namesrv_stream.processes import kill_session, lower_priority

_KEPT: Final = 2  # number of old files; NAME.1 is the newest
_CHUNK_BYTES: Final = 64 * 1024
_LINE_LIMIT_BYTES: Final = 64 * 1024  # a longer line is cut into several
_KEPT_LINES: Final = 100  # of the output of a child, to explain its end
_DRAIN_S: Final = 1.0  # for output that is still in the pipe after the process has ended


class BoundedLog:
    """Appends lines to a file, and rotates it before it exceeds its limit."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Open ``path`` for appending; its folder is created if absent.

        Args:
            path: The current file; old ones are ``path.1`` and ``path.2``.
            max_bytes: Size at which the file is rotated.
        """
        self._path = path
        self._max_bytes = max_bytes
        self._open()

    def write(self, line: bytes) -> None:
        """Append one line, which ends with its newline.

        Raises:
            OSError: The line is lost. The next one is written if that is possible again.
        """
        if self._file.closed:  # the last rotation failed
            self._open()
        if self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
        self._file.write(line)
        self._size += len(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        for age in range(_KEPT, 0, -1):
            newer = self._path if age == 1 else self._path.with_name(f"{self._path.name}.{age - 1}")
            if newer.exists():
                newer.replace(self._path.with_name(f"{self._path.name}.{age}"))
        self._open()

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab", buffering=0)
        self._size = self._path.stat().st_size


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """Describes the child process to run.

    Attributes:
        name: Name for messages, and of the log file.
        argv: Command line.
        stop_timeout_s: Seconds from SIGTERM to SIGKILL.
        run_file: File that the child writes once it is ready; None if it has none.
        secrets: Variables of its environment in addition to those of all children.
        niceness: Nice value, 0 to 19; a higher one leaves more of the processor to other processes.
        is_required: Whether the installation cannot work without it.
    """

    name: str
    argv: Sequence[str | Path]
    stop_timeout_s: float = 3.0
    run_file: Path | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    niceness: int = 0
    is_required: bool = False


class Child:
    """A running process."""

    def __init__(self, spec: ChildSpec, process: asyncio.subprocess.Process, pump: "asyncio.Task[None]") -> None:
        self._spec = spec
        self._process = process
        self._pump = pump
        # The pump writes them: the latest line that is marked as an error, and the latest other lines.
        self.last_error = ""
        self.last_lines: deque[str] = deque(maxlen=_KEPT_LINES)

    @property
    def reason(self) -> str:
        """Why the child ended: its last line marked as an error, else the end of its output."""
        return self.last_error or safe(last_failure(list(self.last_lines)))

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its session."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait for its end, then kill its remaining processes and store its last output.

        Returns:
            The exit code; negative for the signal that ended it.
        """
        code = await self._process.wait()
        kill_session(self._process.pid)
        await asyncio.wait([self._pump], timeout=_DRAIN_S)
        self._pump.cancel()
        return code

    async def stop(self) -> None:
        """Send SIGTERM; if the child does not end within its time limit, send SIGKILL to its whole session."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self._process.wait(), self._spec.stop_timeout_s)
            except TimeoutError:
                self.kill()
        await self.wait()

    def kill(self) -> None:
        """Send SIGKILL to its whole session."""
        kill_session(self._process.pid)


async def spawn(
    spec: ChildSpec,
    environ: Mapping[str, str],
    inherited_fds: Sequence[int],
    log: BoundedLog,
    on_progress: Callable[[str], None],
) -> Child:
    """Start a child.

    It gets a session of its own: a Ctrl-C on the terminal reaches only ``up``, which then stops everything in order.

    Args:
        environ: Its environment, without its secrets.
        inherited_fds: Descriptors that it inherits.
        log: The log for its stdout and stderr.
        on_progress: Called with the text of every line that is marked as progress.
    """
    # Not a pipe of asyncio, with which wait() would return only after every descendant has closed its end.
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *spec.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            start_new_session=True,
            env={**environ, **spec.secrets},
            pass_fds=tuple(inherited_fds),
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    if spec.niceness:
        lower_priority(process.pid, spec.niceness)
    lines = _Lines(spec.name, log, on_progress)
    pump = asyncio.get_running_loop().create_task(_pump(read_end, lines), name=f"{spec.name}-output")
    child = Child(spec, process, pump)
    lines.child = child
    return child


class _Lines:
    """Copies a child's output to its log, and passes lines marked as progress or error on."""

    def __init__(self, program: str, log: BoundedLog, on_progress: Callable[[str], None]) -> None:
        self._program = program
        self._log = log
        self._on_progress = on_progress
        self.child: Child | None = None

    def take(self, raw: bytes) -> None:
        line = raw.decode("utf-8", "replace")
        if not line.strip():
            return
        with contextlib.suppress(OSError):  # a full disk must not stop the child, which would block on its pipe
            self._log.write(kept_line(self._program, line).encode() + b"\n")
        mark, text = read_line(line)
        if mark == "progress":
            self._on_progress(text)
        if self.child is None:
            return
        if mark == "error":
            self.child.last_error = text
        else:
            self.child.last_lines.append(text)


async def _pump(read_end: int, lines: _Lines) -> None:
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader(limit=_CHUNK_BYTES)
    pipe = os.fdopen(read_end, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
    rest = b""
    try:
        while chunk := await stream.read(_CHUNK_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                lines.take(line)
            if len(rest) > _LINE_LIMIT_BYTES:
                lines.take(rest)
                rest = b""
    finally:
        transport.close()
        if rest:
            lines.take(rest)
