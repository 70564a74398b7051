"""Collects the evidence of a run: the topic, the tables and their log, dead letters, and the state of the servers."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable
from kafka import KafkaConsumer, TopicPartition

from namesrv_stream.kafka import LogReader, consumer_config
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.digest import digest_of
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from namesrv_stream.tables.change_rows import decode_changes, in_log_order
from namesrv_stream.tables.layout import ROUTE_CHANGES, app_id, partition_of_app_id
from namesrv_stream.tools.replay.log_fold import LogFold, start_of_log
from tests.chaos.environment import Environment
from tests.chaos.faulty_producer import Poison
from tests.chaos.parts import SERVERS
from tests.chaos.truth import BrokerKey, Truth

_DEAD_LETTERS_S: Final = 60


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one partition in one commit."""

    partition: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of ``route_changes`` that carries rows or progress.

    Attributes:
        at_ms: When it was written, epoch milliseconds.
        next_offsets: partition → its progress; partitions without progress are absent.
    """

    version: int
    at_ms: int
    next_offsets: Mapping[int, int]
    rows: tuple[Rows, ...] = ()


@dataclass(frozen=True, slots=True)
class Served:
    """The state that a server reports; digests by partition."""

    next_offsets: Mapping[int, int]
    digests: Mapping[int, str]
    brokers: frozenset[BrokerKey] = frozenset()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that the verdict is based on.

    Attributes:
        records: The whole topic.
        stored: Rows of ``route_changes`` in log order, with duplicates.
        committed: partition → offset below which the table is complete, as it says.
        commits: Its versions, oldest first.
        folded: All rows that an offline fold of ``records`` yields.
        fold_digests: (partition, next offset) → the fold's digest there, for all offsets that the servers report.
        dead_letters: Keys in the dead-letter topic, with duplicates.
        fold_dead_letters: Number of items or records below ``committed`` that the fold refused.
    """

    truth: Truth
    max_gap_ms: int
    records: Sequence[Record] = ()
    stored: Sequence[RouteChange] = ()
    committed: Mapping[int, int] = field(default_factory=dict)
    commits: Sequence[Commit] = ()
    folded: Sequence[RouteChange] = ()
    servers: Mapping[str, Served] = field(default_factory=dict)
    fold_digests: Mapping[tuple[int, int], str] = field(default_factory=dict)
    dead_letters: Sequence[str] = ()
    fold_dead_letters: int = 0
    poisons: Sequence[Poison] = ()


def collect(environment: Environment) -> Evidence:
    """Collect the evidence while everything still runs; takes a while.

    Raises:
        AssertionError: A server does not answer.
    """
    settings = environment.settings
    servers = {name: _served(environment, name) for name in SERVERS}
    truth = environment.truth()
    # In this order, the log contains everything that the table has and that the servers report.
    stored, committed, commits = _table(settings)
    records = _records(settings)
    digests, folded, dead = _fold(settings, records, servers, committed)
    return Evidence(
        truth=truth,
        max_gap_ms=environment.scale.max_gap_ms,
        records=records,
        stored=stored,
        committed=committed,
        commits=commits,
        folded=folded,
        servers=servers,
        fold_digests=digests,
        dead_letters=_dead_letters(settings),
        fold_dead_letters=dead,
        poisons=tuple(environment.faulty_producer.poisons),
    )


def _served(environment: Environment, server: str) -> Served:
    state = environment.get(server, "/state")
    brokers = environment.served(server)
    assert state is not None, f"{server} does not answer"
    assert brokers is not None, f"{server} does not answer"
    offsets = {int(partition): int(offset) for partition, offset in state["next_offsets"].items()}
    return Served(offsets, {int(p): digest for p, digest in state["partitions"].items()}, frozenset(brokers))


