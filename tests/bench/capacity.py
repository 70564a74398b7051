"""The costs of an idle fleet for each part: processor time, memory, bytes in Kafka and in the tables.

``python -m tests.bench.capacity [--brokers 100 1000] [--topics 20] [--seconds 60]``: the whole product and a fleet of
the broker agent, which registers every 30 s as RocketMQ's brokers do. docs/capacity.md has the figures.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars

from namesrv_stream.kafka.log_reader import read_extent
from tests.bench.machine import cpu_s, facts, family, memory_mb
from tests.support.kafka import REPOSITORY
from tests.support.processes import Process, wait_until
from tests.support.stack import Stack

_SETTLE_S = 300.0
_PERIOD_S = 30.0  # of registrations


def measure(folder: Path, brokers: int, topics: int, seconds: float) -> dict[str, Any]:
    """Measure one fleet with its own installation; takes some minutes."""
    with Stack(folder / f"data-{brokers}") as stack:
        stack.wait_job()
        fleet = [sys.executable, "-m", "namesrv_stream", "agent", "-n", stack.remoting, "--brokers", str(brokers)]
        fleet += ["--topics", str(topics), "--start-spread", f"{_PERIOD_S:g}s"]
        with Process("fleet", fleet, folder / f"fleet-{brokers}.log", cwd=REPOSITORY):
            wait_until(lambda: len(_alive(stack)) == brokers, _SETTLE_S, "all brokers alive", ignoring=(OSError,))
            time.sleep(_PERIOD_S)  # after it, the first registrations and their costs are over
            return {"brokers": brokers, "topics_each": topics, **_interval(stack, seconds)}


def _interval(stack: Stack, seconds: float) -> dict[str, Any]:
    kafka = int(json.loads((stack.settings.data.run_dir / "kafka.json").read_text())["pid"])
    parts = {"server": [stack.pid("serve")], "job": list(family(stack.pid("job"))), "kafka": [kafka]}
    began, log_bytes, table_bytes = time.monotonic(), _log_bytes(stack), _table_bytes(stack)
    used = {part: cpu_s(pids) for part, pids in parts.items()}
    before = sum(read_extent(stack.settings).end.values())
    time.sleep(seconds)
    passed = time.monotonic() - began
    records = sum(read_extent(stack.settings).end.values()) - before
    return {
        "seconds": round(passed, 1),
        "records_a_second": round(records / passed, 2),
        "kafka_bytes_a_second": round((_log_bytes(stack) - log_bytes) / passed),
        "tables_bytes_a_second": round((_table_bytes(stack) - table_bytes) / passed),
        "cores": {part: round((cpu_s(pids) - used[part]) / passed, 3) for part, pids in parts.items()},
        "memory_mb": {part: round(memory_mb(pids)) for part, pids in parts.items()},
        "rows_of_route_changes": polars.scan_delta(str(stack.settings.data.tables_dir / "route_changes"))
        .select(polars.len())
        .collect()
        .item(),
    }


def _alive(stack: Stack) -> list[Any]:
    found: list[Any] = stack.get("/brokers?state=alive")
    return found


def _log_bytes(stack: Stack) -> int:
    topic = stack.settings.kafka.broker_events_topic
    return _size((stack.settings.data.kafka_dir / "log").glob(f"{topic}-[0-9]*/*.log"))


def _table_bytes(stack: Stack) -> int:
    return _size(path for path in stack.settings.data.tables_dir.rglob("*") if path.is_file())


def _size(paths: Iterable[Path]) -> int:
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # the file was removed meanwhile
            continue
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="capacity-") as folder:
        fleets = [measure(Path(folder), n, options.topics, options.seconds) for n in options.brokers]
    print(json.dumps({"machine": facts(), "fleets": fleets}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
