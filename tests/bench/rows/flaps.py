"""Brokers with 20,000 topics that come and go while the job is stopped, and 30 such brokers that come at once.

A few hundred bytes in Kafka then cause more than two million rows. Goals: the job is up to date within 60 s after it
continues, and the server uses at most 600 MB.
"""

import os
import signal
import threading
import time
from contextlib import ExitStack, suppress
from typing import Final

from tests.bench.contenders import Contenders
from tests.bench.figures import Figure
from tests.bench.frames import GET_ROUTEINFO_BY_TOPIC
from tests.bench.machine import family, peak_of
from tests.bench.register import Brokers
from tests.bench.rows.bench import Bench, of_one_run
from tests.bench.rows.large import wait_committed
from tests.bench.shape import Shape
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient

_TOPICS: Final = 20_000
_FLAPS: Final = 50
_AT_ONCE: Final = 30
_DYING: Final = Shape(topics=2, brokers=1, width=1, cluster="dying", prefix="dying-")
_TOPIC_NOT_EXIST: Final = 17
_TIMEOUT_S: Final = 300
_GOAL_S: Final = 60
_GOAL_MEMORY_MB: Final = 600
_ROW: Final = (
    f"{_FLAPS} flaps of a broker with {_TOPICS:,} topics while the job is stopped, then {_AT_ONCE} such brokers"
)


def measure(bench: Bench) -> list[Figure]:
    """Measure one run."""
    with bench.home() as home, ExitStack() as running:
        ours, _, stack = running.enter_context(Contenders(home)).start_ours()
        dying = running.enter_context(ExitStack())
        dying.enter_context(Brokers(ours.addr, _DYING))
        wait_committed(stack)
        job = family(stack.pid("job"))
        _signal(job, signal.SIGSTOP)
        running.callback(_signal, job, signal.SIGCONT)
        with peak_of(ours.server_memory_mb) as peak:
            for _ in range(_FLAPS):
                with Brokers(ours.addr, _shape(0)):
                    pass
            threads = [
                threading.Thread(target=running.enter_context, args=[Brokers(ours.addr, _shape(number), _TIMEOUT_S)])
                for number in range(1, _AT_ONCE + 1)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            dying.close()
            began_s = time.monotonic()
            _signal(job, signal.SIGCONT)
            with RemotingClient(ours.addr, _TIMEOUT_S) as client:
                topic = {"topic": _DYING.topic_names[0]}
                is_gone = lambda: client.ask(GET_ROUTEINFO_BY_TOPIC, topic).code == _TOPIC_NOT_EXIST  # noqa: E731
                wait_until(is_gone, _TIMEOUT_S, "the dead broker is gone")
            gone_s = time.monotonic() - began_s
            wait_committed(stack)
            took_s = time.monotonic() - began_s
    return [
        of_one_run(_ROW, "job up to date after, s", took_s, f"≤ {_GOAL_S}", took_s <= _GOAL_S, 1),
        of_one_run(_ROW, "another dead broker gone after, s", gone_s, digits=1),
        of_one_run(_ROW, "memory of the server, MB", peak[0], f"≤ {_GOAL_MEMORY_MB}", peak[0] <= _GOAL_MEMORY_MB),
    ]


def _shape(number: int) -> Shape:
    return Shape(topics=_TOPICS, brokers=1, width=1, cluster=f"flapping-{number}")


def _signal(pids: dict[int, str], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
