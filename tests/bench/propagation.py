"""How long an event takes from Kafka through the Spark job and Delta to a follower's memory.

``python -m tests.bench.propagation [--seconds 60] [--partitions 1]`` starts its own Kafka and job. A fleet of 1,000
brokers sends heartbeats every 30 s; there are ticks every 0.5 s and 10 changed registrations a second. It prints one
JSON object: milliseconds from ``send`` to the follower's callback, and cores used by the job.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from namesrv_stream.kafka import producer_config
from namesrv_stream.processes import read_run_file
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.event_json import encode_event, encode_heartbeats
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered, Event, Origin, Proof, Tick, partition_of
from namesrv_stream.route.model import DataVersion, QueueData, Registration
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.tables.snapshot import Snapshot
from namesrv_stream.tables.snapshot_follower import SnapshotFollower
from namesrv_stream.tables.storage import tables_of
from tests.support.kafka import REPOSITORY, KafkaProcess, settings_for
from tests.support.processes import Process, wait_until

_BROKERS = 1_000
_BEAT_PERIOD_S = 30.0
_TICK_S = 0.5
_TOPICS = {f"topic-{n}": QueueData(8, 8, 6) for n in range(20)}
_SERVER = Origin("bench", 1)


class Fleet:
    """Publishes the events of a name server for the fleet on a thread; records when each change was sent."""

    def __init__(self, settings: Settings, changes_per_s: float) -> None:
        self._topic = settings.kafka.broker_events_topic
        self._partitions = settings.kafka.partitions
        self._producer = KafkaProducer(**producer_config(settings))
        self._changes_per_s = changes_per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent_s: dict[str, float] = {}
        self.are_changes_on = False

    def register_all(self) -> None:
        """Register every broker once."""
        for number in range(_BROKERS):
            self._send(BrokerRegistered(_SERVER._replace(connection_id=number + 1), _registration(number, "first")))
        self._producer.flush()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close()

    def _send(self, event: BrokerRegistered) -> None:
        partition = partition_of(event.registration.broker_name, self._partitions)
        self._producer.send(self._topic, value=encode_event(event), partition=partition)

    def _run(self) -> None:
        choose = random.Random(1)
        beats = itertools.cycle(range(_BROKERS))
        next_tick_s = time.monotonic()
        for count in itertools.count():
            if self._stop.wait(choose.uniform(0, 2 / self._changes_per_s)):
                return
            if self.are_changes_on:
                number, mark = choose.randrange(_BROKERS), f"mark-{count}"
                self.sent_s[mark] = time.monotonic()
                self._send(BrokerRegistered(_SERVER._replace(connection_id=number + 1), _registration(number, mark)))
            while time.monotonic() >= next_tick_s:
                next_tick_s += _TICK_S
                self._beat([next(beats) for _ in range(round(_BROKERS * _TICK_S / _BEAT_PERIOD_S))])

    def _beat(self, numbers: list[int]) -> None:
        heard: dict[int, list[BrokerHeartbeat]] = {}
        for number in numbers:
            registration = _registration(number, "")
            origin = _SERVER._replace(connection_id=number + 1)
            event = BrokerHeartbeat(origin, registration.broker_name, registration.live_key, Proof.HEARTBEAT)
            heard.setdefault(partition_of(event.broker_name, self._partitions), []).append(event)
        for partition in range(self._partitions):
            if partition in heard:
                self._producer.send(self._topic, value=encode_heartbeats(heard[partition]), partition=partition)
            tick: Event = Tick(_SERVER)
            self._producer.send(self._topic, value=encode_event(tick), partition=partition)


def _registration(number: int, mark: str) -> Registration:
    return Registration(
        cluster="bench",
        broker_name=f"broker-{number}",
        broker_addr=f"10.{number >> 8}.{number & 255}.1:10911",
        broker_id=0,
        ha_server_addr="",
        data_version=DataVersion(len(mark), 1, 0),
        topics=_TOPICS,
        enable_acting_master=False,
        registration_hash=mark,
    )


class Arrivals:
    """A follower that records when it received each change."""

    def __init__(self, settings: Settings) -> None:
        self.at_s: dict[str, float] = {}
        self.live: set[str] = set()
        self.commits = 0
        poll_ms = settings.snapshot.poll_interval_ms
        self.follower = SnapshotFollower(tables_of(settings), poll_ms, self._on_reload, self._on_commit)

    def _on_reload(self, snapshot: Snapshot) -> None:
        self.live |= snapshot.table.groups.keys()

    def _on_commit(self, changes: list[RouteChange], _next_offsets: Mapping[int, int]) -> None:
        now_s = time.monotonic()
        self.commits += 1
        for change in changes:
            if change.kind == "broker_live":
                self.live.add(change.broker_name or "")
                self.at_s.setdefault(change.registration_hash or "", now_s)


def family(pid: int) -> dict[int, str]:
    """Return a process and its descendants: pid → driver, jvm or worker."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    found = {pid: "driver"}
    while more := {child for child, parent in parents.items() if parent in found} - found.keys():
        for child in more:
            with suppress(OSError):
                is_java = Path(f"/proc/{child}/comm").read_text().strip() == "java"
                found[child] = "jvm" if is_java else "worker"
    return found


