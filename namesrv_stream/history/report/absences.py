"""When brokers that were to be up were down: the other side of ``availability``, interval by interval."""

from collections.abc import Iterable
from dataclasses import dataclass

from namesrv_stream.history.outages import Outage
from namesrv_stream.route.lease import LeaseKey


@dataclass(frozen=True, slots=True)
class Absence:
    """One broker's, cut to the time asked about; epoch milliseconds.

    Attributes:
        broker: Its newest process.
        cause: Why it went.
        is_over: Whether it came back.
    """

    broker: LeaseKey
    begin_ms: int
    end_ms: int
    cause: str
    is_over: bool

    @property
    def cluster(self) -> str:
        return self.broker.live_key.cluster

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.begin_ms


def absences(outages: Iterable[Outage], since_ms: int, until_ms: int) -> list[Absence]:
    """Those of brokers; a goodbye for good is none.

    Args:
        outages: Of the time.
        since_ms: Epoch milliseconds.
        until_ms: Epoch milliseconds.
    """
    return [
        Absence(
            outage.broker,
            max(outage.begin_ms, since_ms),
            until_ms if outage.end_ms is None else min(outage.end_ms, until_ms),
            outage.cause,
            outage.end_ms is not None,
        )
        for outage in outages
        if outage.broker is not None and not outage.is_for_good
    ]
