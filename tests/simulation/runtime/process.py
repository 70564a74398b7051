"""Machines with clocks of their own, and the processes that run on them.

Times are microseconds of virtual time since the start of the simulation, unless a name says otherwise.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.simulation.runtime.scheduler import Scheduler, SimThread

MS: Final = 1_000
SECOND: Final = 1_000_000
#: Wall-clock time at which every simulation starts, epoch milliseconds.
EPOCH_MS: Final = 1_800_000_000_000


class Machine:
    """A computer. ``rate`` is the speed of its clocks, and its wall clock is off by ``ahead_ms``."""

    def __init__(self, scheduler: "Scheduler", name: str, host: str) -> None:
        self.name, self.host = name, host
        self.rate = 1.0
        self.ahead_ms = 0
        self._scheduler = scheduler

    def monotonic_us(self) -> int:
        return int(self._scheduler.now * self.rate)

    def wall_ms(self) -> int:
        return EPOCH_MS + self.monotonic_us() // MS + self.ahead_ms


class Process:
    """A process on a machine. ``kill`` ends it without a chance to clean up, ``pause`` stops it for a while.

    Attributes:
        exit_code: How it ended; None while it runs.
        memory: What the product keeps in global variables of its process.
    """

    def __init__(self, scheduler: "Scheduler", name: str, machine: Machine) -> None:
        self.name, self.machine = name, machine
        self.is_alive = True
        self.exit_code: int | None = None
        self.is_paused = False
        self.resumed_at = 0
        self.threads: dict[SimThread, None] = {}
        self.loop: Any = None
        self.memory: dict[str, Any] = {}
        self.on_exit: list[Callable[[], None]] = []
        self.on_signal: Callable[[], None] | None = None
        self._scheduler = scheduler
        self._held: deque[Callable[[], None]] = deque()

    def call(self, callback: Callable[[], None]) -> None:
        """Run a callback as a part of this process, when it is its turn."""
        self._scheduler.soon(self, callback)

    def hold(self, callback: Callable[[], None]) -> None:
        self._held.append(callback)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused, self.resumed_at = False, self._scheduler.now
        while self._held:
            self._scheduler.soon(self, self._held.popleft())

    def kill(self, exit_code: int = -9) -> None:
        """End the process. Its code sees an exception that it cannot handle, and has no effect any more."""
        if not self.is_alive:
            return
        self.is_alive, self.exit_code = False, exit_code
        self._held.clear()
        scheduler, before = self._scheduler, self._scheduler.current
        for thread in list(self.threads):
            thread.end()
        scheduler.current = self
        if self.loop is not None:
            self.loop.discard()
        scheduler.current = before
        self.threads.clear()
        for callback in self.on_exit:
            callback()
