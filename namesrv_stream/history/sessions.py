"""When which broker process was up."""

from dataclasses import dataclass

from namesrv_stream.history.past import Past
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import LiveKey


@dataclass(frozen=True, slots=True)
class Session:
    """One time for which a broker process was up; instants are log time, epoch milliseconds.

    Attributes:
        down_ms: When it was no longer; None while it is up.
        timeout_ms: That it asked for last; None for the default.
        heartbeats: How often it was heard in the time asked about, as far as it was counted.
        longest_gap_ms: The longest time between two of them at one name server; None where none is known.
        last_heard_ms: When it was heard last, as far as it was counted.
        partition: Kafka partition of the record that began it.
        offset: That record's offset.
    """

    key: LeaseKey
    broker_id: int | None
    up_ms: int
    down_ms: int | None
    up_cause: str
    down_cause: str | None
    down_detail: str | None
    timeout_ms: int | None
    heartbeats: int
    longest_gap_ms: int | None
    last_heard_ms: int | None
    partition: int
    offset: int

    @property
    def cluster(self) -> str:
        return self.key.live_key.cluster

    @property
    def broker_name(self) -> str:
        return self.key.broker_name

    @property
    def broker_addr(self) -> str:
        return self.key.live_key.broker_addr

    def length_ms(self, until_ms: int) -> int:
        """How long it lasted, up to an instant."""
        return (until_ms if self.down_ms is None else min(self.down_ms, until_ms)) - self.up_ms


def sessions_between(
    past: Past, since_ms: int, until_ms: int, *, cluster: str | None = None, broker_name: str | None = None
) -> list[Session]:
    """The sessions that overlap a time, and of each process its first and last before, by key and begin; blocks.

    Args:
        past: Opened.
        since_ms: Epoch milliseconds.
        until_ms: Epoch milliseconds; what begins later, or ends later, is not known yet.
        cluster: Only of this cluster.
        broker_name: Only of this broker name.

    Raises:
        TableSchemaMismatch: The tables cannot be read.
    """
    only = {"cluster": cluster, "broker_name": broker_name}
    found = past.ask("sessions", since_ms=since_ms, until_ms=until_ms, **only)
    return [
        Session(LeaseKey(row.pop("broker_name"), LiveKey(row.pop("cluster"), row.pop("broker_addr"))), **row)
        for row in found.to_pylist()
    ]
