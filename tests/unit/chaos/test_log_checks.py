"""The checks of tables and servers against the log find every kind of error, and nothing in a correct run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.events import BrokerRegistered, KvPut, ServerStarted, Tick
from tests.chaos.evidence import Commit, Evidence, Rows, Served
from tests.chaos.faulty_producer import Poison
from tests.chaos.log_checks import (
    check_log,
    digests_unlike,
    offsets_skipped,
    poison_without_dead_letter,
    rows_twice,
    rows_unlike_the_fold,
    seq_gaps,
    stamps_of_producers,
)
from tests.chaos.truth import Truth
from tests.support.builders import S1, Log, a_registration


@pytest.fixture
def log() -> Log:
    """Some records, one of them invalid, with their rows."""
    log = Log()
    log.say(ServerStarted(S1))
    log.say(BrokerRegistered(S1._replace(connection_id=1), a_registration()), 500)
    log.append(b"poison", 500)
    log.say(KvPut(S1, "n", "k", "v"), 500)
    log.say(Tick(S1), 500)
    return log


@pytest.fixture
def honest(log: Log) -> Evidence:
    """The evidence of a correct run with that log."""
    rows = list(log.output.changes)
    return Evidence(
        truth=Truth(()),
        max_gap_ms=2_000,
        records=log.records,
        stored=rows,
        committed={0: 5},
        commits=(Commit(1, 0, {0: 2}, (Rows(0, 0, 1),)), Commit(2, 0, {0: 5}, (Rows(0, 3, 3),))),
        folded=rows,
        servers={"a": Served({0: 5}, {0: "digest"}), "b": Served({0: 4}, {0: "older"})},
        fold_digests={(0, 5): "digest", (0, 4): "older"},
        dead_letters=("0-2--1",),
        fold_dead_letters=1,
        poisons=(Poison("no JSON", 0, 2),),
    )


def test_correct_run_has_no_finding(honest: Evidence) -> None:
    assert check_log(honest) == []


def test_rows_that_are_not_committed_yet_are_no_finding(honest: Evidence, log: Log) -> None:
    rows = [row for row in honest.stored if row.offset < 2]
    behind = replace(honest, stored=rows, committed={0: 2}, commits=honest.commits[:1], fold_dead_letters=0)
    assert check_log(behind) == []


def _without(rows: Sequence[RouteChange], index: int) -> list[RouteChange]:
    return [*rows[:index], *rows[index + 1 :]]


@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_row_that_is_missing_is_found(honest: Evidence, index: int) -> None:
    rows = list(honest.stored)
    del rows[index]
    assert list(rows_unlike_the_fold(rows, honest.folded))


def test_row_that_is_not_from_the_log_is_found(honest: Evidence) -> None:
    extra = honest.stored[-1]._replace(offset=4, seq=0)
    (text,) = rows_unlike_the_fold([*honest.stored, extra], honest.folded)
    assert text.startswith("stored, but not of the log")


@pytest.mark.parametrize("change", [{"cause": "expired"}, {"value": "w"}, {"at_ms": 1}, {"gone": True}])
def test_a_row_with_another_value_is_found(honest: Evidence, change: dict[str, Any]) -> None:
    rows = [*honest.stored[:-1], honest.stored[-1]._replace(**change)]
    assert len(list(rows_unlike_the_fold(rows, honest.folded))) == 1


def test_duplicate_row_is_found(honest: Evidence) -> None:
    doubled = [*honest.stored, honest.stored[2]]
    assert len(list(rows_twice(doubled))) == 1
    assert [f.check for f in check_log(replace(honest, stored=doubled))] == ["no row twice"]


def test_a_record_that_lacks_one_of_its_rows_is_found(honest: Evidence) -> None:
    place = next(i for i, row in enumerate(honest.stored) if row.seq == 1)
    assert list(seq_gaps(_without(honest.stored, place)))


@pytest.mark.parametrize(
    "commits",
    [
        pytest.param((Commit(1, 0, {0: 2}), Commit(2, 0, {0: 1}), Commit(3, 0, {0: 5})), id="progress decreases"),
        pytest.param((Commit(1, 0, {0: 2}, (Rows(0, 0, 2),)), Commit(2, 0, {0: 5})), id="rows beyond the progress"),
        pytest.param((Commit(1, 0, {0: 2}), Commit(2, 0, {0: 5}, (Rows(0, 1, 3),))), id="rows of earlier progress"),
        pytest.param((Commit(1, 0, {0: 2}), Commit(2, 0, {}, (Rows(0, 3, 3),))), id="rows without progress"),
        pytest.param((Commit(1, 0, {0: 2}), Commit(2, 0, {0: 4})), id="less progress than the table has"),
        pytest.param((), id="no commits"),
    ],
)
def test_a_skipped_offset_is_found(commits: tuple[Commit, ...]) -> None:
    assert list(offsets_skipped(commits, {0: 5}))


def test_server_with_a_different_digest_is_found(honest: Evidence) -> None:
    servers = dict(honest.servers) | {"b": Served({0: 4}, {0: "another"})}
    (text,) = digests_unlike(replace(honest, servers=servers))
    assert text.startswith("b has another")


@pytest.mark.parametrize("served", [Served({}, {}), Served({0: 5}, {}), Served({0: 3}, {0: "digest"})])
def test_server_without_a_comparable_digest_is_found(honest: Evidence, served: Served) -> None:
    assert list(digests_unlike(replace(honest, servers={"a": served})))


def test_invalid_record_without_a_dead_letter_is_found(honest: Evidence) -> None:
    assert len(list(poison_without_dead_letter(replace(honest, dead_letters=())))) == 2


def test_dead_letter_of_a_valid_record_is_found(honest: Evidence) -> None:
    assert len(list(poison_without_dead_letter(replace(honest, dead_letters=("0-2--1", "0-3--1"))))) == 1


def test_repeated_dead_letter_counts_once(honest: Evidence) -> None:
    assert list(poison_without_dead_letter(replace(honest, dead_letters=("0-2--1", "0-2--1")))) == []


@pytest.mark.parametrize("jump_ms", [-300_000, 300_000])
def test_timestamp_of_a_producers_clock_is_found(log: Log, jump_ms: int) -> None:
    assert list(stamps_of_producers(log.records)) == []
    log.records[2] = log.records[2]._replace(at_ms=log.records[2].at_ms + jump_ms)
    assert len(list(stamps_of_producers(log.records))) == 1


def test_many_findings_of_a_kind_are_shortened(honest: Evidence) -> None:
    many = [honest.stored[-1]._replace(offset=4, seq=seq) for seq in range(20)]
    found = [
        f for f in check_log(replace(honest, stored=[*honest.stored, *many])) if f.check == "rows equal the fold's"
    ]
    assert len(found) == 6
    assert found[-1].text == "and 15 more"
