"""Findings of the doctor about Kafka and its topics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from namesrv_stream.kafka.inspection import InspectedLog, InspectedTopic
from namesrv_stream.settings.installation import PartState
from namesrv_stream.tools.doctor.event_log import kafka_clock, topics
from namesrv_stream.tools.doctor.finding import Finding, Grade
from tests.support.tables import settings_in

_NOW_MS = 1_700_000_000_000


def _topic(**changes: Any) -> InspectedTopic:
    fields: dict[str, Any] = {
        "partitions": 1,
        "without_leader": (),
        "behind": (),
        "replicas": 1,
        "faults": {},
    } | changes
    return InspectedTopic("namesrv.broker-events", "t", **fields)


def _log(
    events: InspectedTopic | None,
    brokers: int = 1,
    newest_ms: Mapping[int, int] | None = None,
    dead_letters_held: int = 0,
    missing_rights: Mapping[str, tuple[str, ...]] | None = None,
) -> InspectedLog:
    held, rights = dead_letters_held, missing_rights or {}
    return InspectedLog("k:9092", brokers, events, None, {0: 0}, {0: 9}, newest_ms or {}, held, missing_rights=rights)


def _findings(tmp_path: Path, log: InspectedLog, grade: Grade) -> list[Finding]:
    return [f for f in topics(settings_in(tmp_path), log) if f.grade is grade]


def test_correct_topic_has_no_findings(tmp_path: Path) -> None:
    log = _log(_topic())
    assert not _findings(tmp_path, log, Grade.FAULT)
    assert not _findings(tmp_path, log, Grade.WARNING)


def test_missing_topic_is_not_a_fault(tmp_path: Path) -> None:
    assert len(_findings(tmp_path, _log(None), Grade.NOTE)) == 2
    assert not _findings(tmp_path, _log(None), Grade.FAULT)


_EVENTS = "namesrv.broker-events"
_DEAD_LETTERS = "namesrv.broker-events.dead-letters"


@pytest.mark.parametrize(
    ("name", "exists", "lacks", "grade", "text"),
    [
        (_EVENTS, False, ("Describe", "Read"), Grade.FAULT, "lacks Describe, Read, so Kafka does not say whether"),
        (_DEAD_LETTERS, False, ("Describe",), Grade.FAULT, "lacks Describe, so Kafka does not say whether the topic"),
        (_EVENTS, False, ("Create",), Grade.WARNING, "does not exist yet, and this user may not create it"),
        (_EVENTS, True, ("Read", "Write"), Grade.FAULT, "lacks Read, Write"),
        (_DEAD_LETTERS, True, ("DescribeConfigs",), Grade.FAULT, "lacks DescribeConfigs"),
        (_EVENTS, True, ("Write",), Grade.WARNING, "lacks Write, which the servers and the job need"),
        (_DEAD_LETTERS, True, ("Read", "Write"), Grade.NOTE, "lacks Read, Write; the job needs Write"),
    ],
)
def test_a_missing_right_is_named_and_a_fault_if_every_part_needs_it(
    tmp_path: Path, name: str, exists: bool, lacks: tuple[str, ...], grade: Grade, text: str
) -> None:
    log = _log(_topic() if exists else None, missing_rights={name: lacks})
    (found,) = [f for f in topics(settings_in(tmp_path), log) if "this user" in f.text]
    assert (found.area, found.grade) == (f"topic {name}", grade)
    assert text in found.text
    assert "docs/production.md" in found.remedy


def test_settings_that_the_user_may_not_read_are_not_called_correct(tmp_path: Path) -> None:
    log = _log(_topic(), missing_rights={_EVENTS: ("DescribeConfigs",)})
    assert [f.area for f in _findings(tmp_path, log, Grade.FINE)] == ["Kafka"]


def test_each_wrong_setting_of_a_topic_is_a_fault_that_names_it(tmp_path: Path) -> None:
    faults = {"message.timestamp.type": "is CreateTime, must be LogAppendTime", "cleanup.policy": "is compact"}
    found = _findings(tmp_path, _log(_topic(faults=faults)), Grade.FAULT)
    assert [f.text.split()[0] for f in found] == ["message.timestamp.type", "cleanup.policy"]


def test_other_partitions_than_configured_are_a_fault(tmp_path: Path) -> None:
    (found,) = _findings(tmp_path, _log(_topic(partitions=3)), Grade.FAULT)
    assert found.text == "has 3 partitions, the configuration says 1"


def test_a_partition_without_a_leader_is_a_fault(tmp_path: Path) -> None:
    (found,) = _findings(tmp_path, _log(_topic(without_leader=(0,))), Grade.FAULT)
    assert "[0]" in found.text


def test_a_replica_that_lags_is_a_warning(tmp_path: Path) -> None:
    (found,) = _findings(tmp_path, _log(_topic(behind=(0,), replicas=3), brokers=3), Grade.WARNING)
    assert "behind" in found.text


def test_one_replica_among_several_kafka_brokers_is_a_warning(tmp_path: Path) -> None:
    (found,) = _findings(tmp_path, _log(_topic(), brokers=3), Grade.WARNING)
    assert "one replica" in found.text


def test_dead_letters_are_a_warning(tmp_path: Path) -> None:
    (found,) = _findings(tmp_path, _log(_topic(), dead_letters_held=7), Grade.WARNING)
    assert found.text == "the job refused 7 records"
    assert "`namesrv-stream dead-letters`" in found.remedy


def _clock(age_ms: int, job: PartState) -> Grade | None:
    found = list(kafka_clock(_log(_topic(), newest_ms={0: _NOW_MS - age_ms}), _NOW_MS, job))
    return found[0].grade if found else None


def test_a_record_from_the_future_shows_that_kafkas_clock_is_ahead() -> None:
    assert _clock(-60_000, "absent") is Grade.WARNING


def test_a_fresh_record_shows_that_clocks_agree() -> None:
    assert _clock(800, "ready") is Grade.FINE


def test_old_record_is_a_finding_only_while_a_job_ticks() -> None:
    assert _clock(60_000, "ready") is Grade.WARNING
    assert _clock(60_000, "absent") is Grade.NOTE
    assert _clock(60_000, "starting") is Grade.NOTE


def test_old_record_says_nothing_about_clocks_if_the_user_may_not_write() -> None:
    log = _log(_topic(), newest_ms={0: _NOW_MS - 60_000}, missing_rights={_topic().name: ("Write",)})
    (found,) = kafka_clock(log, _NOW_MS, "ready")
    assert (found.grade, found.text) == (Grade.NOTE, "the newest record is 60.0 s old; this user lacks Write")


def test_empty_log_gives_no_finding_about_clocks() -> None:
    assert list(kafka_clock(_log(_topic()), _NOW_MS, "ready")) == []
