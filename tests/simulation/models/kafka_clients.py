"""The classes of kafka-python that the product uses, as clients of the model.

A producer sends in order and retries until the delivery timeout, as an idempotent producer with ``acks=all`` does.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, Final

from kafka import TopicPartition
from kafka.errors import (
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
    TopicAlreadyExistsError,
)

from tests.simulation.models.kafka_model import SimKafka
from tests.simulation.runtime.process import MS, Process
from tests.simulation.runtime.scheduler import Waiters

_RETRY: Final = 100 * MS
_PATIENCE: Final = 30_000 * MS


class SendFuture:
    """The outcome of a record."""

    def __init__(self, kafka: SimKafka) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._waiters = Waiters(kafka.scheduler)
        self._callbacks: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._errbacks: list[Callable[[BaseException], None]] = []

    def add_callback(self, callback: Callable[..., None], *args: Any) -> None:
        self._callbacks.append((callback, args))

    def add_errback(self, callback: Callable[[BaseException], None]) -> None:
        self._errbacks.append(callback)

    def get(self, timeout: float) -> Any:
        if self.value is None and self.error is None:
            self._waiters.wait(round(timeout * 1e6))
        if self.error is not None:
            raise self.error
        if self.value is None:
            raise KafkaTimeoutError("no acknowledgement in time")
        return self.value

    def succeed(self, offset: int) -> None:
        self.value = SimpleNamespace(offset=offset)
        self._waiters.wake()
        for callback, args in self._callbacks:
            callback(*args, self.value)

    def fail(self, error: BaseException) -> None:
        self.error = error
        self._waiters.wake()
        for callback in self._errbacks:
            callback(error)


class _Sending:
    __slots__ = ("future", "key", "number", "since", "topic", "value")

    def __init__(self, topic: str, key: bytes | None, value: bytes, since: int, number: int, future: SendFuture):
        self.topic, self.key, self.value, self.since, self.number, self.future = (
            topic,
            key,
            value,
            since,
            number,
            future,
        )


class Clients:
    """Makes the clients of one Kafka, which take the arguments of kafka-python's."""

    def __init__(self, kafka: SimKafka) -> None:
        self.kafka = kafka

    def producer(self, **config: Any) -> "Producer":
        self._wait_until_up(config["bootstrap_timeout_ms"])
        return Producer(self.kafka, config["delivery_timeout_ms"], config["max_request_size"])

    def consumer(self, **config: Any) -> "Consumer":
        self._wait_until_up(config["bootstrap_timeout_ms"])
        return Consumer(self.kafka)

    def admin(self, **config: Any) -> "Admin":
        self._wait_until_up(config["bootstrap_timeout_ms"])
        return Admin(self.kafka)

    def _wait_until_up(self, timeout_ms: int) -> None:
        wait(self.kafka, timeout_ms * MS, lambda: self.kafka.is_up, "Unable to bootstrap")


def wait(kafka: SimKafka, timeout: int, is_possible: Callable[[], bool], error: str) -> None:
    """Let the current thread wait for the answer to a request. Raise an error after a time."""
    scheduler = kafka.scheduler
    until = scheduler.now + timeout
    scheduler.sleep(2 * kafka.delay)
    while not is_possible():
        if scheduler.now >= until:
            raise KafkaTimeoutError(error)
        scheduler.sleep(min(_RETRY, until - scheduler.now))


class Producer:
    def __init__(self, kafka: SimKafka, delivery_timeout_ms: int, max_bytes: int) -> None:
        self._kafka, self._timeout, self._max_bytes = kafka, delivery_timeout_ms * MS, max_bytes
        process = kafka.scheduler.current
        assert process is not None
        self._process: Process = process
        self._queues: dict[tuple[str, int], deque[_Sending]] = {}
        self._is_sending: set[tuple[str, int]] = set()
        self._sessions: dict[tuple[str, int], int] = {}
        self._numbers: dict[tuple[str, int], Iterator[int]] = {}
        self._is_discarded = False
        self._drained = Waiters(kafka.scheduler)

    def send(self, topic: str, value: bytes, key: bytes | None = None, partition: int = 0) -> SendFuture:
        future = SendFuture(self._kafka)
        if len(value) > self._max_bytes:
            future.error = MessageSizeTooLargeError("too large")
            return future
        place = (topic, partition)
        if place not in self._sessions:
            self._queues[place] = deque()
            self._begin_session(place)
        sending = _Sending(topic, key, value, self._kafka.scheduler.now, next(self._numbers[place]), future)
        self._queues[place].append(sending)
        self._pump(place, self._kafka.delay)
        return future

    def discard(self) -> None:
        """Send nothing more. All records that wait have failed."""
        if not self._is_discarded:
            self._is_discarded = True
            for queue in self._queues.values():
                while queue:
                    queue.popleft().future.fail(KafkaTimeoutError("the producer is closed"))

    def close(self, timeout: float | None = None) -> None:
        if not self._is_discarded and any(self._queues.values()):
            self._drained.wait(round((timeout or 3600) * 1e6))
        self.discard()

    def _pump(self, place: tuple[str, int], delay: int) -> None:
        """Send what waits for a partition, one request at a time."""
        if place not in self._is_sending:
            self._is_sending.add(place)
            self._kafka.scheduler.after(delay, lambda: self._arrive(place))

    def _arrive(self, place: tuple[str, int]) -> None:
        self._is_sending.discard(place)
        kafka, queue = self._kafka, self._queues[place]
        if self._is_discarded or not self._process.is_alive or not queue:
            return
        if self._process.is_paused or not kafka.is_available(*place):
            self._pump(place, _RETRY)
            if kafka.scheduler.now - queue[0].since >= self._timeout:
                self._process.call(lambda: self._expire(place))
            return
        if kafka.unacknowledged and kafka.scheduler.random.random() < kafka.unacknowledged:
            with suppress(OutOfOrderSequenceNumberError):
                kafka.append(*place, queue[0].key, queue[0].value, self._sessions[place], queue[0].number)
            self._pump(place, _RETRY)
            return
        try:
            batch = [(s, kafka.append(*place, s.key, s.value, self._sessions[place], s.number)[0]) for s in queue]
        except OutOfOrderSequenceNumberError as error:
            fail = partial(queue.popleft().future.fail, error)
            self._begin_session(place)
            self._process.call(fail)
            self._pump(place, self._kafka.delay)
            return
        self._is_sending.add(place)
        kafka.scheduler.after(kafka.delay, lambda: self._process.call(lambda: self._acknowledge(place, batch)))

    def _acknowledge(self, place: tuple[str, int], batch: list[tuple[_Sending, int]]) -> None:
        self._is_sending.discard(place)
        queue = self._queues[place]
        for sending, offset in batch:
            if queue and queue[0] is sending:
                queue.popleft()
                sending.future.succeed(offset)
        if queue:
            self._pump(place, self._kafka.delay)
        else:
            self._drained.wake()

    def _begin_session(self, place: tuple[str, int]) -> None:
        """Number the records that wait from 0 again, as after a record of unknown outcome (KIP-360)."""
        self._sessions[place] = self._kafka.next_session()
        numbers = self._numbers[place] = count()
        for sending in self._queues[place]:
            sending.number = next(numbers)

    def _expire(self, place: tuple[str, int]) -> None:
        queue = self._queues[place]
        while queue and self._kafka.scheduler.now - queue[0].since >= self._timeout:
            queue.popleft().future.fail(KafkaTimeoutError("Batch expired: no acknowledgement in time"))
        self._begin_session(place)


