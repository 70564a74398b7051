"""How far the history has caught up with Kafka, over all partitions."""

from namesrv_stream.long_work import LongWork
from namesrv_stream.streaming.history.history_job import reports


def test_records_of_all_partitions_are_counted() -> None:
    lines: list[str] = []
    times = iter([0.0, 5.0, 10.0, 20.0])
    work = LongWork("records", print_line=lines.append, clock=lambda: next(times))
    reached = reports(work, {0: 100, 1: 0}, {0: 300, 1: 800})
    reached({0: 200, 1: 0})
    reached({0: 300, 1: 200})
    reached({0: 310, 1: 900})  # Kafka has more by now
    assert lines == [
        "catching up with Kafka: 40%, 400 of 1,000 records, 40/s, 15.0 s left",
        "catching up with Kafka: 100%, 1,000 of 1,000 records, 50/s, 0 ms left",
    ]
