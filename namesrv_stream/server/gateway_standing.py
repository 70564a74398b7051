"""How a server's way into the log is, for people and scrapes."""

from typing import NamedTuple


class GatewayStanding(NamedTuple):
    """One moment of a gateway.

    Attributes:
        is_talking: Kafka takes records of all partitions.
        is_blind: For some partition at least.
        has_started: Kafka has taken records since this server's start.
        since_ms: Wall clock of the last time that Kafka began, or ceased, to take records; at first of the start.
        lost_sessions: How often it ceased.
        reason: Why it does not; "" while it does.
        away: Of the partitions, those of which Kafka takes no records.
        queued_records: Not acknowledged, and ``queued_bytes``.
        oldest_age_ms: For how long the oldest of them waits.
        unsaid_brokers: Of which Kafka is to be told when it is back, and ``unsaid_changes``.
    """

    is_talking: bool
    has_started: bool
    is_blind: bool
    is_stopping: bool
    since_ms: int
    lost_sessions: int
    reason: str
    away: tuple[int, ...]
    partitions: int
    queued_records: int
    queued_bytes: int
    oldest_age_ms: int
    unsaid_brokers: int
    unsaid_changes: int
