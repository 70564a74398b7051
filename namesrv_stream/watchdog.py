"""``serve`` is two processes: the server, and its small parent, which kills a server that hangs and starts it again.

A RocketMQ broker that creates a topic waits for all its name servers: up to 24 s for one that accepts connections and
does not answer, but not for one whose connections are closed. The kernel closes them when the server is killed. The
parent therefore holds no socket of the server.

The event loop of the server writes beats to a pipe, about two in a second. Each beat contains the time within which the
next one must follow. ``Stall`` decides what counts as a hang. The server, as its parent sees it:

| state    | meaning                                          | next                                                   |
|----------|--------------------------------------------------|--------------------------------------------------------|
| starting | it does not listen yet, and has sent no beat     | a beat: watched                                        |
| watched  | its next beat is due                             | a hang: killed, or spared if that would be the         |
|          |                                                  | fourth kill in ten minutes                             |
| spared   | it hangs and runs on; the log says so once       | a beat: watched; later, if it still hangs: killed      |
| killed   | it has been sent SIGKILL                         | its end: starting, or the parent ends if it shall stop |
| ending   | it has closed the pipe, as it can in each state: | its end: the parent ends with the same exit code       |
|          | it stops, has ended, or shall not be watched     |                                                        |

The parent forwards the signals that stop it, and its death kills the server. This needs Linux; elsewhere ``serve`` is
one process.
"""

import logging
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, Literal, NamedTuple, cast

from namesrv_stream.logs import configure_logging
from namesrv_stream.processes import die_with_parent, signal_with_parent

logger = logging.getLogger(__name__)

LogFormat = Literal["text", "json"]

_STEP_MS: Final = 1_000
#: A server that got this share of one processor had enough for a beat.
_ENOUGH_CPU: Final = 0.2
_MOST_KILLS: Final = 3
_KILLS_WITHIN_S: Final = 600.0
_PIPE_BYTES: Final = 64 * 1024  # its capacity
_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CLOCK_TICK_MS: Final = 1_000 / os.sysconf("SC_CLK_TCK")
_KILLED: Final = "the server hung and was killed: it is started again stalled_ms=%d thread_states=%s restarts=%d"
_SPARED: Final = "the server hangs and is left alone, because it was killed %d times in ten minutes thread_states=%s"


class Step(NamedTuple):
    """What the parent has observed in a step.

    Attributes:
        elapsed_ms: Time of the parent.
        has_beat: Whether the server has sent a beat.
        states: The states of the server's threads at the end of the step, a letter for each (proc(5)).
        cpu_ms: Processor time that the server got.
    """

    elapsed_ms: float
    has_beat: bool
    states: str = ""
    cpu_ms: float = 0.0


class Stall:
    """The time for which the server has sent no beat although it could have.

    A step counts for at most a second, because the parent itself may have been late, frozen or suspended. While a
    thread of the server waits for a processor, a step counts for at most five times the processor time that the server
    got. A server without processor time thus never hangs. A server that is stopped, that waits for a lock or a disk, or
    that computes without end does.
    """

    def __init__(self) -> None:
        self.ms = 0.0

    def add(self, step: Step) -> None:
        counted_ms = min(step.elapsed_ms, _STEP_MS)
        if "R" in step.states:
            counted_ms = min(counted_ms, step.cpu_ms / _ENOUGH_CPU)
        self.ms = 0.0 if step.has_beat else self.ms + counted_ms


