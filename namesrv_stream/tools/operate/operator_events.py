"""Writes an operator's event to every partition of the log, and waits until the tables contain its effect.

``release`` does so with the event that releases the brokers that the guard protects.
"""

import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from kafka import KafkaProducer
from kafka.errors import KafkaError

from namesrv_stream.addresses import split_addr
from namesrv_stream.errors import ConfigError, NamesrvStreamError, PrerequisiteMissing, QueryNotFound
from namesrv_stream.kafka import bootstrap_servers, ensure_topics, producer_config
from namesrv_stream.kafka.clients import kafka_errors, reason_of, unreachable
from namesrv_stream.kafka.log_reader import check_log
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import DIRECT, Event, GuardReleased, Origin
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings
from namesrv_stream.settings.checks import SOURCE
from namesrv_stream.settings.installation import refuse_other_installation
from namesrv_stream.table_errors import LogReplaced, LogTruncated
from namesrv_stream.tables.snapshot import Snapshot, load_snapshot
from namesrv_stream.tables.snapshot_follower import SnapshotFollower
from namesrv_stream.tables.storage import tables_of

_POLL_MS: Final = 20
_MOST_CHARS: Final = 200


class PartlyLogged(NamesrvStreamError):
    """Only some partitions have the event.

    Attributes:
        offsets: Partition → offset, for those that have it.
    """

    def __init__(self, offsets: dict[int, int], partitions: int, reason: str) -> None:
        super().__init__(
            f"Kafka accepted it only in partitions {sorted(offsets)} of {partitions} ({reason}): repeat the command"
        )
        self.offsets = offsets


class ForeignLog(NamesrvStreamError):
    """Kafka's log is not the one of the tables, so nothing was written to it."""

    exit_code = 2

    def __init__(self, error: NamesrvStreamError) -> None:
        super().__init__(f"Kafka's log is not the one of the tables; nothing was changed: {error}")


def broadcast(settings: Settings, event: Event, folded: FoldedLog) -> dict[int, int]:
    """Publish an event to all partitions and wait until all replicas have it; blocks.

    Args:
        folded: How far the tables cover the log; checked against Kafka's log.

    Returns:
        Partition → offset of the event.

    Raises:
        ForeignLog: Kafka has another log; nothing was written.
        PrerequisiteMissing: The embedded Kafka does not run.
        KafkaUnreachable: Kafka does not answer, or accepted the event in no partition.
        ConfigError: The topic has other settings than the product needs.
        PartlyLogged: Only some partitions have the event.
    """
    _require_embedded_kafka(settings)
    if folded.topic_id:  # before a missing topic is created
        try:
            check_log(settings, folded)
        except (LogReplaced, LogTruncated) as error:
            raise ForeignLog(error) from None
    ensure_topics(settings)
    with kafka_errors(settings):
        producer = KafkaProducer(**producer_config(settings))
    try:
        return _send(producer, settings, encode_event(event))
    finally:
        producer.close(timeout=1)


def _require_embedded_kafka(settings: Settings) -> None:
    """Fail at once if the embedded Kafka, which is on this machine, is not running.

    Raises:
        ConfigError: Another installation's Kafka listens there.
        PrerequisiteMissing: No process listens at its port; the text says how to select the installation.
    """
    if not settings.is_kafka_embedded:
        return
    address = bootstrap_servers(settings)
    refuse_other_installation(settings, "embedded_kafka", address)
    try:
        socket.create_connection(split_addr(address), timeout=1).close()
    except ConnectionRefusedError:
        raise PrerequisiteMissing(
            f"no embedded Kafka listens at {address}, and none runs on {settings.data.dir}",
            "start it, or name the installation: --data-dir DIR, or --conf FILE with kafka.bootstrap_servers",
        ) from None
    except OSError:
        return  # perhaps it is slow: the producer waits longer


def _send(producer: KafkaProducer, settings: Settings, value: bytes) -> dict[int, int]:
    topic, partitions = settings.kafka.broker_events_topic, settings.kafka.partitions
    offsets: dict[int, int] = {}
    failure: KafkaError = KafkaError()
    futures = []
    for partition in range(partitions):
        try:
            futures.append((partition, producer.send(topic, value=value, partition=partition)))
        except KafkaError as error:
            failure = error
    for partition, future in futures:
        try:
            offsets[partition] = int(future.get(timeout=settings.kafka.delivery_timeout_ms / 1000).offset)
        except KafkaError as error:
            failure = error
    if not offsets:
        raise unreachable(settings, failure)
    if len(offsets) < partitions:
        raise PartlyLogged(offsets, partitions, reason_of(failure))
    return offsets