def _table(settings: Settings) -> tuple[list[RouteChange], dict[int, int], list[Commit]]:
    topic_id = read_extent(settings).topic_id
    path = settings.data.tables_dir / ROUTE_CHANGES
    table = DeltaTable(path)
    committed = {p: table.transaction_version(app_id(topic_id, p)) or 0 for p in range(settings.kafka.partitions)}
    stored = decode_changes(in_log_order(table.to_pyarrow_table()))
    return stored, committed, [c for c in _commits(Path(path)) if c.version <= table.version()]


def _commits(path: Path) -> list[Commit]:
    """Read the versions from Delta's log, which is kept for a day; it still lists files that were joined later."""
    found = []
    for entry in sorted((path / "_delta_log").glob("[0-9]*.json")):
        if not entry.stem.isdecimal():
            continue
        actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines() if line]
        offsets: dict[int, int] = {}
        rows: list[Rows] = []
        at_ms = entry.stat().st_mtime_ns // 1_000_000
        for action in actions:
            if "txn" in action:
                partition = partition_of_app_id(action["txn"]["appId"])
                if partition is not None:
                    offsets[partition] = action["txn"]["version"]
            elif "add" in action and action["add"]["dataChange"]:
                rows += _rows(path / unquote(action["add"]["path"]))
            elif "commitInfo" in action:
                at_ms = action["commitInfo"].get("timestamp", at_ms)
        if offsets or rows:
            found.append(Commit(int(entry.stem), at_ms, offsets, tuple(rows)))
    return found


def _rows(file: Path) -> list[Rows]:
    columns = pq.read_table(file, columns=["partition", "offset"]).to_pydict()
    extent: dict[int, tuple[int, int]] = {}
    for partition, offset in zip(columns["partition"], columns["offset"], strict=True):
        first, last = extent.get(partition, (offset, offset))
        extent[partition] = (min(first, offset), max(last, offset))
    return [Rows(partition, first, last) for partition, (first, last) in sorted(extent.items())]


def _records(settings: Settings) -> list[Record]:
    with LogReader(settings) as log:
        found = []
        for partition in range(settings.kafka.partitions):
            begin, end = log.extent(partition)
            found += [record for batch in log.batches(partition, begin, end) for record in batch]
        return found


def _fold(
    settings: Settings, records: Sequence[Record], servers: Mapping[str, Served], committed: Mapping[int, int]
) -> tuple[dict[tuple[int, int], str], list[RouteChange], int]:
    """Fold the log without Spark, and stop at the offset of each server."""
    partitions = settings.kafka.partitions
    digests: dict[tuple[int, int], str] = {}
    rows: list[RouteChange] = []
    dead = 0
    for partition in range(partitions):
        fold = LogFold(start_of_log(partition, partitions))
        of_partition = [record for record in records if record.partition == partition]
        assert [record.offset for record in of_partition] == list(range(len(of_partition))), "the topic has a gap"
        stops = {served.next_offsets.get(partition, 0) for served in servers.values()}
        begin = 0
        for stop in sorted(stops | {committed[partition], len(of_partition)}):
            rows += fold.fold(of_partition[begin:stop])
            begin = max(begin, stop)
            if stop in stops:
                digests[partition, stop] = digest_of(fold.table(), partitions).partitions[partition]
            if stop == committed[partition]:
                dead += fold.dead_letters
    return digests, rows, dead


def _dead_letters(settings: Settings) -> list[str]:
    """Return the keys of all records in the dead-letter topic."""
    consumer = KafkaConsumer(**consumer_config(settings))
    until = time.monotonic() + _DEAD_LETTERS_S
    try:
        partitions = [
            TopicPartition(settings.kafka.dead_letter_topic, partition)
            for partition in sorted(consumer.partitions_for_topic(settings.kafka.dead_letter_topic) or ())
        ]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found: list[str] = []
        while any(consumer.position(where) < ends[where] for where in partitions):
            assert time.monotonic() < until, "the dead-letter topic cannot be read"
            for of_partition in consumer.poll(timeout_ms=500).values():
                found += [record.key.decode() for record in of_partition]
        return found
    finally:
        consumer.close()
