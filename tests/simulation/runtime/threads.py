"""``threading``, ``queue`` and ``time`` for the product's code, on simulated threads.

Only what the product uses is here. A lock needs no waiting: a thread gives control back only where it blocks, and the
product never blocks while it holds a lock, except for the writer of a table, which waits for others in turn.
"""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from tests.simulation.runtime.process import SECOND
from tests.simulation.runtime.scheduler import Scheduler, SimThread, Waiters


def _us(seconds: float | None) -> int | None:
    return None if seconds is None else max(0, round(seconds * SECOND))


class Lock:
    def __init__(self, scheduler: Scheduler) -> None:
        self._waiters = Waiters(scheduler)
        self._is_held = False

    def acquire(self, timeout: float | None = None) -> bool:
        while self._is_held:
            if not self._waiters.wait(_us(timeout)):
                return False
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False
        self._waiters.wake(1)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._waiters = Waiters(scheduler)
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._waiters.wake()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._waiters.wait(_us(timeout))
        return self._is_set


class Condition:
    def __init__(self, scheduler: Scheduler) -> None:
        self._waiters = Waiters(scheduler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def notify(self) -> None:
        self._waiters.wake(1)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        if not predicate():
            self._waiters.wait(_us(timeout))
        return predicate()


class Semaphore:
    def __init__(self, scheduler: Scheduler, value: int) -> None:
        self._waiters = Waiters(scheduler)
        self._value = value

    def acquire(self) -> None:
        while not self._value:
            self._waiters.wait()
        self._value -= 1

    def release(self) -> None:
        self._value += 1
        self._waiters.wake(1)


class Thread:
    """A thread of the process that creates it."""

    def __init__(
        self, scheduler: Scheduler, target: Callable[..., Any], name: str, args: tuple[Any, ...] = (), **_: object
    ) -> None:
        self._scheduler, self._target, self.name, self._args = scheduler, target, name, args
        self.thread: SimThread | None = None
        self._done = Waiters(scheduler)

    def start(self) -> None:
        process = self._scheduler.current
        assert process is not None
        self.thread = self._scheduler.start_thread(process, self.name, lambda: self._target(*self._args))
        self.thread.on_done.append(self._done.wake)

    def is_alive(self) -> bool:
        return self.thread is not None and not self.thread.is_done

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            self._done.wait(_us(timeout))


class SimpleQueue:
    def __init__(self, scheduler: Scheduler) -> None:
        self._items: deque[Any] = deque()
        self._waiters = Waiters(scheduler)

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._waiters.wake(1)

    def get(self) -> Any:
        while not self._items:
            self._waiters.wait()
        return self._items.popleft()


def threading_of(scheduler: Scheduler) -> Any:
    """Return what replaces ``threading`` in the product's modules."""

    def current_thread() -> Any:
        return scheduler.thread

    def made(kind: type[Any]) -> Callable[..., Any]:
        return lambda *args, **named: kind(scheduler, *args, **named)

    kinds = {kind.__name__: made(kind) for kind in (Condition, Event, Lock, Semaphore, Thread)}
    return SimpleNamespace(current_thread=current_thread, **kinds)


def queue_of(scheduler: Scheduler) -> Any:
    """Return what replaces ``queue``."""
    return SimpleNamespace(SimpleQueue=lambda: SimpleQueue(scheduler))


def time_of(scheduler: Scheduler) -> Any:
    """Return what replaces ``time``: the clocks of the current process's machine."""

    def monotonic() -> float:
        assert scheduler.current is not None
        return scheduler.current.machine.monotonic_us() / SECOND

    def time() -> float:
        assert scheduler.current is not None
        return scheduler.current.machine.wall_ms() / 1000

    def sleep(seconds: float) -> None:
        scheduler.sleep(round(seconds * SECOND))

    return SimpleNamespace(monotonic=monotonic, time=time, sleep=sleep)


def clock_of(scheduler: Scheduler) -> Any:
    """Return what replaces ``SystemClock``."""

    class SimClock:
        def now_ms(self) -> int:
            assert scheduler.current is not None
            return scheduler.current.machine.wall_ms()

        def monotonic_ms(self) -> int:
            assert scheduler.current is not None
            return scheduler.current.machine.monotonic_us() // 1000

    return SimClock
