"""How the history process delays the job: the time from the answer to a registration to its row in ``route_changes``.

``python -m tests.bench.history_latency [--pairs N] [--seconds S]``: the whole product with a fleet of brokers, the
history process running and frozen alternately, so that both cases have the same conditions. It writes three times as
often as by default, and its JVM has started before.
"""

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from namesrv_stream.processes import session_members
from tests.bench.register import Brokers
from tests.bench.shape import Shape
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.stack import Stack

_INTERVAL_MS = 20_000
_POLL_S = 0.001
_TIMEOUT_S = 60.0
_REGISTER_BROKER = 103


class _CommittedTopics:
    """Reads the topics of the rows of each new commit as soon as it exists."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._next = 1 + max(int(p.stem) for p in (table / "_delta_log").glob("*.json") if p.stem.isdecimal())

    def wait(self, topic: str) -> float:
        """Wait for a row of this topic; returns the time of its commit by ``time.monotonic``."""
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            commit = self._table / "_delta_log" / f"{self._next:020}.json"
            if not commit.exists():
                time.sleep(_POLL_S)
                continue
            seen = time.monotonic()
            self._next += 1
            if topic in self._topics(commit):
                return seen
        raise AssertionError(f"no row of {topic}")

    def _topics(self, commit: Path) -> Iterator[str | None]:
        for line in commit.read_text().splitlines():
            add = json.loads(line).get("add")
            if add is not None and add["dataChange"]:
                yield from pq.read_table(self._table / add["path"], columns=["topic"])["topic"].to_pylist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--pairs", type=int, default=5, help="number of rounds with the history process, and as many without"
    )
    parser.add_argument("--seconds", type=float, default=60, help="length of a round")
    parser.add_argument("--brokers", type=int, default=200)
    arguments = parser.parse_args()
    with ExitStack() as running:
        home = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        began = time.monotonic()
        stack = running.enter_context(Stack(home / "data", history__enabled="true", history__interval_ms=_INTERVAL_MS))
        print(f"READY after {time.monotonic() - began:.1f} s", flush=True)
        running.enter_context(Brokers(stack.remoting, Shape(topics=2_000, brokers=arguments.brokers)))
        wait_until(lambda: (home / "data/run/history-job.json").exists(), 300, "the first run of the history")
        print(f"first run of the history after {time.monotonic() - began:.1f} s", flush=True)
        history = json.loads((home / "data/run/history-job.json").read_text())["pid"]
        found = measure(stack, history, arguments.pairs, arguments.seconds)
        for name, ms in found.items():
            print(json.dumps({"history": name} | _summary(ms)), flush=True)
        log = (home / "data/logs/history-job.log").read_text()
        print("\n".join(line for line in log.splitlines() if " wrote " in line))


def measure(stack: Stack, history: int, pairs: int, seconds: float) -> dict[str, list[float]]:
    """Return the milliseconds of each change, with the history process running and frozen."""
    found: dict[str, list[float]] = {"on": [], "off": []}
    commits = _CommittedTopics(stack.settings.data.tables_dir / "route_changes")
    number = 0
    pause = random.Random(1)
    try:
        with RemotingClient(stack.remoting) as broker:
            for name in ("on", "off") * pairs:
                _signal_session(history, signal.SIGCONT if name == "on" else signal.SIGSTOP)
                until = time.monotonic() + seconds
                before_s = _cpu_s(history)
                while time.monotonic() < until:
                    number += 1
                    topic = f"visible-{number}"
                    assert broker.ask(_REGISTER_BROKER, *_registration(number, topic)).code == 0
                    accepted = time.monotonic()
                    found[name].append((commits.wait(topic) - accepted) * 1000)
                    time.sleep(pause.uniform(0, 0.3))  # so that changes fall anywhere within a batch
                used_s = _cpu_s(history) - before_s
                print(name, json.dumps(_summary(found[name])), f"history used {used_s:.1f} s of processor", flush=True)
    finally:
        _signal_session(history, signal.SIGCONT)
    return found


def _signal_session(session: int, number: signal.Signals) -> None:
    for pid in session_members(session):
        os.kill(pid, number)


def _cpu_s(session: int) -> float:
    ticks = 0
    for pid in session_members(session):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _registration(version: int, topic: str) -> tuple[dict[str, str], bytes]:
    """Return header fields and body of a registration of a broker that has one more topic each time."""
    queues = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    table = {name: {"topicName": name, **queues} for name in ("visible-base", topic)}
    wrapper = {"dataVersion": {"counter": version, "timestamp": 1, "stateVersion": 0}, "topicConfigTable": table}
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    fields = {
        "brokerName": "visible-broker",
        "brokerAddr": "127.0.0.1:10999",
        "clusterName": "bench",
        "haServerAddr": "127.0.0.1:10998",
        "brokerId": "0",
        "enableActingMaster": "false",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
    }
    return fields, body


def _summary(ms: list[float]) -> dict[str, Any]:
    cuts = statistics.quantiles(ms, n=100, method="inclusive")
    return {"changes": len(ms), "p50_ms": round(cuts[49], 1), "p99_ms": round(cuts[98], 1), "max_ms": round(max(ms), 1)}


if __name__ == "__main__":
    main()