class Consumer:
    def __init__(self, kafka: SimKafka) -> None:
        self._kafka = kafka
        self._positions: dict[TopicPartition, int] = {}

    def _ask(self, places: Iterable[TopicPartition] = (), timeout_ms: int | None = None) -> None:
        wanted = list(places)
        timeout = _PATIENCE if timeout_ms is None else timeout_ms * MS
        kafka = self._kafka
        is_possible = lambda: kafka.is_up and all(kafka.is_available(p.topic, p.partition) for p in wanted)  # noqa: E731
        wait(kafka, timeout, is_possible, "Kafka does not answer")

    def partitions_for_topic(self, topic: str) -> set[int]:
        self._ask()
        found = self._kafka.topics.get(topic)
        return set(range(len(found.logs))) if found else set()

    def beginning_offsets(self, places: list[TopicPartition], timeout_ms: int | None = None) -> dict[Any, int]:
        self._ask(places, timeout_ms)
        return {p: self._kafka.log(p.partition, p.topic).first for p in places}

    def end_offsets(self, places: list[TopicPartition], timeout_ms: int | None = None) -> dict[Any, int]:
        self._ask(places, timeout_ms)
        return {p: self._kafka.log(p.partition, p.topic).end for p in places}

    def offsets_for_times(self, wanted: dict[TopicPartition, int]) -> dict[Any, Any]:
        self._ask(wanted)
        found = {}
        for place, at_ms in wanted.items():
            log = self._kafka.log(place.partition, place.topic)
            offset = next((log.first + i for i, r in enumerate(log.records) if r.at_ms >= at_ms), None)
            found[place] = None if offset is None else SimpleNamespace(offset=offset)
        return found

    def assign(self, places: list[TopicPartition]) -> None:
        self._positions = dict.fromkeys(places, 0)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._positions[place] = offset

    def position(self, place: TopicPartition, timeout_ms: int | None = None) -> int:
        return self._positions[place]

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        kafka, found = self._kafka, {}
        kafka.scheduler.sleep(2 * kafka.delay)
        for place, position in self._positions.items():
            if not kafka.is_available(place.topic, place.partition):
                continue
            log = kafka.log(place.partition, place.topic)
            if not log.first <= position <= log.end:
                raise OffsetOutOfRangeError({place: position})
            records = log.records[position - log.first : position - log.first + 5_000]
            if records:
                found[place] = [
                    SimpleNamespace(offset=position + i, timestamp=r.at_ms, key=r.key, value=r.value)
                    for i, r in enumerate(records)
                ]
                self._positions[place] = position + len(records)
        if not found:
            kafka.scheduler.sleep(timeout_ms * MS)
        return found

    def close(self, **_: Any) -> None:
        pass


class Admin:
    def __init__(self, kafka: SimKafka) -> None:
        self._kafka = kafka

    def _ask(self) -> None:
        wait(self._kafka, _PATIENCE, lambda: self._kafka.is_up, "Kafka does not answer")

    def create_topics(self, topics: dict[str, dict[str, Any]], **_: Any) -> None:
        self._ask()
        for name, wanted in topics.items():
            if name in self._kafka.topics:
                raise TopicAlreadyExistsError(name)
            self._kafka.create(name, wanted["num_partitions"], wanted["configs"])

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        self._ask()
        found = self._kafka.topics.get(names[0])
        logs = found.logs if found else []
        topic_id = found.topic_id if found else ""
        return [{"topic_id": topic_id, "partitions": [{"replica_nodes": [1]} for _ in logs]}]

    def describe_configs(self, resources: list[Any], config_filter: str = "") -> dict[str, Any]:
        self._ask()
        name = resources[0].name
        configs = self._kafka.topics[name].configs
        return {"topic": {name: {key: {"value": value} for key, value in configs.items()}}}

    def close(self) -> None:
        pass
