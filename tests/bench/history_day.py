"""How long the history takes for a day of a large fleet: ``python -m tests.bench.history_day --master local[2]``.

A real Kafka has the records that two servers write for 10,000 brokers: every half second a record of heartbeats and a
tick for each partition. The records carry the day's timestamps. The history process then runs with ``--once``.
``--master workers:N`` starts a standalone cluster of N workers, each pinned to one core of the machine.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
from deltalake import DeltaTable
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

from namesrv_stream.clock import SystemClock
from namesrv_stream.kafka import admin_config, producer_config
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.route.event_json import encode_event, encode_heartbeats
from namesrv_stream.route.events import BrokerHeartbeat, Origin, Proof, Tick, partition_of
from namesrv_stream.route.model import LiveKey
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.tables.layout import BROKER_EVENTS, HEARTBEAT_MINUTES
from namesrv_stream.tables.repair import prepare_tables
from tests.support.kafka import REPOSITORY, KafkaProcess, settings_for
from tests.support.processes import Process
from tests.support.spark_cluster import standalone_cluster

_TICK_MS: Final = 500
_PERIOD_MS: Final = 30_000
_SERVERS: Final = ("s1", "s2")
_DAY_MS: Final = 86_400_000
_TIMEOUT_S: Final = 4 * 3_600.0
_WORKER_MEMORY: Final = "2g"
_EXECUTOR: Final = {"spark.executor.memory": "1g", "spark.executor.cores": "1", "spark.driver.host": "127.0.0.1"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--master", nargs="+", default=["local[2]"], help="one run for each, with the same records")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    arguments = parser.parse_args()
    with ExitStack() as running:
        home = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="history-day-")))
        sets = dict(pair.replace(".", "__", 1).split("=", 1) for pair in arguments.set)
        settings = settings_for(home / "kafka", kafka__partitions=arguments.partitions, **sets)
        kafka = KafkaProcess(settings)
        running.callback(kafka.stop)
        kafka.wait_ready()
        began_s = time.monotonic()
        heartbeats = _write_day(settings, arguments.brokers, int(arguments.hours * 3_600_000))
        print(f"{heartbeats:,} heartbeats are in Kafka after {time.monotonic() - began_s:.0f} s", flush=True)
        for number, master in enumerate(arguments.master):
            with _master(master, home / f"cluster-{number}") as url:
                figures = _run(settings, home / f"run-{number}", url)
            assert figures["heartbeats"] == heartbeats, figures
            print(json.dumps({"master": master} | figures), flush=True)
    return 0


@contextmanager
def _master(master: str, folder: Path) -> Iterator[str]:
    kind, _, workers = master.partition(":")
    if kind != "workers":
        yield master
        return
    with standalone_cluster(folder, int(workers), _WORKER_MEMORY, is_pinned=True) as cluster:
        yield cluster.url


def _write_day(settings: Settings, brokers: int, duration_ms: int) -> int:
    """Fill the topic; returns the number of heartbeats."""
    _keep_timestamps_of_producers(settings)
    partitions = settings.kafka.partitions
    slots = _PERIOD_MS // _TICK_MS
    values = {
        (server, slot, partition): _heartbeats(server, range(slot, brokers, slots), partition, partitions)
        for server in _SERVERS
        for slot in range(slots)
        for partition in range(partitions)
    }
    ticks = {server: encode_event(Tick(Origin(server, 1))) for server in _SERVERS}
    yesterday_ms = (SystemClock().now_ms() // _DAY_MS - 1) * _DAY_MS
    producer = KafkaProducer(**producer_config(settings) | {"linger_ms": 50, "batch_size": 1 << 18})
    topic = settings.kafka.broker_events_topic
    for step in range(duration_ms // _TICK_MS):
        at_ms = yesterday_ms + step * _TICK_MS
        for server in _SERVERS:
            for partition in range(partitions):
                for value in (*values[server, step % slots, partition], ticks[server]):
                    producer.send(topic, value=value, partition=partition, timestamp_ms=at_ms)
    for partition in range(partitions):  # these records end the last minute
        value = ticks[_SERVERS[0]]
        producer.send(topic, value=value, partition=partition, timestamp_ms=yesterday_ms + duration_ms)
    producer.flush()
    producer.close()
    return brokers * len(_SERVERS) * (duration_ms // _PERIOD_MS)


def _heartbeats(server: str, brokers: range, partition: int, partitions: int) -> list[bytes]:
    """Return the record of these brokers, if some of them belong to the partition."""
    beats = []
    for number in brokers:
        name = f"broker-{number:05}"
        if partition_of(name, partitions) == partition:
            process = LiveKey("day", f"10.0.{number // 250}.{number % 250}:10911")
            beats.append(BrokerHeartbeat(Origin(server, 1), name, process, Proof.REGISTRATION, f"{number:032x}"))
    return [encode_heartbeats(beats)] if beats else []


def _keep_timestamps_of_producers(settings: Settings) -> None:
    """Let Kafka keep the producers' timestamps, so that the records of a day can be written within minutes."""
    admin = KafkaAdminClient(**admin_config(settings))
    config = {"message.timestamp.type": (AlterConfigOp.SET, "CreateTime")}
    config["retention.ms"] = (AlterConfigOp.SET, "-1")
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, settings.kafka.broker_events_topic, config)])
    admin.close()


def _run(settings: Settings, data_dir: Path, master: str) -> dict[str, Any]:
    """Write the history of the topic into separate tables."""
    update = {
        "data": settings.data.model_copy(update={"dir": data_dir}),
        "history": settings.history.model_copy(update={"master": master}),
        "streaming": settings.streaming.model_copy(update={"extra": _EXECUTOR}),
    }
    own = settings.model_copy(update=update)
    data_dir.mkdir()
    prepare_tables(own, read_extent(own).topic_id)
    conf = data_dir / "history.toml"
    conf.write_text(to_toml(own))
    command: list[str | Path] = [sys.executable, "-m", "namesrv_stream", "history-job", "--once", "--conf", conf]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.monotonic()
    with Process("history-job", command, data_dir / "history.log", cwd=REPOSITORY) as process:
        assert process.wait(_TIMEOUT_S) == 0, process.log_text()[-3000:]
    wall_s = time.monotonic() - began_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = DeltaTable(own.data.tables_dir / HEARTBEAT_MINUTES).to_pyarrow_dataset()
    return {
        "wall_s": round(wall_s, 1),
        "processor_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "heartbeats": pc.sum(minutes.to_table(["heartbeats"])["heartbeats"]).as_py(),
        "minute_rows": minutes.count_rows(),
        "event_rows": DeltaTable(own.data.tables_dir / BROKER_EVENTS).to_pyarrow_dataset().count_rows(),
    }


if __name__ == "__main__":
    sys.exit(main())