def cores_used(pid: int, seconds: float) -> dict[str, float]:
    """Return the cores that a process and its descendants use during this time, by program."""

    def used_s() -> dict[str, float]:
        found = dict.fromkeys(("driver", "jvm", "worker"), 0.0)
        for one, name in family(pid).items():
            with suppress(OSError):
                found[name] += sum(int(ticks) for ticks in _stat(one)[11:13]) / os.sysconf("SC_CLK_TCK")
        return found

    before = used_s()
    time.sleep(seconds)
    return {name: round((total - before[name]) / seconds, 3) for name, total in used_s().items()}


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third one, the state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _rss_mb(pid: int) -> int:
    return int(_stat(pid)[21]) * os.sysconf("SC_PAGE_SIZE") >> 20


def measure(seconds: float, partitions: int, changes_per_s: float) -> dict[str, Any]:
    """Run the whole measurement."""
    with ExitStack() as running:
        home = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        settings = settings_for(home, kafka__partitions=partitions)
        conf = home / "bench.toml"
        conf.write_text(to_toml(settings), encoding="utf-8")
        kafka = KafkaProcess(settings)
        running.callback(kafka.stop)
        kafka.wait_ready()
        command = [sys.executable, "-m", "namesrv_stream", "job", "-c", str(conf)]
        began_s = time.monotonic()
        job = running.enter_context(Process("job", command, home / "job.log", cwd=REPOSITORY))
        wait_until(lambda: read_run_file(settings.data.run_dir / "job.json"), 120, "the first batch")
        first_batch_s = time.monotonic() - began_s
        arrivals = Arrivals(settings)
        arrivals.follower.start()
        running.callback(arrivals.follower.stop)
        fleet = Fleet(settings, changes_per_s)
        fleet.register_all()
        wait_until(lambda: len(arrivals.live) >= _BROKERS, 120, "the fleet is in the follower's memory")
        fleet.start()
        running.callback(fleet.stop)
        # The JVM compiles during its first minute; afterwards its cost is stable.
        time.sleep(seconds / 2)
        at_rest = cores_used(job.pid, seconds / 2)
        fleet.are_changes_on = True
        time.sleep(5)
        fleet.sent_s.clear()
        commits = arrivals.commits
        under_load = cores_used(job.pid, seconds)
        commits = arrivals.commits - commits
        sent_s = dict(fleet.sent_s)
        wait_until(lambda: sent_s.keys() <= arrivals.at_s.keys(), 30, "every change has arrived")
        ms = [(arrivals.at_s[mark] - at_s) * 1000 for mark, at_s in sent_s.items()]
        cuts = statistics.quantiles(ms, n=100, method="inclusive")
        return {
            "partitions": partitions,
            "changes": len(ms),
            "p50_ms": round(cuts[49]),
            "p90_ms": round(cuts[89]),
            "p99_ms": round(cuts[98]),
            "max_ms": round(max(ms)),
            "commits_per_s": round(commits / seconds, 1),
            "first_batch_s": round(first_batch_s, 1),
            "cores_at_rest": at_rest,
            "cores_with_changes": under_load,
            "rss_mb": [(name, _rss_mb(pid)) for pid, name in family(job.pid).items()],
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--changes-per-second", type=float, default=10)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.seconds, arguments.partitions, arguments.changes_per_second)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
