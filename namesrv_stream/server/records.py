"""What goes to the log: events gathered into Kafka records, and who takes them there."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final, NamedTuple, Protocol

from namesrv_stream.route.event_json import encode_event, encode_heartbeats, routing_key
from namesrv_stream.route.events import BrokerEvent, BrokerHeartbeat
from namesrv_stream.route.view import Pending

_MAX_HEARTBEATS_A_RECORD: Final = 2_000


class Item(NamedTuple):
    """An event on its way, and the view's ticket that is settled once it is in the log."""

    event: BrokerEvent
    pending: Pending | None


class OutRecord(NamedTuple):
    """One record on its way.

    Attributes:
        items: What it says of brokers; empty for ticks and the like.
        at_ms: Monotonic time at which it was handed to the publisher.
    """

    partition: int
    key: bytes | None
    value: bytes
    items: Sequence[Item] = ()
    at_ms: int = 0


class Acked(NamedTuple):
    """A record that is in the log at ``offset``."""

    record: OutRecord
    offset: int


class Unloggable(NamedTuple):
    """An event that no record can hold."""

    item: Item
    reason: str


class Publisher(Protocol):
    """Takes records to the log in order, in sessions; see ``KafkaPublisher``."""

    @property
    def can_begin(self) -> bool: ...

    @property
    def queued_records(self) -> int: ...

    @property
    def queued_bytes(self) -> int: ...

    @property
    def oldest_ms(self) -> int | None: ...

    def begin(self) -> None: ...

    def publish(self, record: OutRecord) -> None: ...

    def abort(self, reason: str) -> None: ...

    async def close(self, timeout_s: float) -> bool: ...


def records_of(partition: int, items: Iterable[Item], max_bytes: int) -> Iterator[OutRecord | Unloggable]:
    """Events as records, in order: runs of heartbeats share one.

    Args:
        max_bytes: Most bytes of a record's value that Kafka takes; one larger would fail every session anew.
    """
    for is_run, run in groupby(items, lambda item: isinstance(item.event, BrokerHeartbeat)):
        size = _MAX_HEARTBEATS_A_RECORD if is_run else 1
        while batch := list(islice(run, size)):
            yield from _encoded(partition, batch, max_bytes)


def _encoded(partition: int, batch: list[Item], max_bytes: int) -> Iterator[OutRecord | Unloggable]:
    try:
        value = _value(batch)
        key = (routing_key(batch[0].event) or "").encode()
        reason = f"{len(value)} bytes exceed {max_bytes}" if len(value) > max_bytes else ""
    except (ValueError, TypeError) as error:  # text or a number that JSON cannot carry
        reason = f"{type(error).__name__}: {error}"
    if not reason:
        yield OutRecord(partition, key, value, batch)
    elif len(batch) == 1:
        yield Unloggable(batch[0], reason)
    else:
        middle = len(batch) // 2
        yield from _encoded(partition, batch[:middle], max_bytes)
        yield from _encoded(partition, batch[middle:], max_bytes)


def _value(batch: list[Item]) -> bytes:
    heartbeats = [item.event for item in batch if isinstance(item.event, BrokerHeartbeat)]
    return encode_heartbeats(heartbeats) if heartbeats else encode_event(batch[0].event)
