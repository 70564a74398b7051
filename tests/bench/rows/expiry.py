"""How long after its timeout a silent broker is removed from the routes of the server that heard it.

Goal: p99 at most 1.5 s. 200 brokers with a timeout of 10 s register and send one heartbeat at random moments of a
minute. They keep their connections and then are silent. A client requests the brokers of all clusters every few
milliseconds. 300 other brokers stay alive. An expiry before the timeout fails the run.
"""

import random
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from tests.bench.contenders import OURS
from tests.bench.figures import Figure, Spread
from tests.bench.frames import BROKER_HEARTBEAT, OPAQUE, registration, registration_body
from tests.bench.register import Brokers
from tests.bench.rows.bench import Bench
from tests.bench.shape import Shape
from tests.support.remoting_client import RemotingClient
from tests.support.stack import Stack

LIVING: Final = Shape(topics=1_000, brokers=300, width=4)
DYING: Final = Shape(topics=1_000, brokers=200, width=4, cluster="dying", prefix="dying-")
_TIMEOUT_MS: Final = 10_000
_SPREAD_S: Final = 60
_POLL_S: Final = 0.005
_GOAL_P99_S: Final = 1.5
_GIVE_UP_S: Final = 60
_GET_BROKER_CLUSTER_INFO: Final = 106


@dataclass(slots=True)
class _Watch:
    """When each broker was last heard, and when it was removed; monotonic seconds."""

    heard_s: dict[str, float] = field(default_factory=dict)
    gone_s: dict[str, float] = field(default_factory=dict)

    def observe(self, client: RemotingClient) -> None:
        """Record the brokers that are removed now."""
        clusters = client.ask(
            _GET_BROKER_CLUSTER_INFO
        ).body  # not parsed: it is not JSON, because brokerIds are bare, and parsing is slow
        now_s = time.monotonic()
        for name in self.heard_s.keys() - self.gone_s.keys():
            if f'"{name}"'.encode() not in clusters:
                self.gone_s[name] = now_s


def measure(bench: Bench) -> list[Figure]:
    """Measure one run of a minute and a half."""
    with bench.home() as home, ExitStack() as running:
        # If all brokers of a cluster expired, the guard would hold some of them.
        stack = running.enter_context(Stack(home / "ours", liveness__guard_share_percent=100))
        stack.wait_job()
        living = running.enter_context(Brokers(stack.remoting, LIVING))
        watch = _Watch()
        choose = random.Random(1)
        began = time.monotonic()
        moments = sorted(began + choose.uniform(0, _SPREAD_S) for _ in range(DYING.brokers))
        client = running.enter_context(RemotingClient(stack.remoting))
        beat_s = began
        for broker, moment in enumerate(moments):
            while time.monotonic() < moment:
                watch.observe(client)
                time.sleep(_POLL_S)
            if time.monotonic() > beat_s + 20:
                beat_s = time.monotonic()
                living.beat()
            running.enter_context(_registered(stack.remoting, broker, watch))
        while len(watch.gone_s) < DYING.brokers and time.monotonic() < moments[-1] + _GIVE_UP_S:
            watch.observe(client)
            time.sleep(_POLL_S)
    lags = [watch.gone_s[name] - heard - _TIMEOUT_MS / 1000 for name, heard in watch.heard_s.items()]
    assert min(lags) >= 0, f"expired {-min(lags):.3f} s too early"
    cuts = statistics.quantiles(lags, n=100, method="inclusive")
    row = f"expiry after a timeout of {_TIMEOUT_MS // 1000} s"
    return [
        Figure(row, "p50, s", {OURS: Spread.of([cuts[49]])}, digits=2),
        Figure(row, "p99, s", {OURS: Spread.of([cuts[98]])}, f"≤ {_GOAL_P99_S}", cuts[98] <= _GOAL_P99_S, digits=2),
    ]


def _registered(addr: str, broker: int, watch: _Watch) -> RemotingClient:
    """Return a connection over which one broker has registered and sent a heartbeat."""
    identity = DYING.identity_of(broker)
    frame = registration(identity, registration_body(DYING, DYING.topics_of(broker)), timeout_ms=_TIMEOUT_MS)
    client = RemotingClient(addr)
    client.send(frame)
    answer = client.receive()
    assert (answer.code, answer.opaque) == (0, OPAQUE), answer
    # The time before the answer is used, so the measured delay is too long rather than too short.
    watch.heard_s[identity["brokerName"]] = time.monotonic()
    client.ask(BROKER_HEARTBEAT, identity | {"heartbeatTimeoutMillis": str(_TIMEOUT_MS)})
    return client
