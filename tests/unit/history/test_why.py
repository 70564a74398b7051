"""What ``why`` reads from the tables, for now and for a past moment."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.history.why import explain_past, read_newest
from namesrv_stream.route.events import KvPut, TopicDeleted, WritePermChanged
from namesrv_stream.route.why.facts import Question
from namesrv_stream.route.why.findings import Explanation, Why
from namesrv_stream.table_errors import NotInHistory
from tests.support.builders import BASE, BEGIN_MS, RW, S1, Log, a_registration
from tests.support.history_tables import HistoryOfLogs
from tests.support.tables import TablesOfLog

BROKER = a_registration(topics={"TopicTest": RW, "TBW102": RW, **BASE})
OTHER = a_registration("10.0.0.2:10911", broker_name="broker-b", topics={"Other": RW, **BASE})


def a_log() -> Log:
    """A topic that exists from second 1 on and is deleted at 61; its broker unregisters at 121."""
    log = Log()
    log.say(KvPut(S1, "ns", "key", "value"))  # the history begins with its first row
    log.register(BROKER, after_ms=1_000)
    log.register(OTHER, connection=2)
    log.say(TopicDeleted(S1, "TopicTest", None, "10.1.1.1"), after_ms=60_000)
    log.tick(60_000)
    log.unregister(BROKER)
    return log


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> HistoryOfLogs:
    """The tables of ``a_log``."""
    tables = HistoryOfLogs(tmp_path_factory.mktemp("log"), a_log())
    tables.write_all()
    return tables


def causes(answer: Explanation) -> Sequence[str]:
    return [each.cause for each in answer.findings]


@pytest.mark.parametrize(
    ("subject", "name", "after_ms", "expected"),
    [
        ("topic", "TopicTest", 500, [Why.NO_BROKERS]),
        ("topic", "TopicTest", 1_000, [Why.CLIENT_CACHE]),
        ("topic", "TopicTest", 60_000, [Why.NOTHING_WRONG]),
        ("topic", "TopicTest", 62_000, [Why.TOPIC_DELETED]),
        ("topic", "topictest", 60_000, [Why.NEAR_MISS, Why.NEVER_REGISTERED]),
        ("topic", "Elsewhere", 60_000, [Why.NEVER_REGISTERED]),
        ("topic", "Elsewhere", 121_000, [Why.DEFAULT_TOPIC_GONE]),
        ("broker", "broker-a", 60_000, [Why.NOTHING_WRONG]),
        ("broker", "broker-a", 121_000, [Why.BROKER_UNREGISTERED]),
        ("broker", "broker-c", 60_000, [Why.NEAR_MISS, Why.BROKER_NEVER_REGISTERED]),
    ],
)
def test_why_answers_for_a_past_moment_from_the_state_of_that_moment(
    tables: HistoryOfLogs, subject: Literal["topic", "broker"], name: str, after_ms: int, expected: list[Why]
) -> None:
    at = str(BEGIN_MS + after_ms)
    answer = explain_past(tables.settings, Question(subject, name), at, tables.logs[0].now_ms, flag="--at")
    assert causes(answer) == expected
    assert "as of" in answer.notes[0]


def test_an_order_configuration_alone_does_not_make_a_topic_known(tmp_path: Path) -> None:
    log = a_log()
    log.say(KvPut(S1, "ORDER_TOPIC_CONFIG", "othre", "broker-b:4"))
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    question = Question("topic", "othre")
    assert causes(explain_past(tables.settings, question, "now", log.now_ms, flag="--at")) == [
        Why.NEAR_MISS,
        Why.DEFAULT_TOPIC_GONE,
    ]
    known = read_newest(tables.settings, question, ["Other", "base"])
    assert known.near == ["Other"]
    assert {row.cause for row in known.default_topic if row.gone} == {"unregistered"}


def test_a_wiped_permission_is_known_although_a_topic_was_deleted_later(tmp_path: Path) -> None:
    log = a_log()
    log.say(WritePermChanged(S1, "broker-b", False, "10.1.1.1"))
    log.say(TopicDeleted(S1, "Other", None, "10.1.1.1"), after_ms=1_000)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    answer = explain_past(tables.settings, Question("broker", "broker-b"), "now", log.now_ms, flag="--at")
    assert causes(answer) == [Why.WRITE_PERM_WIPED]


def test_the_evidence_of_a_deletion_is_its_row(tables: HistoryOfLogs) -> None:
    now_ms = tables.logs[0].now_ms
    answer = explain_past(tables.settings, Question("topic", "TopicTest"), "now", now_ms, flag="--at")
    (found,) = answer.findings
    assert found.since_ms == BEGIN_MS + 61_000
    (row,) = found.evidence
    assert (row.partition, row.offset, row.cause, row.detail) == (0, 3, "topic_deleted", "by 10.1.1.1 at s1")


def test_a_time_outside_the_history_and_an_invalid_time_are_refused(tables: HistoryOfLogs) -> None:
    question, now_ms = Question("topic", "TopicTest"), tables.logs[0].now_ms
    with pytest.raises(NotInHistory, match="before the start of the history"):
        explain_past(tables.settings, question, str(BEGIN_MS - 1), now_ms, flag="--at")
    with pytest.raises(ConfigError, match="--at"):
        explain_past(tables.settings, question, "yesterdayish", now_ms, flag="--at")


def test_the_newest_rows_are_read_without_history_tables(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(BROKER)
    tables.log.unregister(BROKER)
    tables.commit()
    known = read_newest(tables.settings, Question("topic", "TopicTest"), [])
    assert {row.cause for row in known.rows if row.gone} == {"unregistered"}
    assert not read_newest(tables.settings, Question("topic", "Elsewhere"), []).rows
    assert read_newest(tables.settings, Question("broker", "broker-a"), []).rows
    with pytest.raises(NotInHistory):
        explain_past(tables.settings, Question("topic", "TopicTest"), "now", tables.log.now_ms, flag="--at")


def test_a_topic_and_a_misspelt_name_are_found_among_ten_thousand_topics(tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    many = {f"topic-{number}": RW for number in range(10_000)} | BASE
    for number in range(4):
        broker = a_registration(f"10.0.0.{number}:10911", broker_name=f"broker-{number}", topics=many)
        tables.log.register(broker, connection=number)
    tables.commit()
    read_newest(tables.settings, Question("topic", "topic-77"), list(many))  # the first query imports DuckDB
    begun_s = time.monotonic()
    assert read_newest(tables.settings, Question("topic", "topic-77"), list(many)).rows
    assert read_newest(tables.settings, Question("topic", "topci-77"), list(many)).near[0] == "topic-77"
    print(f"two answers took {time.monotonic() - begun_s:.3f} s")
