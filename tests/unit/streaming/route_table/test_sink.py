"""The counters of the job."""

from namesrv_stream.streaming.route_table.fold_query import BatchFigures


def test_records_are_counted_from_where_the_job_resumed() -> None:
    figures = BatchFigures(5, {0: 100, 1: 7})
    figures.begin()
    figures.folded(0, 110, 1_000)
    figures.folded(1, 8, 900)
    figures.end()
    now = figures.now()
    assert (now.started_ms, now.records, now.at_ms) == (5, 11, 900)
    assert sum(now.batch_counts) == 1


def test_a_batch_that_spark_delivers_again_counts_no_record_twice() -> None:
    figures = BatchFigures(0, {0: 0})
    for _ in range(2):
        figures.folded(0, 10, 1_000)
    figures.folded(0, 9, 900)
    assert (figures.now().records, figures.now().at_ms) == (10, 1_000)


def test_the_time_reached_is_0_before_the_first_batch() -> None:
    assert BatchFigures(0, {0: 5}).now().at_ms == 0
