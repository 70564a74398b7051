"""Operators' changes: begun in order, reported once, in time."""

import pytest

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.server.gateway.operator_changes import NOT_TAKEN, UNKNOWN, Change, OperatorChanges

TIMEOUT_MS = 4_000
HERE = frozenset({0})


class World:
    """Changes of two records each, of partitions that Kafka takes records of or not."""

    def __init__(self) -> None:
        self.changes = OperatorChanges(TIMEOUT_MS, lambda partition: partition in self.there, self._begin)
        self.there = {0}
        self.begun: list[Change] = []

    def _begin(self, change: Change) -> None:
        change.unacked = 2
        self.begun.append(change)

    def add(self, partitions: frozenset[int] = HERE, now_ms: int = 0) -> list[str | None]:
        """A change; what is reported of it: None or a remark."""
        outcomes: list[str | None] = []

        def outcome(error: NamesrvStreamError | None) -> None:
            outcomes.append(str(error) if error else None)

        self.changes.add((), partitions, outcome, now_ms)
        return outcomes


def test_success_is_reported_with_the_last_record() -> None:
    world = World()
    outcomes = world.add()
    world.changes.acked(world.begun[0])
    assert outcomes == []
    world.changes.acked(world.begun[0])
    assert outcomes == [None]


def test_the_first_outcome_is_the_only_one() -> None:
    world = World()
    outcomes = world.add()
    world.changes.fail(world.begun[0])
    for _ in range(2):
        world.changes.acked(world.begun[0])
    world.changes.expire(1_000_000)
    world.changes.fail_all()
    assert outcomes == [UNKNOWN]


def test_the_wait_ends_at_the_timeout_for_those_that_came_so_early() -> None:
    world = World()
    early, waiting, late = world.add(), world.add(frozenset({1})), world.add(now_ms=1)
    world.changes.expire(TIMEOUT_MS - 1)
    assert early == waiting == []
    world.changes.expire(TIMEOUT_MS)
    assert (early, waiting, late) == ([UNKNOWN], [NOT_TAKEN], [])
    world.there.add(1)
    world.changes.proceed()
    assert len(world.begun) == 2


def test_a_change_waits_for_all_its_partitions_and_for_those_before_it() -> None:
    world = World()
    world.add(frozenset({0, 1}))
    world.add(HERE)
    assert (world.begun, world.changes.waiting) == ([], 2)
    world.there.add(1)
    world.changes.proceed()
    assert [change.partitions for change in world.begun] == [{0, 1}, {0}]


def test_what_waits_for_a_partition_is_refused_when_it_is_away() -> None:
    world = World()
    world.there.clear()
    outcomes = [world.add(frozenset({partition})) for partition in (0, 1)]
    world.changes.refuse(1)
    assert outcomes == [[], [NOT_TAKEN]]
    world.changes.refuse()
    assert outcomes == [[NOT_TAKEN]] * 2


def test_all_hear_when_nothing_will_be_acknowledged_any_more() -> None:
    world = World()
    outcomes = [world.add() for _ in range(3)]
    world.changes.fail_all()
    assert outcomes == [[UNKNOWN]] * 3


def test_one_that_cannot_be_told_keeps_the_outcome_from_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: NamesrvStreamError | None) -> None:
        raise RuntimeError("a fault of ours")

    world = World()
    world.changes.add((), HERE, fail, 0)
    outcomes = world.add()
    world.changes.expire(TIMEOUT_MS)
    assert outcomes == [UNKNOWN]
    assert "a fault of ours" in caplog.text
