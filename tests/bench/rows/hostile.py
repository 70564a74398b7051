"""Peers that attack a name server: what others notice meanwhile, and how much memory it takes.

Goals while eight connections send one of the worst kinds at full speed: heartbeats and route queries of others have a
p99 of at most 50 ms, a broker whose connection is closed is gone within 2 s, and the server uses at most 600 MB.

Heartbeats and queries are sent at a fixed rate. The latency of each counts from the time at which it was due, so that
stalls of the server are visible.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from tests.bench.contenders import JAVA_NEWEST, OURS, Contender, Contenders, take_turns
from tests.bench.figures import Figure, compared
from tests.bench.frames import GET_ROUTEINFO_BY_TOPIC, heartbeats, route_reads, write_frames
from tests.bench.load import Kind, Load, Seen, Stream, run_load
from tests.bench.machine import peak_of
from tests.bench.register import Brokers
from tests.bench.rows.bench import Bench
from tests.bench.rows.large import wait_committed
from tests.bench.shape import Shape
from tests.fuzz.flood import Flood
from tests.fuzz.floods import KINDS
from tests.support.remoting_client import RemotingClient

#: The kinds of ``tests/fuzz/floods.py`` that hurt most before the server worked in turns.
_KINDS: Final = (
    "pipelined requests",
    "broken frames of 8 MiB",
    "frames behind a large request",
    "a new connection for each request",
    "unread lists of topics",
)
_OTHERS: Final = Shape(topics=2_000, brokers=100, width=4)
_DYING: Final = Shape(topics=2, brokers=1, width=1, cluster="dying", prefix="dying-")
_LINKS: Final = 16
_HEARTBEATS: Final = 200  # a second
_READS: Final = 500  # a second
_LEAST_S: Final = 8.0
_GOAL_P99_MS: Final = 50
_GOAL_GONE_S: Final = 2
_GOAL_MEMORY_MB: Final = 600
_GONE_WITHIN_S: Final = 60.0
_TOPIC_NOT_EXIST: Final = 17


@dataclass(slots=True)
class _Attacked:
    """What others noticed: latencies, the seconds until a dead broker was gone, and the server's peak of memory."""

    seen: Seen
    gone_s: float = 0
    peak_mb: float = 0


def measure(bench: Bench) -> list[Figure]:
    """Measure the newest Java NameServer and namesrv-stream under each kind of attack.

    All servers are started again for each kind, because the Java NameServer does not recover from some.
    """
    figures: list[Figure] = []
    for kind in _KINDS:
        runs: dict[str, list[_Attacked]] = {}
        for _ in range(max(bench.rounds // 2, 1)):
            for name, attacked in _attack(bench, kind).items():
                runs.setdefault(name, []).extend(attacked)
        figures += _figures(kind, runs)
    return figures


def _attack(bench: Bench, kind: str) -> dict[str, list[_Attacked]]:
    with bench.home() as home, ExitStack() as running:
        contenders = running.enter_context(Contenders(home))
        ours, _, stack = contenders.start_ours()
        measured = [ours, contenders.start_java(newest=True)]
        for one in measured:
            with contenders.awake(one):
                running.enter_context(Brokers(one.addr, _OTHERS))
                if one is ours:
                    wait_committed(stack)
        beats = Kind("heartbeat", write_frames(home / "904", heartbeats(_OTHERS, _LINKS)))
        reads = Kind("read", write_frames(home / "reads", route_reads(_OTHERS.topic_names)), has_body=True)
        streams = (Stream((beats,), 0, depth=1_000, rate=_HEARTBEATS), Stream((reads,), _LINKS, depth=64, rate=_READS))
        load = Load(streams, seconds=max(bench.seconds, _LEAST_S), warm_up_s=bench.warm_up_s)

        def run(one: Contender) -> _Attacked:
            dying, flood = _dying_broker(one.addr, load.seconds / 2), Flood(one.addr, KINDS[kind])
            with dying as gone, peak_of(one.server_memory_mb) as peak, flood:
                seen = run_load(bench.program, one.addr, load)
            return _Attacked(seen, gone[0], peak[0])

        return take_turns(contenders, measured, 1, run)


@contextmanager
def _dying_broker(addr: str, after_s: float) -> Iterator[list[float]]:
    """Let a broker register at once and disconnect after a time; yields the seconds until it is gone, at the end.

    They are the limit if the broker stays, or if the name server does not answer.
    """
    gone, life = [_GONE_WITHIN_S], ExitStack()
    life.enter_context(Brokers(addr, _DYING))

    def die() -> None:
        time.sleep(after_s)
        life.close()
        began = time.monotonic()
        with suppress(OSError), RemotingClient(addr, _GONE_WITHIN_S) as client:
            while time.monotonic() - began < _GONE_WITHIN_S:
                if client.ask(GET_ROUTEINFO_BY_TOPIC, {"topic": _DYING.topic_names[0]}).code == _TOPIC_NOT_EXIST:
                    gone[0] = time.monotonic() - began
                    return
                time.sleep(0.02)

    thread = threading.Thread(target=die)
    thread.start()
    try:
        yield gone
    finally:
        thread.join()


def _figures(kind: str, runs: dict[str, list[_Attacked]]) -> list[Figure]:
    row = f"8 connections send {kind}"

    def figure(name: str, values: dict[str, list[float]], goal: float, digits: int = 0) -> Figure:
        is_met = lambda ours, _: ours.median <= goal  # noqa: E731
        return compared(row, name, values, OURS, (JAVA_NEWEST,), goal=f"≤ {goal:g}", is_met=is_met, digits=digits)

    p99 = {
        of: {name: [one.seen.kinds[of].p99_us / 1_000 for one in of_runs] for name, of_runs in runs.items()}
        for of in ("heartbeat", "read")
    }
    gone_s = {name: [one.gone_s for one in of_runs] for name, of_runs in runs.items()}
    peak_mb = {name: [one.peak_mb for one in of_runs] for name, of_runs in runs.items()}
    return [
        figure("heartbeats p99, ms", p99["heartbeat"], _GOAL_P99_MS, 1),
        figure("reads p99, ms", p99["read"], _GOAL_P99_MS, 1),
        figure("dead broker gone after, s", gone_s, _GOAL_GONE_S, 1),
        figure("memory, MB", peak_mb, _GOAL_MEMORY_MB),
    ]
