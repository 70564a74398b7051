"""The partitions that the job ticks."""

from namesrv_stream.streaming.route_table.ticks import TickNeeds

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
