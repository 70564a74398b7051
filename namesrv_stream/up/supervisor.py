"""Keeps children running: restarts a child that ends, with growing delays; stops all of them, the last started first.

States of a child: running → (it ends, or cannot be started) waiting → running …; after :meth:`Supervisor.stop` none is
started. A child that cannot be started is treated like one that ends with 3.

Exit code 2 means that settings or data do not fit. A child that is not required is then started again after the longest
delay, because the reason may be temporary or mended; it is said once. The others continue meanwhile. If a required
child ends with 2 or 3 (a prerequisite is missing) before :attr:`Supervisor.is_settled`, the whole start fails.
Afterwards it is restarted like any other: for example, another process took its port while it was down.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from namesrv_stream.client.server_link import BackOff
from namesrv_stream.processes import read_run_file
from namesrv_stream.up.child import BoundedLog, Child, ChildSpec, spawn

_REFUSED: Final = 2
_PREREQUISITE_MISSING: Final = 3
_RUN_FILE_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class ChildFailure:
    """Says which required child ended and so made the start fail.

    Attributes:
        name: The child.
        exit_code: 2 or 3.
        reason: Why it ended, in its own words.
    """

    name: str
    exit_code: int
    reason: str


class Supervisor:
    """Runs children; used from one event loop."""

    def __init__(
        self,
        logs_dir: Path,
        environ: Mapping[str, str],
        print_line: Callable[[str], None],
        inherited_fds: Sequence[int] = (),
        max_log_bytes: int = 10 << 20,
        back_off: BackOff | None = None,
        healthy_s: float = 60.0,
    ) -> None:
        """Create a supervisor without children.

        Args:
            logs_dir: Directory of ``NAME.log`` of every child.
            environ: The children's environment.
            print_line: Prints one line on the terminal.
            inherited_fds: Descriptors that the children inherit.
            max_log_bytes: Size at which a log file is rotated.
            back_off: Delays before a child is restarted; every child has its own copy.
            healthy_s: If a child has run for this long, the delays before its restarts begin with the shortest again.
        """
        self._logs_dir = logs_dir
        self._environ = environ
        self._print_line = print_line
        self._inherited_fds = inherited_fds
        self._max_log_bytes = max_log_bytes
        self._back_off = back_off or BackOff(500, 30_000, jitter=0)
        self._healthy_s = healthy_s
        self._keepers: dict[str, asyncio.Task[None]] = {}  # in start order
        self._running: dict[str, Child] = {}  # the keepers write it
        self._is_stopping = False
        self._is_hurried = False
        self.is_settled = False  # the owner sets it once the start has succeeded
        # A child that makes the start fail, or an error of the supervisor itself.
        self.failure: asyncio.Future[ChildFailure] = asyncio.get_running_loop().create_future()

    def start(self, spec: ChildSpec) -> None:
        """Start a child and keep it running."""
        if spec.run_file is not None:
            spec.run_file.unlink(missing_ok=True)
        keeper = asyncio.get_running_loop().create_task(self._keep(spec), name=f"{spec.name}-keeper")
        keeper.add_done_callback(self._keeper_ended)
        self._keepers[spec.name] = keeper

    def pid(self, name: str) -> int | None:
        """Return the process id of a child; None while it is not running."""
        child = self._running.get(name)
        return child.pid if child else None

    async def wait_ready(self, spec: ChildSpec) -> dict[str, str | int]:
        """Wait for a child's run file and return its content."""
        assert spec.run_file is not None
        # Another process writes it, so there is no event to wait for.
        while (fields := read_run_file(spec.run_file)) is None:  # noqa: ASYNC110
            await asyncio.sleep(_RUN_FILE_POLL_S)
        return fields

    async def stop(self) -> None:
        """Stop all children, the last started first, each within its own time limit."""
        self._is_stopping = True
        for name, keeper in reversed(self._keepers.items()):
            child = self._running.get(name)
            if child is None:
                keeper.cancel()
            elif self._is_hurried:
                child.kill()
            else:
                await child.stop()
            await asyncio.wait([keeper])

    def hurry(self) -> None:
        """Kill the running children; a ``stop`` that is in progress then ends at once."""
        self._is_hurried = True
        for child in self._running.values():
            child.kill()

    async def _keep(self, spec: ChildSpec) -> None:
        log = BoundedLog(self._logs_dir / f"{spec.name}.log", self._max_log_bytes)
        back_off, told = replace(self._back_off), ""
        try:
            while True:
                began = time.monotonic()
                try:
                    child, code = await self._run_once(spec, log)
                except OSError as error:  # no process, memory or descriptor is free, or a file is missing
                    code, reason, end = _PREREQUISITE_MISSING, str(error), "cannot be started"
                else:
                    reason, end = child.reason, describe_exit(code)
                if self._is_stopping:
                    return
                if spec.is_required and not self.is_settled and code in (_REFUSED, _PREREQUISITE_MISSING):
                    self._fail(ChildFailure(spec.name, code, reason))
                    return
                if time.monotonic() - began >= self._healthy_s:
                    back_off.reset()
                if code == _REFUSED and not spec.is_required:
                    wait_s = back_off.max_ms / 1000
                    text = f"cannot run: {reason or 'see its log'}; the others continue; trying it every {wait_s:g} s"
                else:
                    wait_s = back_off.next_delay_ms() / 1000
                    detail = f" ({reason})" if reason and code > 0 else ""
                    text = f"{end}{detail}; restarting it in {wait_s:g} s"
                if code != _REFUSED or text != told:
                    self._print_line(f"{spec.name} {text}")
                told = text
                await asyncio.sleep(wait_s)
        finally:
            log.close()

    async def _run_once(self, spec: ChildSpec, log: BoundedLog) -> tuple[Child, int]:
        if spec.run_file is not None:
            spec.run_file.unlink(missing_ok=True)
        child = await spawn(
            spec,
            self._environ,
            self._inherited_fds,
            log,
            on_progress=lambda text: self._print_line(f"{spec.name}: {text}"),
        )
        self._running[spec.name] = child
        try:
            return child, await child.wait()
        finally:
            del self._running[spec.name]
            if spec.run_file is not None:
                spec.run_file.unlink(missing_ok=True)

    def _keeper_ended(self, keeper: asyncio.Task[None]) -> None:
        if not keeper.cancelled() and (error := keeper.exception()) is not None and not self.failure.done():
            self.failure.set_exception(error)

    def _fail(self, failure: ChildFailure) -> None:
        if not self.failure.done():
            self.failure.set_result(failure)


def describe_exit(code: int) -> str:
    """Return an exit code in words: ``ended with exit code 1``, ``was ended by SIGKILL``."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
