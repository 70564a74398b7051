"""docs/analytics.md: every statement in Spark, and in DuckDB and Polars, answers what the night's log says."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

from tests.support.analytics.broker_answers import BROKER_ANSWERS
from tests.support.analytics.document import DUCKDB, POLARS, SPARK, Question, connecting, plain, questions, shown
from tests.support.analytics.example_log import PARTITIONS, a_night
from tests.support.analytics.expected_history import Facts, Row, facts_of
from tests.support.analytics.log_answers import LOG_ANSWERS
from tests.support.analytics.route_answers import ROUTE_ANSWERS
from tests.support.history_rig import HistoryRig

pytestmark = [pytest.mark.spark]

_ANSWERS = {**ROUTE_ANSWERS, **BROKER_ANSWERS, **LOG_ANSWERS}
_QUESTIONS = questions()
_each = pytest.mark.parametrize("question", _QUESTIONS, ids=[q.title for q in _QUESTIONS])
#: Questions whose answer on tables without fault is no row.
_CHECKS = (
    "Intervals that overlap, or leave a gap",
    "Sessions that overlap",
    "Ends that two tables tell differently",
    "What is not from the log",
)


@pytest.fixture(scope="module")
def rig(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> HistoryRig:
    """The night, written as the history process writes it."""
    rig = HistoryRig(spark, tmp_path_factory.mktemp("night"), PARTITIONS, history__heartbeats_interval_ms=1)
    rig.logs = a_night()
    rig.commit_and_write()
    return rig


@pytest.fixture(scope="module")
def facts(rig: HistoryRig) -> Facts:
    return facts_of(rig.logs)


@pytest.fixture(scope="module")
def in_spark(rig: HistoryRig, spark: SparkSession) -> SparkSession:
    connecting(SPARK, rig.dir, {"spark": spark})
    return spark


@pytest.fixture(scope="module")
def in_duckdb(rig: HistoryRig) -> Iterator[Any]:
    with closing(connecting(DUCKDB, rig.dir, {})["con"]) as connection:
        yield connection


@pytest.fixture(scope="module")
def in_polars(rig: HistoryRig) -> dict[str, Any]:
    """What the document's code made: ``context`` among it."""
    return connecting(POLARS, rig.dir, {})


def test_every_question_has_an_expected_answer_and_the_other_way_round() -> None:
    assert [q.title for q in _QUESTIONS] == list(dict.fromkeys(q.title for q in _QUESTIONS))
    assert {q.title for q in _QUESTIONS} == _ANSWERS.keys()
    assert all(
        q.sql(engine) or f"python {engine}" in q.blocks for q in _QUESTIONS for engine in (SPARK, DUCKDB, POLARS)
    )


@_each
def test_spark_answers_what_the_log_says(question: Question, in_spark: SparkSession, facts: Facts) -> None:
    statement = question.sql(SPARK)
    assert statement is not None
    found = in_spark.sql(statement)
    assert plain(found.collect()) == _expected(question, facts)


@_each
def test_duckdb_answers_what_the_log_says(question: Question, in_duckdb: Any, facts: Facts) -> None:
    found = in_duckdb.execute(question.sql(DUCKDB))
    assert plain(found.fetchall()) == _expected(question, facts)


@_each
def test_polars_answers_what_the_log_says(question: Question, in_polars: dict[str, Any], facts: Facts) -> None:
    statement = question.sql(POLARS)
    if statement is None:
        exec(question.blocks["python polars"], in_polars)
        found = in_polars["answer"].collect()
    else:
        found = in_polars["context"].execute(statement, eager=True)
    assert plain(found.rows()) == _expected(question, facts)


@_each
def test_the_document_shows_the_answer(question: Question, in_duckdb: Any, facts: Facts) -> None:
    columns = [column[0] for column in in_duckdb.execute(question.sql(DUCKDB)).description]
    assert question.answer == shown(columns, _expected(question, facts))


def test_only_checks_answer_with_no_row(facts: Facts) -> None:
    assert [q.title for q in _QUESTIONS if not _expected(q, facts)] == list(_CHECKS)


@pytest.mark.parametrize("title", _CHECKS)
def test_a_check_finds_what_it_is_for(title: str, in_polars: dict[str, Any]) -> None:
    (question,) = (q for q in _QUESTIONS if q.title == title)
    context = in_polars["context"]
    rows = {name: context.execute(f"SELECT * FROM {name}") for name in context.tables()}
    damaged = pl.SQLContext({name: _damaged(name, frame) for name, frame in rows.items()})
    assert question.sql(POLARS) is not None
    assert damaged.execute(str(question.sql(POLARS)), eager=True).height > 0


def test_the_document_tells_how_far_the_tables_reach(rig: HistoryRig) -> None:
    found: dict[str, datetime] = connecting("reach", rig.dir, {})["reach"]
    ends = [max(record.at_ms for record in log.records) for log in rig.logs]
    end = datetime.fromtimestamp(min(ends) / 1000, UTC)
    assert len(found) == 3
    assert found["route_archive"] == found["broker_events"] == end
    assert end - timedelta(minutes=1) <= min(found.values()) <= end


@pytest.mark.parametrize("engine", [SPARK, DUCKDB, POLARS])
def test_a_pinned_version_stays_what_it_was(engine: str, rig: HistoryRig, spark: SparkSession) -> None:
    path = str(rig.dir / "route_archive")
    empty = 0
    match engine:
        case "spark":
            rows = spark.read.format("delta").option("versionAsOf", empty).load(path).count()
        case "duckdb":
            with closing(connecting(DUCKDB, rig.dir, {})["con"]) as connection:
                (rows,) = connection.execute(f"SELECT COUNT(*) FROM delta_scan('{path}', version = {empty})").fetchone()
        case _:
            rows = pl.scan_delta(path, version=empty).collect().height
    assert rows == 0


def _expected(question: Question, facts: Facts) -> list[Row]:
    return plain(_ANSWERS[question.title](facts))


def _damaged(name: str, rows: pl.LazyFrame) -> pl.LazyFrame:
    """A view with intervals that begin early, sessions that end late, and rows that are not from the log."""
    if name == "topic_route_history":
        return rows.with_columns(pl.col("valid_from") - timedelta(seconds=1), seq=pl.lit(-1))
    if name == "broker_sessions":
        return rows.with_columns(pl.col("down_at") + timedelta(hours=1))
    return rows
