"""`make bench`: every figure that the product promises, in one run, beside the Java NameServer where it has a peer.

Kafka, the Spark job and a second server run beside the one that is measured; the load generator shares the machine.
"""

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from namesrv_stream.run_files import read_run_file
from namesrv_stream.settings import Settings, to_toml
from tests.bench import visibility
from tests.bench.register import Shape
from tests.bench.route_reads import Contender, Plan, compare, print_table
from tests.support.kafka import REPOSITORY, settings_for
from tests.support.processes import Process, wait_until
from tests.support.stack import Stack

_RESULTS = REPOSITORY / "build" / "bench" / "results.json"
_FLEET_BROKERS = 1_000
_FLEET_TOPICS = 20_000
_TOPICS_A_BROKER = _FLEET_TOPICS * 4 // _FLEET_BROKERS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each server at each number of connections")
    parser.add_argument("--seconds", type=float, default=5, help="length of a run")
    parser.add_argument("--changes", type=int, default=200, help="changes whose visibility is timed")
    parser.add_argument("--connections", type=int, nargs="+", default=[16, 64])
    arguments = parser.parse_args()
    console = Console()
    results: dict[str, Any] = {}
    with ExitStack() as running:
        home = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        began = time.monotonic()
        stack = running.enter_context(Stack(home / "data"))
        results["first_start_s"] = round(time.monotonic() - began, 1)
        stack.wait_job()
        results["first_start_to_first_batch_s"] = round(time.monotonic() - began, 1)
        console.print(
            f"READY after {results['first_start_s']} s, first batch of the job after "
            f"{results['first_start_to_first_batch_s']} s"
        )

        plan = Plan(tuple(arguments.connections), arguments.rounds, arguments.seconds, shape=Shape())
        results["route_reads"] = compare(Contender("namesrv-stream", stack.remoting, (stack.pid("serve"),)), plan)
        print_table(results["route_reads"], console)

        other = running.enter_context(_other_server(stack.settings, home))
        other_addr = _wait_ready(other, home)
        running.enter_context(_fleet(stack.remoting, home))
        wait_until(lambda: stack.get("/healthz")["brokers"] >= _FLEET_BROKERS, 120, "the fleet is registered")
        seen = visibility.measure(stack.remoting, other_addr, arguments.changes).summary()
        results["visibility"] = seen
        console.print(f"visibility with {_FLEET_BROKERS} brokers: {json.dumps(seen)}")
        results["memory_mb"] = {"server": _rss_mb(stack.pid("serve")), "other_server": _rss_mb(other.pid)}
        console.print(
            f"memory with {_FLEET_BROKERS} brokers, {_FLEET_TOPICS} topics on 4 brokers each: "
            f"{json.dumps(results['memory_mb'])} MB"
        )
    with ExitStack() as running:
        results["second_start_s"] = _second_start_s(running)
        console.print(f"second start to READY: {results['second_start_s']} s")
    _RESULTS.parent.mkdir(parents=True, exist_ok=True)
    _RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    console.print(f"written to {_RESULTS.relative_to(REPOSITORY)}")
    return 0


def _other_server(settings: Settings, home: Path) -> Process:
    mine = settings_for(
        home / "other",
        data__tables=str(settings.data.tables_dir),
        kafka__bootstrap_servers=f"127.0.0.1:{settings.embedded_kafka.listen_port}",
    )
    conf = home / "other.toml"
    conf.write_text(to_toml(mine), encoding="utf-8")
    command = [sys.executable, "-m", "namesrv_stream", "serve", "-c", str(conf)]
    return Process("other-server", command, home / "other.log", cwd=REPOSITORY)


def _wait_ready(other: Process, home: Path) -> str:
    facts = wait_until(lambda: read_run_file(home / "other" / "run" / "serve.json"), 60, "the second server is ready")
    assert facts is not None
    return str(facts["remoting"])


def _fleet(addr: str, home: Path) -> Process:
    command = [
        *(sys.executable, "-m", "namesrv_stream", "agent", "-n", addr, "--name", "fleet-"),
        *("--brokers", str(_FLEET_BROKERS), "--topics", str(_TOPICS_A_BROKER)),
        *("--total-topics", str(_FLEET_TOPICS), "--heartbeat-interval", "30s"),
    ]
    return Process("fleet", command, home / "fleet.log", cwd=REPOSITORY)


def _second_start_s(running: ExitStack) -> float:
    home = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
    stack = Stack(home / "data")
    with stack:
        stack.wait_job()
    began = time.monotonic()
    with stack:
        return round(time.monotonic() - began, 1)


def _rss_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


if __name__ == "__main__":
    sys.exit(main())
