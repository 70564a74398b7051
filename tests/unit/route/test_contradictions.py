"""Registrations with the DataVersion of the last one, but with other content."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.digest import decode_group, encode_group
from namesrv_stream.route.events import TopicDeleted, WritePermChanged
from namesrv_stream.route.model import DataVersion, QueueData, Registration, TopicQueueMappingInfo
from namesrv_stream.route.registration import differing_topics
from namesrv_stream.route.registration_json import RetainedRegistration, encode_registration
from namesrv_stream.route.table import RouteTable
from tests.support.builders import (
    BASE,
    NAME,
    READ_ONLY,
    RW,
    S1,
    S2,
    Log,
    a_key,
    a_mapping,
    a_registration,
    of_kind,
)

FOUR = QueueData(4, 4, 6)
V2 = DataVersion(2, 2_000, 0)


def a_broker(queues: QueueData = RW, **changes: Any) -> Registration:
    """A registration whose hash is that of its content."""
    topics = changes.pop("topics", {"TopicTest": queues, **BASE})
    text = f"{topics} {changes}"
    return a_registration(topics=topics, registration_hash=text, **changes)


def contradictions(log: Log) -> tuple[str, ...]:
    return log.group().live_brokers[a_key()].contradictions


def of_cause(rows: list[RouteChange]) -> list[tuple[str, str | None]]:
    return [(row.kind, row.detail) for row in rows if row.cause == Cause.CONTRADICTION]


def test_other_content_with_the_same_data_version_is_ignored_and_noted_once() -> None:
    log = Log()
    log.register(a_broker())

    rows = log.register(a_broker(FOUR))

    detail = "other content with the same DataVersion (1 of 1000): TopicTest; ignored"
    assert of_cause(rows) == [("broker_live", detail), ("registration", detail)]
    assert log.group().topics["TopicTest"] == RW
    assert contradictions(log) == ("TopicTest",)
    again = [log.register(a_broker(FOUR)), log.heard(a_broker(FOUR)), log.register(a_broker(FOUR), S2)]
    assert [of_cause(rows) for rows in again] == [[], [], []]
    assert contradictions(log) == ("TopicTest",)


def test_every_further_content_is_noted_once() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker(FOUR))

    rows = log.register(a_broker(topics={"TopicTest": FOUR, "baseTopic": FOUR}))

    assert [kind for kind, _ in of_cause(rows)] == ["broker_live", "registration"]
    assert contradictions(log) == ("TopicTest", "baseTopic")


def test_the_registration_of_another_topic_does_not_end_a_contradiction() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker(FOUR))

    assert of_cause(log.register(a_broker(topics={"baseTopic": BASE["baseTopic"]}))) == []
    assert contradictions(log) == ("TopicTest",)
    log.register(a_broker(topics={"TopicTest": RW}))
    assert contradictions(log) == ()


def test_a_new_data_version_of_another_topic_does_not_end_a_contradiction_but_one_of_the_topic_does() -> None:
    """As after ``mqadmin updateTopic``: the broker registers only the changed topic, and all topics later."""
    other, v3 = QueueData(8, 8, 6), DataVersion(3, 3_000, 0)
    log = Log()
    log.register(a_broker())
    log.register(a_broker(FOUR))

    log.register(a_broker(topics={"baseTopic": other}, data_version=V2))
    log.register(a_broker(topics={"TopicTest": FOUR, "baseTopic": other}, data_version=V2))
    assert contradictions(log) == ("TopicTest",)

    log.register(a_broker(topics={"TopicTest": other}, data_version=v3))
    log.register(a_broker(topics={"TopicTest": other, "baseTopic": other}, data_version=v3))
    assert contradictions(log) == ()
    assert log.group().topics["TopicTest"] == other


def test_the_old_content_ends_a_contradiction() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker(FOUR))

    assert of_cause(log.register(a_broker())) == []
    assert contradictions(log) == ()


def test_a_new_data_version_ends_a_contradiction() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker(FOUR))

    rows = log.register(a_broker(FOUR, data_version=V2))

    assert {row.cause for row in rows} == {Cause.REGISTERED}
    assert log.group().topics["TopicTest"] == FOUR
    assert contradictions(log) == ()


def test_a_broker_that_unregistered_may_return_with_other_content() -> None:
    log = Log()
    log.register(a_broker())
    log.unregister(a_broker())

    assert of_cause(log.register(a_broker(FOUR))) == []
    assert log.group().topics["TopicTest"] == FOUR


@pytest.mark.parametrize("topics", [{**BASE}, {"TopicTest": RW, **BASE, "new": FOUR}])
def test_added_or_omitted_topics_are_not_a_contradiction(topics: dict[str, QueueData]) -> None:
    log = Log()
    log.register(a_broker())

    assert of_cause(log.register(a_broker(topics=topics))) == []
    assert contradictions(log) == ()


def test_changes_by_operators_are_not_a_contradiction() -> None:
    log = Log()
    log.register(a_broker())
    log.say(WritePermChanged(S1, NAME, False))
    log.say(TopicDeleted(S1, "baseTopic", None))

    assert of_cause(log.register(a_broker(zone_name="z1"))) == []
    assert contradictions(log) == ()
    assert log.group().topics["TopicTest"] == READ_ONLY


def test_a_full_registration_after_the_registration_of_one_topic_is_not_a_contradiction() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker(topics={"TopicTest": FOUR}, data_version=V2))

    assert of_cause(log.register(a_broker(FOUR, data_version=V2))) == []
    assert contradictions(log) == ()


def test_a_lost_registration_of_one_topic_is_a_contradiction() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker(topics={"baseTopic": FOUR}, data_version=V2))  # that of TopicTest was lost

    rows = log.register(a_broker(topics={"TopicTest": FOUR, "baseTopic": FOUR}, data_version=V2))

    assert of_cause(rows)
    assert contradictions(log) == ("TopicTest",)


def test_other_static_mappings_are_a_contradiction() -> None:
    log = Log()
    static = {"static": RW, **BASE}
    log.register(a_broker(topics=static, topic_mappings={"static": a_mapping()}))

    rows = log.register(a_broker(topics=static, topic_mappings={"static": a_mapping(epoch=8)}))

    assert of_cause(rows)
    assert contradictions(log) == ("static",)
    assert log.group().topic_mappings["static"].epoch == 7


def test_other_topics_of_a_slave_are_not_a_contradiction() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_registration("10.0.0.2:10911", 1, registration_hash="1"))

    assert of_cause(log.register(a_registration("10.0.0.2:10911", 1, topics={"TopicTest": FOUR, **BASE}))) == []


def test_other_content_takes_effect_if_the_setting_says_so() -> None:
    log = Log()
    log.change_settings(take_over_contradictions=True)
    log.register(a_broker())

    rows = log.register(a_broker(FOUR))

    detail = "other content with the same DataVersion (1 of 1000): TopicTest; taken over"
    assert ("queue_data", detail) in of_cause(rows)
    assert log.group().topics["TopicTest"] == FOUR
    assert contradictions(log) == ()
    assert of_cause(log.heard(a_broker(FOUR))) == []


def test_ignored_content_takes_effect_with_the_next_heartbeat_after_the_setting_changed() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker(FOUR))
    log.change_settings(take_over_contradictions=True)

    rows = log.heard(a_broker(FOUR))

    assert [row.cause for row in of_kind(rows, ChangeKind.QUEUE_DATA)] == [Cause.CONTRADICTION]
    assert log.group().topics["TopicTest"] == FOUR
    assert contradictions(log) == ()


_TOPICS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from([RW, READ_ONLY, FOUR]), max_size=3)
_MAPPINGS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.sampled_from([a_mapping("a"), a_mapping("a", epoch=8)]), max_size=2
)


@given(
    known=st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True),
    last=st.none() | st.tuples(_TOPICS, st.none() | _MAPPINGS, st.sampled_from(["", "1", "2"])),
    new=st.tuples(_TOPICS, st.none() | _MAPPINGS, st.sampled_from(["", "1", "2"])),
    table=st.tuples(_TOPICS, _MAPPINGS),
)
def test_topics_differ_from_the_table_and_from_the_last_registration_or_counted_before(
    known: list[str],
    last: tuple[dict[str, QueueData], dict[str, TopicQueueMappingInfo] | None, str] | None,
    new: tuple[dict[str, QueueData], dict[str, TopicQueueMappingInfo] | None, str],
    table: tuple[dict[str, QueueData], dict[str, TopicQueueMappingInfo]],
) -> None:
    def made(content: tuple[dict[str, QueueData], dict[str, TopicQueueMappingInfo] | None, str]) -> Registration:
        return a_registration(topics=content[0], topic_mappings=content[1], registration_hash=content[2])

    def changed(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
        return {topic for topic in before.keys() & after.keys() if before[topic] != after[topic]}

    registration, counted = made(new), set(known)
    if last is not None and (last[2] != new[2] or not last[2]):
        counted |= changed(last[0], new[0]) | changed(last[1] or {}, new[1] or {})
    expected = sorted(counted & (changed(table[0], new[0]) | changed(table[1], new[1] or {})))
    kept = None
    if last is not None:
        kept = RetainedRegistration(last[2], 0, encode_registration(made(last)))
    found = differing_topics(tuple(known), kept, registration, registration.topics, *table)
    assert found == tuple(expected)


def test_a_small_registration_does_not_decode_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = a_registration(topics={f"t{number}": RW for number in range(1_000)}, registration_hash="1")
    last = RetainedRegistration("1", 0, encode_registration(before))
    monkeypatch.setattr(RetainedRegistration, "read", None)
    registration = a_registration(topics={"t7": FOUR}, registration_hash="2")
    assert differing_topics((), last, registration, registration.topics, before.topics, {}) == ("t7",)


def test_tables_and_stored_groups_keep_contradictions() -> None:
    log = Log()
    log.register(a_broker())
    log.register(a_broker(FOUR))
    table = RouteTable()

    reducer.apply(table, log.output.changes)

    assert table.group(NAME) == log.group() == decode_group(encode_group(log.group()))
