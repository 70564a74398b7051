"""Every statement in docs/analytics.md gives the expected answer in Spark, DuckDB and Polars."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

from tests.support.analytics.broker_answers import BROKER_ANSWERS
from tests.support.analytics.document import (
    DUCKDB,
    POLARS,
    SPARK,
    Question,
    connect_as_documented,
    formatted,
    normalised,
    questions,
)
from tests.support.analytics.example_log import PARTITIONS, example_log
from tests.support.analytics.expected_history import ExpectedHistory, Row, expected_history
from tests.support.analytics.log_answers import LOG_ANSWERS
from tests.support.analytics.route_answers import ROUTE_ANSWERS
from tests.support.history_rig import HistoryRig

pytestmark = [pytest.mark.spark]

_ANSWERS = {**ROUTE_ANSWERS, **BROKER_ANSWERS, **LOG_ANSWERS}
_QUESTIONS = questions()
_each = pytest.mark.parametrize("question", _QUESTIONS, ids=[q.title for q in _QUESTIONS])
#: Questions that find faults of the tables: correct tables give no row.
_CHECKS = (
    "Intervals that overlap, or leave a gap",
    "Sessions that overlap",
    "Ends on which two views disagree",
    "What is not from the log",
)


@pytest.fixture(scope="module")
def rig(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> HistoryRig:
    """The example log, written as by the history process."""
    rig = HistoryRig(spark, tmp_path_factory.mktemp("analytics"), PARTITIONS, history__heartbeats_interval_ms=1)
    rig.logs = example_log()
    rig.commit_and_write()
    return rig


@pytest.fixture(scope="module")
def history(rig: HistoryRig) -> ExpectedHistory:
    return expected_history(rig.logs)


@pytest.fixture(scope="module")
def in_spark(rig: HistoryRig, spark: SparkSession) -> SparkSession:
    connect_as_documented(SPARK, rig.dir, {"spark": spark})
    return spark


@pytest.fixture(scope="module")
def in_duckdb(rig: HistoryRig) -> Iterator[Any]:
    with closing(connect_as_documented(DUCKDB, rig.dir, {})["con"]) as connection:
        yield connection


@pytest.fixture(scope="module")
def in_polars(rig: HistoryRig) -> dict[str, Any]:
    """The namespace of the document's code, which contains ``context``."""
    return connect_as_documented(POLARS, rig.dir, {})


def test_questions_and_expected_answers_match() -> None:
    assert [q.title for q in _QUESTIONS] == list(dict.fromkeys(q.title for q in _QUESTIONS))
    assert {q.title for q in _QUESTIONS} == _ANSWERS.keys()
    assert all(
        q.sql(engine) or f"python {engine}" in q.blocks for q in _QUESTIONS for engine in (SPARK, DUCKDB, POLARS)
    )


@_each
def test_spark_gives_the_expected_answer(question: Question, in_spark: SparkSession, history: ExpectedHistory) -> None:
    statement = question.sql(SPARK)
    assert statement is not None
    found = in_spark.sql(statement)
    assert normalised(found.collect()) == _expected(question, history)


@_each
def test_duckdb_gives_the_expected_answer(question: Question, in_duckdb: Any, history: ExpectedHistory) -> None:
    found = in_duckdb.execute(question.sql(DUCKDB))
    assert normalised(found.fetchall()) == _expected(question, history)


@_each
def test_polars_gives_the_expected_answer(
    question: Question, in_polars: dict[str, Any], history: ExpectedHistory
) -> None:
    statement = question.sql(POLARS)
    if statement is None:
        exec(question.blocks["python polars"], in_polars)
        found = in_polars["answer"].collect()
    else:
        found = in_polars["context"].execute(statement, eager=True)
    assert normalised(found.rows()) == _expected(question, history)


@_each
def test_document_shows_the_expected_answer(question: Question, in_duckdb: Any, history: ExpectedHistory) -> None:
    columns = [column[0] for column in in_duckdb.execute(question.sql(DUCKDB)).description]
    assert question.answer == formatted(columns, _expected(question, history))


def test_only_checks_have_an_empty_answer(history: ExpectedHistory) -> None:
    assert [q.title for q in _QUESTIONS if not _expected(q, history)] == list(_CHECKS)


@pytest.mark.parametrize("title", _CHECKS)
def test_check_finds_damaged_rows(title: str, in_polars: dict[str, Any]) -> None:
    (question,) = (q for q in _QUESTIONS if q.title == title)
    context = in_polars["context"]
    rows = {name: context.execute(f"SELECT * FROM {name}") for name in context.tables()}
    damaged = pl.SQLContext({name: _damaged(name, frame) for name, frame in rows.items()})
    assert question.sql(POLARS) is not None
    assert damaged.execute(str(question.sql(POLARS)), eager=True).height > 0


def test_documented_code_shows_how_far_the_tables_reach(rig: HistoryRig) -> None:
    found: dict[str, datetime] = connect_as_documented("reach", rig.dir, {})["reach"]
    ends = [max(record.at_ms for record in log.records) for log in rig.logs]
    end = datetime.fromtimestamp(min(ends) / 1000, UTC)
    assert len(found) == 3
    assert found["route_archive"] == found["broker_events"] == end
    assert end - timedelta(minutes=1) <= min(found.values()) <= end


def test_documented_code_shows_the_reach_while_the_archive_of_changes_is_ahead(rig: HistoryRig, tmp_path: Path) -> None:
    copy = shutil.copytree(rig.dir, tmp_path / "tables")
    newest = max((copy / "route_archive" / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    (commit,) = (action["commitInfo"] for action in actions if "commitInfo" in action)
    mark = json.loads(commit["userMetadata"])
    mark["history"]["next_offsets"] = {p: end + 3 for p, end in mark["history"]["next_offsets"].items()}
    commit["userMetadata"] = json.dumps(mark)
    newest.write_text("\n".join(map(json.dumps, actions)))
    found: dict[str, datetime] = connect_as_documented("reach", copy, {})["reach"]
    assert found == connect_as_documented("reach", rig.dir, {})["reach"]


@pytest.mark.parametrize("engine", [SPARK, DUCKDB, POLARS])
def test_pinned_version_of_a_table_does_not_change(engine: str, rig: HistoryRig, spark: SparkSession) -> None:
    path = str(rig.dir / "route_archive")
    empty = 0
    match engine:
        case "spark":
            rows = spark.read.format("delta").option("versionAsOf", empty).load(path).count()
        case "duckdb":
            with closing(connect_as_documented(DUCKDB, rig.dir, {})["con"]) as connection:
                (rows,) = connection.execute(f"SELECT COUNT(*) FROM delta_scan('{path}', version = {empty})").fetchone()
        case _:
            rows = pl.scan_delta(path, version=empty).collect().height
    assert rows == 0


def _expected(question: Question, history: ExpectedHistory) -> list[Row]:
    return normalised(_ANSWERS[question.title](history))


def _damaged(name: str, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Damage a view: intervals begin early, sessions end late, and rows are not from the log."""
    if name == "topic_route_history":
        return rows.with_columns(pl.col("valid_from") - timedelta(seconds=1), seq=pl.lit(-1))
    if name == "broker_sessions":
        return rows.with_columns(pl.col("down_at") + timedelta(hours=1))
    return rows
