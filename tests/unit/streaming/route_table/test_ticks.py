"""The partitions that the job ticks."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from namesrv_stream.settings import load_settings
from namesrv_stream.streaming.route_table.ticks import Ticker, TickNeeds
from namesrv_stream.table_errors import LogTruncated, RecordsLost

_LINGER_MS = 60_000


def _needs() -> TickNeeds:
    return TickNeeds(partitions=2, interval_ms=500, linger_ms=_LINGER_MS)


def test_before_the_first_fold_all_partitions_are_ticked() -> None:
    needs = _needs()
    assert needs.at(0.0) == [0, 1]
    needs.folded(1, has_direct=False, now_s=100.0)
    assert needs.at(100.5) == [0]


def test_partition_without_direct_publishers_is_ticked_only_without_other_records() -> None:
    needs = _needs()
    for now_s in (100.0, 100.5, 101.0):
        needs.folded(0, has_direct=False, now_s=now_s)
    assert 0 not in needs.at(101.9)
    assert 0 in needs.at(102.0)


def test_a_partition_with_a_broker_of_a_direct_publisher_is_ticked_every_time() -> None:
    needs = _needs()
    needs.folded(0, has_direct=False, now_s=100.0)
    needs.folded(0, has_direct=True, now_s=100.2)
    needs.folded(1, has_direct=False, now_s=100.2)
    assert needs.at(100.5) == [0]


def test_ticks_continue_for_a_while_after_the_last_direct_publisher() -> None:
    needs = _needs()
    needs.folded(0, has_direct=True, now_s=100.0)
    for now_s, is_ticked in ((100.5, True), (160.0, True), (160.5, False)):
        needs.folded(0, has_direct=False, now_s=now_s)
        assert (0 in needs.at(now_s)) is is_ticked


class _Log:
    """Takes the place of a ticker's producer: appends each record at an offset that the test chooses."""

    def __init__(self) -> None:
        self.end = 0
        self.lost: list[LogTruncated | RecordsLost] = []
        self.ticker = Ticker(load_settings(environ={}).settings, self, 1, self.lost.append)

    def send(self, topic: str, value: bytes, partition: int) -> "_Log":
        return self

    def add_callback(self, sent: Callable[[Any], None]) -> None:
        sent(SimpleNamespace(offset=self.end))


def test_a_tick_at_the_offset_of_a_folded_record_shows_that_kafka_lost_the_record() -> None:
    log = _Log()
    log.ticker.folded({0: False}, {0: 100})
    log.end = 100
    log.ticker.send(0)
    assert not log.lost
    log.end = 99
    log.ticker.send(0)
    (error,) = log.lost
    assert str(error).startswith("partition 0: offset 100 must be folded next")


def test_a_tick_before_an_earlier_one_shows_that_kafka_lost_records_that_are_not_folded_yet() -> None:
    log = _Log()
    for log.end in (7, 8, 120):
        log.ticker.send(0)
    log.end = 5
    log.ticker.send(1)
    assert not log.lost
    log.end = 119
    log.ticker.send(0)
    (error,) = log.lost
    assert str(error).startswith("partition 0: Kafka has lost acknowledged records")
