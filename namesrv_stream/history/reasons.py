"""Why something is as it is: the row that made it so, and where in the log its record is."""

from typing import Any, NamedTuple

from namesrv_stream.route.changes import RouteChange


class Reason(NamedTuple):
    """One change.

    Attributes:
        at_ms: When, log time, epoch milliseconds.
        detail: Figures behind the cause, for people.
        broker_name: Whose it is; None for a KV entry.
        partition: Kafka partition of the record.
        offset: Its offset.
    """

    at_ms: int
    cause: str
    detail: str | None
    broker_name: str | None
    partition: int
    offset: int

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


def reason_of(row: RouteChange) -> Reason:
    """What a row says of why."""
    return Reason(row.at_ms, row.cause, row.detail, row.broker_name, row.partition, row.offset)


def position(row: RouteChange) -> tuple[int, int, int, int]:
    """Rows of several partitions in the order of what people see: by time, then as in the log."""
    return (row.at_ms, row.partition, row.offset, row.seq)
