"""Virtual time and simulated threads.

A simulation is one thread of Python. A simulated thread is a greenlet: the product's code runs in it unchanged and
gives control back whenever it would block. The scheduler runs whatever is ready, and then jumps to the next timer. So
waiting costs nothing, and the order of everything follows from the seed.

Times are microseconds of virtual time since the start of the simulation, unless a name says otherwise.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from tests.simulation.runtime.process import Process


class Timer:
    """A call at a time; ``cancel`` prevents it."""

    __slots__ = ("call", "process")

    def __init__(self, process: "Process | None", call: Callable[[], None] | None) -> None:
        self.process = process
        self.call = call

    def cancel(self) -> None:
        self.call = None


class SimThread:
    """A thread of a simulated process."""

    __slots__ = ("_scheduler", "failure", "greenlet", "is_done", "loop", "name", "on_done", "process", "ticket")

    def __init__(self, scheduler: "Scheduler", process: Process, name: str, target: Callable[[], Any]) -> None:
        self.process, self.name = process, name
        self.loop: Any = None  # the event loop that runs in this thread
        self.is_done = False
        self.failure: BaseException | None = None
        self.on_done: list[Callable[[], None]] = []
        self.ticket = 0  # number of the current wait; wakes of earlier waits have no effect
        self._scheduler = scheduler
        self.greenlet = greenlet(lambda: self._run(target), parent=scheduler.hub)
        process.threads[self] = None

    def _run(self, target: Callable[[], Any]) -> None:
        try:
            target()
        except GreenletExit:
            pass
        except BaseException as error:
            self.failure = error
            if self.process.is_alive:
                self._scheduler.thread_failed(self, error)
        self.is_done = True
        self.process.threads.pop(self, None)
        if self.process.is_alive:
            for callback in self.on_done:
                callback()

    def end(self) -> None:
        """Unwind the thread of a killed process."""
        if self.greenlet is not getcurrent():
            self._scheduler.switch(self, is_end=True)


class Scheduler:
    """Runs everything of one simulation.

    Attributes:
        now: Virtual time.
        random: The only source of randomness.
        current: The process whose code runs now.
        steps: Number of calls so far.
    """

    def __init__(self, seed: int, on_trace: Callable[[str], object] | None = None) -> None:
        self.now = 0
        self.random = random.Random(seed)
        self.current: Process | None = None
        self.thread: SimThread | None = None
        self.hub = getcurrent()
        self.steps = 0
        self.failures: list[tuple[Process, str, BaseException]] = []
        self._ready: deque[tuple[Process | None, Callable[[], None]]] = deque()
        self._timers: list[tuple[int, int, Timer]] = []
        self._count = 0
        self._digest = blake2b(digest_size=16)
        self._on_trace = on_trace

    # ---- what happens when ----

    def soon(self, process: Process | None, callback: Callable[[], None]) -> None:
        """Run a callback after everything that is ready now."""
        self._ready.append((process, callback))

    def at(self, when: int, process: Process | None, callback: Callable[[], None]) -> Timer:
        timer = Timer(process, callback)
        self._count += 1
        heappush(self._timers, (max(when, self.now), self._count, timer))
        return timer

    def after(self, delay: int, callback: Callable[[], None], process: Process | None = None) -> Timer:
        return self.at(self.now + delay, process, callback)

    def run(self, until: int) -> None:
        """Run everything up to a time."""
        ready, timers = self._ready, self._timers
        while True:
            while ready:
                process, callback = ready.popleft()
                self._call(process, callback)
            while timers and timers[0][2].call is None:
                heappop(timers)
            if not timers or timers[0][0] > until:
                break
            self.now, _, timer = heappop(timers)
            if timer.call is not None:
                self._call(timer.process, timer.call)
        self.now = max(self.now, until)

    def _call(self, process: Process | None, callback: Callable[[], None]) -> None:
        if process is not None:
            if not process.is_alive:
                return
            if process.is_paused:
                process.hold(callback)
                return
        self.steps += 1
        self.current = process
        callback()
        self.current = None

    # ---- threads ----

    def start_thread(self, process: Process, name: str, target: Callable[[], Any]) -> SimThread:
        thread = SimThread(self, process, name, target)
        self.soon(process, lambda: self.switch(thread))
        return thread

    def switch(self, thread: SimThread, *, is_end: bool = False) -> None:
        """Run a thread until it waits or ends."""
        if thread.is_done:
            return
        outer_process, outer_thread, outer_loop = self.current, self.thread, asyncio._get_running_loop()
        self.current, self.thread = thread.process, thread
        asyncio._set_running_loop(thread.loop)
        try:
            thread.greenlet.parent = getcurrent()
            if is_end:
                thread.greenlet.throw()
                thread.is_done = True
            else:
                thread.greenlet.switch()
        finally:
            self.current, self.thread = outer_process, outer_thread
            asyncio._set_running_loop(outer_loop)

    def park(self, timeout: int | None = None) -> bool:
        """Let the current thread wait for ``wake``, at most for a time. Return whether it was woken."""
        self.check_alive()
        thread = self.thread
        assert thread is not None, "only a simulated thread can wait"
        thread.ticket += 1
        ticket, is_woken = thread.ticket, True

        def expire() -> None:
            nonlocal is_woken
            if thread.ticket == ticket:
                is_woken = False
                self.switch(thread)

        timer = None if timeout is None else self.after(timeout, expire, thread.process)
        parent = thread.greenlet.parent
        assert parent is not None
        parent.switch()
        thread.ticket += 1
        if timer is not None:
            timer.cancel()
        self.check_alive()
        return is_woken

    def check_alive(self) -> None:
        """End the current thread if its process was killed."""
        if self.current is not None and not self.current.is_alive:
            raise GreenletExit

    def wake(self, thread: SimThread, ticket: int) -> None:
        """End the wait with this ticket of a thread."""

        def resume() -> None:
            if thread.ticket == ticket:
                self.switch(thread)

        self.soon(thread.process, resume)

    def sleep(self, duration: int) -> None:
        self.park(duration)

    def thread_failed(self, thread: SimThread, error: BaseException) -> None:
        self.failures.append((thread.process, thread.name, error))

    # ---- the trace ----

    def trace(self, text: str) -> None:
        """Record what happened. Two runs of a seed have the same trace."""
        line = f"{self.now} {text}\n"
        self._digest.update(line.encode())
        if self._on_trace is not None:
            self._on_trace(line)

    def trace_digest(self) -> str:
        with suppress(AttributeError):
            return self._digest.copy().hexdigest()
        return ""


class Waiters:
    """The threads that wait for something."""

    __slots__ = ("_scheduler", "_waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[tuple[SimThread, int]] = deque()

    def wait(self, timeout: int | None = None) -> bool:
        """Let the current thread wait. Return whether it was woken before the time was over."""
        self._scheduler.check_alive()
        thread = self._scheduler.thread
        assert thread is not None, "only a simulated thread can wait"
        self._waiting.append((thread, thread.ticket + 1))
        return self._scheduler.park(timeout)

    def wake(self, count: int | None = None) -> None:
        """Wake the threads that have waited longest; all of them without a count."""
        while self._waiting and (count is None or count > 0):
            thread, ticket = self._waiting.popleft()
            if thread.ticket == ticket and not thread.is_done:
                self._scheduler.wake(thread, ticket)
                count = None if count is None else count - 1
