"""A fleet of 10,000 brokers with 20 topics each: each registers and sends a heartbeat every 30 s, for ten minutes.

Goals: the server uses at most 0.7 of a core, no broker expires, and a change is in the memory of another server after
2 s at p99. That other server is a follower of the tables in this process; every second a broker registers a topic whose
name it has not seen. All brokers connect and register at once before they begin to register in turn. Changes that are
sent before the other server knows all brokers are reported separately.
"""

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import quantiles
from typing import Final

from namesrv_stream.route.changes import Cause, RouteChange
from namesrv_stream.tables.snapshot import Snapshot
from namesrv_stream.tables.snapshot_follower import SnapshotFollower
from namesrv_stream.tables.storage import tables_of
from tests.bench.contenders import Contenders
from tests.bench.figures import Figure
from tests.bench.frames import BROKER_HEARTBEAT, OPAQUE, Framed, registration, registration_body, write_frames
from tests.bench.load import Choice, Kind, Load, Stream, run_load
from tests.bench.rows.bench import Bench, of_one_run
from tests.bench.shape import Shape
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient, encode_request
from tests.support.stack import Stack

#: Defines the names of the brokers and the number of queues.
_FLEET: Final = Shape(cluster="fleet")
_PERIOD_S: Final = 30
_PROBE: Final = Shape(topics=1, brokers=1, width=1, prefix="probe-", cluster="probe")
_GOAL_CORES: Final = 0.7
_GOAL_P99_MS: Final = 2_000
#: Shorter than the run, so that a broker whose heartbeats are late would expire.
_TIMEOUT_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class Fleet:
    """The brokers that register, and for how long.

    Attributes:
        brokers: Number of brokers, each with its own connection.
        topics: Number of topics of all brokers.
    """

    brokers: int = 10_000
    topics: int = 10_000
    topics_of_each: int = 20
    seconds: float = 600


class Probe:
    """Registers a topic with a new name every second, and records when a follower knows it.

    Args:
        stack: The product.
        remoting: Address of its server.
        brokers: Number of brokers of the fleet that registers meanwhile.
    """

    def __init__(self, stack: Stack, remoting: str, brokers: int) -> None:
        self.expired = 0
        self._brokers = brokers
        self._known_brokers: set[str | None] = set()
        self._all_known_s = 0.0
        self._sent_s: dict[str, float] = {}
        self._known_s: dict[str, float] = {}
        self._stop = threading.Event()
        self._client = RemotingClient(remoting)
        poll_ms = stack.settings.snapshot.poll_interval_ms
        self._follower = SnapshotFollower(tables_of(stack.settings), poll_ms, self._reloaded, self._committed)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._follower.start()
        self._thread.start()

    def delays_ms(self) -> tuple[list[float], list[float]]:
        """Stop; returns the milliseconds from each registration to its commit in the follower's memory.

        The first list has those sent before the follower knew all brokers; the second one has all later ones.
        """
        self._stop.set()
        self._thread.join()
        wait_until(lambda: self._sent_s.keys() <= self._known_s.keys(), 60, "every topic is known")
        self._follower.stop()
        self._client.close()
        delays: tuple[list[float], list[float]] = ([], [])
        for topic, at_s in self._sent_s.items():
            delays[at_s > self._all_known_s].append((self._known_s[topic] - at_s) * 1000)
        return delays

    def _run(self) -> None:
        for number in itertools.count(1):
            if self._stop.wait(1):
                return
            topic = f"{_PROBE.prefix}{number}"
            self._sent_s[topic] = time.monotonic()
            # Like Java, the server refuses a broker whose first registration has a single topic.
            body = registration_body(_PROBE, [f"{_PROBE.prefix}0", topic], number)
            self._client.send(registration(_PROBE.identity_of(0), body))
            answer = self._client.receive()
            assert answer.code == 0, answer

    def _reloaded(self, snapshot: Snapshot) -> None:
        pass

    def _committed(self, changes: list[RouteChange], _next_offsets: Mapping[int, int]) -> None:
        now_s = time.monotonic()
        for change in changes:
            if change.topic is not None:
                self._known_s.setdefault(change.topic, now_s)
            self._known_brokers.add(change.broker_name)
        if not self._all_known_s and len(self._known_brokers) > self._brokers:  # the fleet and the probe's own broker
            self._all_known_s = now_s
            self.expired += change.gone and change.cause in (Cause.EXPIRED, Cause.SERVER_SILENT)


def measure(bench: Bench, fleet: Fleet | None = None) -> list[Figure]:
    """Measure one run, whatever the number of rounds."""
    fleet = fleet or Fleet()
    row = f"{fleet.brokers:,} brokers of {fleet.topics_of_each} topics, {fleet.seconds / 60:g} min"
    with bench.home() as home, ExitStack() as running:
        contenders = running.enter_context(Contenders(home))
        ours, _, stack = contenders.start_ours(remoting__max_connections_per_address=2 * fleet.brokers)
        first = Kind("first", write_frames(home / "first", _registrations(fleet)), Choice.ONCE)
        again = Kind("register", write_frames(home / "again", _registrations(fleet)), Choice.IN_TURN)
        beat = Kind("heartbeat", write_frames(home / "beat", _heartbeats(fleet)), Choice.IN_TURN)
        probe = Probe(stack, ours.addr, fleet.brokers)
        probe.start()
        rate = 2 * fleet.brokers / _PERIOD_S
        load = Load((Stream((again, beat), 0, depth=fleet.brokers, rate=rate),), first, fleet.seconds, drain_s=60)
        before_s, began = ours.server_cpu_s(), time.monotonic()
        seen = run_load(bench.program, ours.addr, load)
        cores = (ours.server_cpu_s() - before_s) / (time.monotonic() - began)
        burst_ms, delays_ms = probe.delays_ms()
    cuts = quantiles(delays_ms, n=100, method="inclusive")
    errors = seen.errors + seen.unanswered

    one = partial(of_one_run, row)
    return [
        one("cores of the server", cores, f"≤ {_GOAL_CORES}", cores <= _GOAL_CORES, 2),
        one("brokers that expired", probe.expired, "0", probe.expired == 0),
        one("a change to the memory of another server, p50, ms", cuts[49]),
        one("the same, p99, ms", cuts[98], f"≤ {_GOAL_P99_MS:,}", cuts[98] <= _GOAL_P99_MS),
        one("the longest while all register at once, ms", max(burst_ms, default=0.0)),
        one("errors", errors, "0", errors == 0),
    ]


def _registrations(fleet: Fleet) -> Iterator[Framed]:
    for broker in range(fleet.brokers):
        topics = [f"fleet-{(broker + number) % fleet.topics}" for number in range(fleet.topics_of_each)]
        body = registration_body(_FLEET, topics)
        yield Framed(registration(_FLEET.identity_of(broker), body, timeout_ms=_TIMEOUT_MS), broker + 1)


def _heartbeats(fleet: Fleet) -> Iterator[Framed]:
    for broker in range(fleet.brokers):
        ext_fields = {**_FLEET.identity_of(broker), "heartbeatTimeoutMillis": str(_TIMEOUT_MS)}
        yield Framed(encode_request(BROKER_HEARTBEAT, OPAQUE, ext_fields), broker + 1)
