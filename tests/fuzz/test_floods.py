"""Floods of many kinds: how much memory a server uses meanwhile, and that it returns it."""

import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator

import pytest

from tests.bench.machine import memory_mb, peak_of
from tests.fuzz.flood import Flood
from tests.fuzz.floods import FLEET, KINDS, REGISTER, ROUTE
from tests.fuzz.hostile import is_long
from tests.support.name_server import a_body, a_broker_header
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.stack import Stack

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(1_200)]

_MAX_PEAK_MB = 600
_MAX_GROWTH, _MAX_GROWTH_MB = 0.2, 60
_RETURNED_WITHIN_S = 30
_FLOOD_S, _FLOODS = (8, 2) if is_long() else (3, 1)
_MAX_LAG_S, _CAUGHT_UP_S = 5, 600
_ALWAYS = ("broken frames of 8 MiB", "frames behind a large request")


def lag_s(stack: Stack) -> float:
    """The age of the newest record whose changes the server has applied; there is a record every half second."""
    with urllib.request.urlopen(f"http://{stack.http}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    lags = (line.split()[1] for line in lines if line.startswith("rocketmq_namesrv_event_lag_seconds "))
    return float(next(lags, "inf"))  # there is none before the first commit


@pytest.fixture(scope="module")
def heartbeat(stack: Stack) -> Iterator[Callable[[], None]]:
    """Register a broker with many topics; returns a function that registers it again, because it expires otherwise."""
    body = a_body(FLEET)
    fields = a_broker_header("10.1.0.4:10911", brokerName="of-the-fleet", haServerAddr="10.1.0.4:10912")
    fields |= {"enableActingMaster": "false", "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
    with RemotingClient(stack.remoting, 60) as broker:

        def register() -> None:
            assert broker.ask(REGISTER, fields, body).code == 0

        yield register


@pytest.mark.parametrize("name", list(KINDS) if is_long() else _ALWAYS)
def test_memory_is_bounded_during_a_flood_and_returned_after_it(
    stack: Stack, heartbeat: Callable[[], None], name: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    kind, pid = KINDS[name], stack.pid("serve")

    def flood() -> float:
        heartbeat()
        with (
            peak_of(lambda: memory_mb([pid])) as peak,
            Flood(stack.http if kind.port == "http" else stack.remoting, kind) as attackers,
        ):
            time.sleep(_FLOOD_S)  # a flood lasts so long, whatever happens
        assert attackers.refused == []
        return peak[0]

    def is_quiet() -> bool:
        heartbeat()
        return lag_s(stack) < _MAX_LAG_S

    heartbeat()
    if kind.fills:  # with what docs/limits.md permits, before the measurement
        flood()
    # The rows of an earlier flood may still be on their way through the job.
    wait_until(is_quiet, _CAUGHT_UP_S, "the server has applied all changes", every_s=1)
    for _ in range(_FLOODS):
        before = memory_mb([pid])
        most = before + max(before * _MAX_GROWTH, _MAX_GROWTH_MB)
        peak, ended = flood(), time.monotonic()
        after = [memory_mb([pid])]

        def is_returned(after: list[float] = after, most: float = most) -> bool:
            after.append(memory_mb([pid]))
            return after[-1] <= most

        try:
            wait_until(is_returned, _RETURNED_WITHIN_S, f"at most {most:.0f} MB, {before:.0f} before the flood")
        finally:
            facts = [round(mb) for mb in (before, peak, after[0], after[-1])]
            print(f"{name}: before, peak, at the end, after: {facts} in {time.monotonic() - ended:.1f} s")
        assert stack.pid("serve") == pid
        with RemotingClient(stack.remoting, 60) as client:
            assert client.ask(ROUTE, {"topic": next(iter(FLEET))}).code == 0
        assert peak <= _MAX_PEAK_MB
        record_testsuite_property(f"flood_mb {name}", facts)
