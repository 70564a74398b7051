"""The asyncio event loop of a simulated process. It has no selector: only timers, callbacks and simulated sockets."""

import asyncio
from asyncio.events import AbstractEventLoop, Handle, TimerHandle
from asyncio.futures import Future
from asyncio.tasks import Task
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any

from tests.simulation.runtime.network import Listener, Network, SimSocket
from tests.simulation.runtime.process import SECOND, Process
from tests.simulation.runtime.scheduler import Scheduler, Timer


class _SimTimer(TimerHandle):
    __slots__ = ("timer",)
    timer: Timer


_Base: Any = AbstractEventLoop  # the product does not use its other methods


class SimLoop(_Base):  # type: ignore[misc]
    """One loop, which runs in a thread of its own while callbacks are ready.

    A callback that blocks stops the loop, as in production: the loop of another process goes on.
    """

    def __init__(self, scheduler: Scheduler, process: Process, network: Network) -> None:
        self._scheduler, self._process, self._network = scheduler, process, network
        self._callbacks: deque[Handle] = deque()
        self._tasks: dict[Task[Any], None] = {}
        self._is_scheduled = False
        self._is_blocked = False  # a callback blocks, or the loop is running
        self.signals: dict[int, Callable[[], None]] = {}
        process.loop = self
        self._thread = scheduler.start_thread(process, "loop", self._run)
        self._thread.loop = self

    # ---- running ----

    def _run(self) -> None:
        while True:
            self._is_blocked = True
            for _ in range(len(self._callbacks)):
                handle = self._callbacks.popleft()
                if not handle._cancelled:
                    handle._run()
            self._is_blocked = False
            if self._callbacks:
                self._schedule()
            self._scheduler.park()

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_blocked:
            self._is_scheduled = True
            self._scheduler.soon(self._process, self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self._scheduler.switch(self._thread)

    def discard(self) -> None:
        """Drop all callbacks and tasks of a killed process, in a fixed order."""
        self._callbacks.clear()
        for task in list(self._tasks):
            with suppress(BaseException):  # whatever its clean-up raises, nobody sees it
                task.get_coro().close()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.clear()
        self._callbacks.clear()

    # ---- asyncio's interface ----

    def time(self) -> float:
        return self._process.machine.monotonic_us() / SECOND

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self._process.is_alive

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Handle:
        handle = Handle(callback, args, self, context)
        self._callbacks.append(handle)
        self._schedule()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self.time() + max(0.0, delay), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        handle = _SimTimer(when, callback, args, self, context)

        def fire() -> None:
            self._callbacks.append(handle)
            self._schedule()

        # Rounded up: a timer never fires early.
        at = -int(-when * SECOND // self._process.machine.rate)
        handle.timer = self._scheduler.at(at, self._process, fire)
        return handle

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        assert isinstance(handle, _SimTimer)
        handle.timer.cancel()

    def create_future(self) -> Future[Any]:
        return Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Task[Any]:
        task: Task[Any] = Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run a function in a new thread, whichever executor was meant."""
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self.call_soon_threadsafe(_settle, future, None, error)
            else:
                self.call_soon_threadsafe(_settle, future, result, None)

        self._scheduler.start_thread(self._process, "executor", work)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception):
            self._scheduler.failures.append((self._process, str(context.get("message")), error))

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        def signalled() -> None:
            self.call_soon(callback, *args)

        self._process.on_signal = signalled

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **named: Any) -> Any:
        sock: SimSocket = named["sock"]
        return self._network.listen(self._process, sock.getsockname(), protocol_factory)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **named: Any) -> Any:
        return await self._network.connect(self, self._process, (str(host), int(port)), protocol_factory)

    def get_exception_handler(self) -> None:
        return None


def _settle(future: Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def start_loop(
    scheduler: Scheduler, network: Network, process: Process, main: Callable[[], Coroutine[Any, Any, int]]
) -> SimLoop:
    """Run a coroutine as the main program of a process, which ends with it."""
    loop = SimLoop(scheduler, process, network)

    def ended(task: Task[int]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BaseException):
            process.memory["error"] = error
        code = getattr(error, "exit_code", 1) if error is not None or task.cancelled() else task.result()
        scheduler.soon(None, lambda: process.kill(code))

    def begin() -> None:
        loop.create_task(main(), name="main").add_done_callback(ended)

    loop.call_soon(begin)
    return loop


__all__ = ["Listener", "SimLoop", "asyncio", "start_loop"]