class Supervision:
    """The server's end of the pipe to its parent.

    Attributes:
        restarts: How often the parent has killed a server that hung, and started it again.
    """

    def __init__(self, pipe: int | None = None, restarts: int = 0) -> None:
        self.restarts = restarts
        self._pipe = pipe

    def beat(self, timeout_ms: int, log_format: LogFormat) -> None:
        """Tell the parent that the server is alive, and that it hangs if it sends no other beat for ``timeout_ms``.

        Args:
            timeout_ms: 0 ends the watch.
            log_format: How the parent writes its own log lines.
        """
        if not timeout_ms:
            self.end()
        if self._pipe is not None:
            with suppress(BlockingIOError):  # the parent has been stopped for hours
                os.write(self._pipe, f"{timeout_ms} {log_format}\n".encode())

    def end(self) -> None:
        """End the watch."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


#: That of this process. A process that is not a server with a parent has no pipe.
supervision = Supervision()


def fork_server() -> int | None:
    """Start the server as a child process, and watch it until it ends.

    Returns:
        In the server None, at once; in its parent the exit code of the server.
    """
    if sys.platform != "linux":
        return None
    die_with_parent()
    return _Parent().run()


class _Parent:
    def __init__(self) -> None:
        self._server = 0  # its process id; 0 while there is none, and in the server itself
        self._stop_signal = 0
        self._kills: list[float] = []  # monotonic times, in seconds
        # A signal that is ignored (nohup) stays ignored.
        wanted = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
        self._handlers = {number: signal.signal(number, self._forward) for number in wanted}

    def run(self) -> int | None:
        while True:
            pipe = self._start()
            if pipe is None:
                return None
            is_killed = self._watch(pipe)
            os.close(pipe)
            _, status = os.waitpid(self._server, 0)
            self._server = 0
            if not is_killed or self._stop_signal:
                return _end_like(os.waitstatus_to_exitcode(status))

    def _start(self) -> int | None:
        """Start the server. Return the reading end of the pipe; None in the server."""
        read_end, write_end = os.pipe()
        parent = os.getpid()
        self._server = os.fork()
        if self._server:
            os.close(write_end)
        else:
            os.close(read_end)
            self._become_server(parent, write_end)
        if self._stop_signal:  # it arrived before its handler knew the server
            os.kill(self._server or os.getpid(), self._stop_signal)
        return read_end if self._server else None

    def _become_server(self, parent: int, pipe: int) -> None:
        global supervision
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal_with_parent(signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call
            os.kill(os.getpid(), signal.SIGKILL)
        os.set_blocking(pipe, False)
        supervision = Supervision(pipe, len(self._kills))

    def _forward(self, number: int, _: FrameType | None) -> None:
        self._stop_signal = number
        if self._server:
            with suppress(ProcessLookupError):
                os.kill(self._server, number)

    def _watch(self, pipe: int) -> bool:
        """Follow the beats until the server closes the pipe, or is killed. Return whether it was killed."""
        stall, timeout_ms, is_spared = Stall(), 0, False
        seen_s, cpu_ms = time.monotonic(), 0.0
        while True:
            has_news, _, _ = select.select([pipe], [], [], _STEP_MS / 1_000 if timeout_ms else None)
            if has_news:
                beats = os.read(pipe, _PIPE_BYTES).split()
                if not beats:
                    return False
                if not timeout_ms:
                    configure_logging(line_format=cast(LogFormat, beats[-1].decode()))
                timeout_ms, is_spared = int(beats[-2]), False
            before_s, seen_s = seen_s, time.monotonic()
            before_ms, cpu_ms = cpu_ms, _cpu_ms(self._server)
            states = "" if has_news else "".join(_states(self._server))
            stall.add(Step((seen_s - before_s) * 1_000, bool(has_news), states, cpu_ms - before_ms))
            if not timeout_ms or stall.ms < timeout_ms:
                continue
            if sum(seen_s - killed_s < _KILLS_WITHIN_S for killed_s in self._kills) < _MOST_KILLS:
                os.kill(self._server, signal.SIGKILL)  # before the log, which could hang as well
                self._kills.append(seen_s)
                logger.error(_KILLED, stall.ms, states, len(self._kills))
                return True
            if not is_spared:
                is_spared = True
                logger.error(_SPARED, _MOST_KILLS, states)


def _states(process: int) -> Iterator[str]:
    """Yield the letter of the state of each thread."""
    for path in Path(f"/proc/{process}/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            yield _stat(path)[0]


def _cpu_ms(process: int) -> float:
    """Return the processor time of all threads so far."""
    fields = _stat(Path(f"/proc/{process}/stat"))
    return (int(fields[11]) + int(fields[12])) * _CLOCK_TICK_MS


def _stat(path: Path) -> list[str]:
    """Return the fields after the command's name, which may itself contain spaces and brackets (proc(5))."""
    return path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()


def _end_like(code: int) -> int:
    """End this process by the signal that ended the server, if ``code`` is negative; otherwise return ``code``."""
    if code < 0:
        with suppress(OSError):  # SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code if code >= 0 else 128 - code
