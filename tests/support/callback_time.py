"""Measures the processor time of every callback of an asyncio event loop.

While a callback runs, every other connection of the server waits. So the longest callback is what one peer can do to
all others. It is measured as processor time of the loop's own thread: a busy machine does not change it much, and the
work of other threads is not part of it. The loop must be asyncio's own, because uvloop has other handles.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from time import thread_time
from typing import Any, Final

#: The most that a callback of a server may take, in milliseconds.
LIMIT_MS: Final = 10.0


class CallbackTimes:
    """The longest callback since the last ``reset``: its processor time in milliseconds, and what it was."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self.what = ""

    def reset(self) -> None:
        self.longest_ms, self.what = 0.0, ""

    def add(self, spent_ms: float, callback: Any) -> None:
        if spent_ms > self.longest_ms:
            self.longest_ms, self.what = spent_ms, _text(callback)


@contextmanager
def measured_callbacks() -> Iterator[CallbackTimes]:
    """Measure the callbacks of the event loops of this thread.

    The garbage collector is off meanwhile. Its time depends on all objects of the process, most of them those of tests.
    """
    times, thread = CallbackTimes(), get_ident()
    run: Callable[[asyncio.Handle], None] = vars(asyncio.Handle)["_run"]

    def measured(handle: asyncio.Handle) -> None:
        callback, begin_s = vars_of(handle), thread_time()
        run(handle)
        if get_ident() == thread:
            times.add((thread_time() - begin_s) * 1_000, callback)

    gc.collect()
    gc.disable()
    setattr(asyncio.Handle, "_run", measured)  # noqa: B010 # mypy: a method is assigned
    try:
        yield times
    finally:
        setattr(asyncio.Handle, "_run", run)  # noqa: B010
        gc.enable()


def vars_of(handle: asyncio.Handle) -> Any:
    return getattr(handle, "_callback", None)  # None once it is cancelled


def _text(callback: Any) -> str:
    """Return what a callback is: its name, and that of the coroutine if it continues a task."""
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"task {getattr(task.get_coro(), '__qualname__', task)}"
    return str(getattr(callback, "__qualname__", callback))
