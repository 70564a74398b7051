"""Receipts: told once, in time."""

import pytest

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.server.receipts import NOT_TAKEN, UNKNOWN, Receipt, Receipts

TIMEOUT_MS = 4_000


def opened(receipts: Receipts, records: int, now_ms: int = 0) -> tuple[Receipt, list[str | None]]:
    """A receipt for so many records, and what is told of it: None or a remark."""
    told: list[str | None] = []

    def outcome(error: NamesrvStreamError | None) -> None:
        told.append(str(error) if error else None)

    receipt = receipts.open(outcome, now_ms)
    receipt.missing = records
    return receipt, told


def test_success_is_told_with_the_last_record() -> None:
    receipts = Receipts(TIMEOUT_MS)
    receipt, told = opened(receipts, 2)
    receipts.acked(receipt)
    assert told == []
    receipts.acked(receipt)
    assert (told, len(receipts)) == ([None], 0)


def test_the_first_outcome_is_the_only_one() -> None:
    receipts = Receipts(TIMEOUT_MS)
    receipt, told = opened(receipts, 2)
    receipts.fail(receipt, NOT_TAKEN)
    receipts.acked(receipt)
    receipts.acked(receipt)
    receipts.expire(1_000_000)
    receipts.fail_all()
    assert told == [NOT_TAKEN]


def test_the_wait_ends_at_the_timeout_for_those_that_came_so_early() -> None:
    receipts = Receipts(TIMEOUT_MS)
    _, early = opened(receipts, 1, 0)
    _, late = opened(receipts, 1, 1)
    receipts.expire(TIMEOUT_MS - 1)
    assert early == []
    receipts.expire(TIMEOUT_MS)
    assert (early, late) == ([UNKNOWN], [])


def test_all_hear_when_nothing_will_be_acknowledged_any_more() -> None:
    receipts = Receipts(TIMEOUT_MS)
    told = [opened(receipts, 1)[1] for _ in range(3)]
    receipts.fail_all()
    assert (told, len(receipts)) == ([[UNKNOWN]] * 3, 0)


def test_one_that_cannot_be_told_keeps_the_outcome_from_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: NamesrvStreamError | None) -> None:
        raise RuntimeError("a fault of ours")

    receipts = Receipts(TIMEOUT_MS)
    receipts.open(fail, 0)
    _, told = opened(receipts, 1)
    receipts.expire(TIMEOUT_MS)
    assert told == [UNKNOWN]
    assert "a fault of ours" in caplog.text