class TablesWatch:
    """A context manager that follows the tables; the constructor loads them and blocks.

    Attributes:
        exists: Whether there were tables at the start.
    """

    def __init__(self, settings: Settings) -> None:
        """Load the tables.

        Raises:
            TableSchemaMismatch: A table has a different schema than this version expects.
        """
        snapshot = load_snapshot(tables_of(settings))
        self.exists = snapshot.version >= 0
        self._table = snapshot.table
        self._next_offsets = dict(snapshot.next_offsets)
        self._moved = threading.Condition()
        self._follower = SnapshotFollower(
            tables_of(settings),
            max(_POLL_MS, settings.poll_interval_ms),
            self._reloaded,
            self._committed,
            known=snapshot,
        )

    def __enter__(self) -> Self:
        self._follower.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.stop()

    @property
    def folded(self) -> FoldedLog:
        """How far the tables cover the log now; without a topic id if there are no tables."""
        return FoldedLog(self._follower.topic_id, self._follower.progress)

    @property
    def table(self) -> RouteTable:
        """The route table; read it before or after ``wait``, not during it."""
        return self._table

    def wait(self, offsets: Mapping[int, int], timeout_s: float) -> list[int]:
        """Wait until the tables cover one record of every partition.

        Args:
            offsets: Partition → offset of the record.
            timeout_s: Longest wait, in seconds.

        Returns:
            The partitions whose record the tables do not cover when the wait ends.
        """
        until_s = time.monotonic() + timeout_s
        with self._moved:
            while (behind := self._behind(offsets)) and (left_s := until_s - time.monotonic()) > 0:
                self._moved.wait(left_s)
        return behind

    def _behind(self, offsets: Mapping[int, int]) -> list[int]:
        return [p for p, offset in sorted(offsets.items()) if self._next_offsets.get(p, 0) <= offset]

    def _reloaded(self, snapshot: Snapshot) -> None:
        with self._moved:
            self._table, self._next_offsets = snapshot.table, dict(snapshot.next_offsets)
            self._moved.notify_all()

    def _committed(self, changes: list[RouteChange], next_offsets: Mapping[int, int]) -> None:
        with self._moved:
            reducer.apply(self._table, changes)
            self._next_offsets.update(next_offsets)
            self._moved.notify_all()


def check_operator(by: str) -> str:
    """Return ``by``, the name of an operator, without surrounding blanks, if it can be logged with a change.

    Raises:
        ConfigError: The name is empty, too long, reserved for the configuration, or not a line of text.
    """
    by = by.strip()
    if not by or by == SOURCE or len(by) > _MOST_CHARS or not by.isprintable():
        reason = f"expected a name of at most {_MOST_CHARS} characters, other than {SOURCE}"
        raise ConfigError("command line", "--by", reason)
    return by


@dataclass(frozen=True, slots=True)
class Released:
    """The outcome of a release.

    Attributes:
        brokers: The brokers that were protected before, according to the tables.
        still_held: Those that the tables still show as protected.
        behind: Partitions whose release the tables do not contain yet; None if there are no tables.
    """

    brokers: tuple[LeaseKey, ...]
    still_held: tuple[LeaseKey, ...]
    behind: tuple[int, ...] | None


def release(settings: Settings, cluster: str, by: str, timeout_s: float) -> Released:
    """Log the release of a cluster's protected brokers and wait until the tables contain it; blocks.

    Args:
        settings: Where Kafka and the tables are.
        cluster: The cluster of the brokers.
        by: Who releases them.
        timeout_s: Seconds to wait for the tables.

    Raises:
        QueryNotFound: No broker of the cluster is protected.
        KafkaUnreachable: Kafka does not answer.
        PartlyLogged: Only some partitions have the event.
    """
    by = check_operator(by)
    with TablesWatch(settings) as watch:
        held = _held(watch.table, cluster)
        if watch.exists and not held:
            raise QueryNotFound(f"no broker of cluster {cluster} is protected")
        offsets = broadcast(settings, GuardReleased(Origin(DIRECT, 0), cluster, by), watch.folded)
        behind = tuple(watch.wait(offsets, timeout_s)) if watch.exists else None
    after = _held(watch.table, cluster)
    return Released(held, tuple(key for key in held if key in after), behind)


def _held(table: RouteTable, cluster: str) -> tuple[LeaseKey, ...]:
    return tuple(sorted(key for key in table.held if key.live_key.cluster == cluster))
