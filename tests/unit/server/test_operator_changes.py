"""Operators' changes begin in order, and have one outcome each, within the timeout."""

import pytest

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.server.gateway.operator_changes import NOT_TAKEN, UNKNOWN, Change, OperatorChanges

TIMEOUT_MS = 4_000
HERE = frozenset({0})


class World:
    """Changes of two records each, and the partitions that are available in Kafka."""

    def __init__(self) -> None:
        self.changes = OperatorChanges(TIMEOUT_MS, lambda partition: partition in self.available, self._begin)
        self.available = {0}
        self.begun: list[Change] = []

    def _begin(self, change: Change) -> None:
        change.unacked = 2
        self.begun.append(change)

    def add(self, partitions: frozenset[int] = HERE, now_ms: int = 0) -> list[str | None]:
        """Add a change; return its reported outcomes, each None or a remark."""
        outcomes: list[str | None] = []

        def outcome(error: NamesrvStreamError | None) -> None:
            outcomes.append(str(error) if error else None)

        self.changes.add((), partitions, outcome, now_ms)
        return outcomes


def test_success_is_reported_when_the_last_record_is_acknowledged() -> None:
    world = World()
    outcomes = world.add()
    world.changes.acked(world.begun[0])
    assert outcomes == []
    world.changes.acked(world.begun[0])
    assert outcomes == [None]


def test_only_the_first_outcome_is_reported() -> None:
    world = World()
    outcomes = world.add()
    world.changes.fail(world.begun[0])
    for _ in range(2):
        world.changes.acked(world.begun[0])
    world.changes.expire(1_000_000)
    world.changes.fail_all()
    assert outcomes == [UNKNOWN]


def test_every_change_fails_at_its_own_timeout() -> None:
    world = World()
    early, waiting, late = world.add(), world.add(frozenset({1})), world.add(now_ms=1)
    world.changes.expire(TIMEOUT_MS - 1)
    assert early == waiting == []
    world.changes.expire(TIMEOUT_MS)
    assert (early, waiting, late) == ([UNKNOWN], [NOT_TAKEN], [])
    world.available.add(1)
    world.changes.proceed()
    assert len(world.begun) == 2


def test_a_change_waits_for_all_its_partitions_and_for_earlier_changes() -> None:
    world = World()
    world.add(frozenset({0, 1}))
    world.add(HERE)
    assert (world.begun, world.changes.waiting) == ([], 2)
    world.available.add(1)
    world.changes.proceed()
    assert [change.partitions for change in world.begun] == [{0, 1}, {0}]


def test_changes_that_wait_for_an_unavailable_partition_are_refused() -> None:
    world = World()
    world.available.clear()
    outcomes = [world.add(frozenset({partition})) for partition in (0, 1)]
    world.changes.refuse(1)
    assert outcomes == [[], [NOT_TAKEN]]
    world.changes.refuse()
    assert outcomes == [[NOT_TAKEN]] * 2


def test_all_changes_have_an_unknown_outcome_when_no_acknowledgement_can_follow() -> None:
    world = World()
    outcomes = [world.add() for _ in range(3)]
    world.changes.fail_all()
    assert outcomes == [[UNKNOWN]] * 3


def test_a_callback_that_fails_does_not_affect_other_changes(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: NamesrvStreamError | None) -> None:
        raise RuntimeError("a bug")

    world = World()
    world.changes.add((), HERE, fail, 0)
    outcomes = world.add()
    world.changes.expire(TIMEOUT_MS)
    assert outcomes == [UNKNOWN]
    assert "a bug" in caplog.text
