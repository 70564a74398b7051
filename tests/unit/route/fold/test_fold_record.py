"""Unchanged registrations, operators' events and invalid records."""

from collections.abc import Iterable, Iterator

import orjson
import pytest

from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.event_json import encode_event, encode_heartbeats
from namesrv_stream.route.events import (
    BrokerHeartbeat,
    BrokerRegistered,
    Proof,
    SettingsChanged,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
    partition_of,
)
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.state import FoldState, encode_state
from namesrv_stream.route.fold.step import MAX_DEAD_LETTERS, FoldOutput, Record
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import DataVersion
from tests.support.builders import (
    JOB_ORIGIN,
    NAME,
    READ_ONLY,
    RW,
    S1,
    S2,
    Log,
    a_key,
    a_proof,
    a_registration,
    heartbeats_with,
    of_kind,
    topics_of,
)

DAY_MS = 86_400_000
broker = a_registration(timeout_ms=5_000)


def expired(log: Log) -> Log:
    log.register(broker)
    log.pass_time(5_001)
    assert log.alive() == set()
    return log


# ---- unchanged registrations ----


def test_an_unchanged_registration_writes_no_row() -> None:
    log = Log()
    log.register(broker)

    assert [log.heard(broker, after_ms=1_000) for _ in range(3)] == [[], [], []]


def test_an_unchanged_registration_restores_an_expired_broker() -> None:
    log = Log()
    log.register(broker)
    before = log.group()
    log.pass_time(5_001)

    rows = log.heard(broker)

    assert log.group() == before
    assert {r.cause for r in rows} == {Cause.RETURNED}


def test_heartbeat_without_registration_does_not_restore_a_broker() -> None:
    log = expired(Log())

    assert log.beat(broker) == []
    assert log.alive() == set()


def test_a_returned_broker_expires_again() -> None:
    log = expired(Log())
    log.heard(broker)

    log.pass_time(5_001)

    assert log.alive() == set()


def test_a_deleted_topic_is_added_back_as_returned() -> None:
    log = Log()
    log.register(broker)
    log.heard(broker)
    log.say(TopicDeleted(S1, "TopicTest", None))
    assert topics_of(log.group()) == {}

    rows = log.heard(broker)

    assert [(r.kind, r.topic, r.cause) for r in rows] == [("queue_data", "TopicTest", "returned")]


def test_a_wiped_permission_stays_wiped() -> None:
    log = Log()
    log.register(broker)
    log.say(WritePermChanged(S1, NAME, writable=False))

    assert log.heard(broker) == []
    assert topics_of(log.group()) == {"TopicTest": READ_ONLY}


def test_a_wiped_permission_is_lost_with_the_broker() -> None:
    log = Log()
    log.register(broker)
    log.say(WritePermChanged(S1, NAME, writable=False))
    log.pass_time(5_001)
    log.heard(broker)

    assert topics_of(log.group()) == {"TopicTest": RW}


def test_unknown_hash_requests_the_body_and_counts_as_heartbeat() -> None:
    log = Log()
    log.register(broker)
    log.pass_time(5_000)

    rows = log.heard(broker, registration_hash="other")
    log.pass_time(5_000)

    assert [(r.kind, r.registration_hash, r.server_id, r.broker_addr) for r in rows] == [
        ("registration_wanted", "other", "s1", broker.broker_addr)
    ]
    assert log.alive() == {broker.broker_addr}


def test_unknown_hash_of_a_removed_broker_requests_the_body_and_restores_nothing() -> None:
    log = expired(Log())

    rows = log.heard(broker, registration_hash="other")

    assert [r.kind for r in rows] == ["registration_wanted"]
    assert log.alive() == set()


def test_unknown_broker_requests_its_body() -> None:
    assert [r.kind for r in Log().heard(broker)] == ["registration_wanted"]


def test_a_heartbeat_with_the_hash_of_the_previous_registration_is_folded_as_its_body() -> None:
    """As in Java, an older DataVersion is a different one, so it rewrites the topics."""
    log = Log()
    log.register(broker)
    newer = a_registration(
        timeout_ms=5_000, data_version=DataVersion(2, 2, 0), topics={"new": RW}, registration_hash=""
    )
    log.register(newer)

    log.heard(broker)

    assert log.group().live_brokers[a_key()].data_version == broker.data_version
    assert topics_of(log.group()) == {"TopicTest": RW, "new": RW}


def test_an_unchanged_registration_at_another_server_makes_a_second_holder() -> None:
    log = Log()
    log.register(broker, S1)

    rows = log.heard(broker, S2)

    assert [(r.kind, r.server_id, r.cause) for r in rows] == [("holder", "s2", "registered")]


@pytest.mark.parametrize(("source", "detail"), [("10.0.0.9", "by 10.0.0.9 at s1"), ("", None)])
def test_the_row_of_a_registered_topic_names_who_registered_it(source: str, detail: str | None) -> None:
    log = Log()
    log.register(broker)

    (row,) = log.say(TopicRegistered(S1, NAME, "of 217", RW, source))

    assert (row.cause, row.detail) == ("topic_registered", detail)


def test_setting_delete_topic_applies_to_unchanged_registrations() -> None:
    log = Log()
    log.register(broker)
    log.say(TopicRegistered(S1, NAME, "of 217", RW))
    log.heard(broker)
    log.heard(broker)

    log.change_settings(delete_topic_with_broker_registration=True)
    log.heard(broker)

    assert topics_of(log.group()) == {"TopicTest": RW}


@pytest.mark.parametrize(("after_ms", "retained"), [(DAY_MS, True), (DAY_MS + 1, False)])
def test_registration_of_a_removed_broker_is_kept_for_a_day_of_log_time(after_ms: int, retained: bool) -> None:
    log = expired(Log())

    rows = log.tick(after_ms)

    assert [r.cause for r in rows] == ["forgotten"] * (not retained)
    log.heard(broker)
    assert bool(log.alive()) is retained


def test_broker_that_returned_is_not_forgotten() -> None:
    log = expired(Log())
    log.heard(broker, after_ms=DAY_MS)
    log.pass_time(4_000)

    assert log.alive() == {broker.broker_addr}
    assert log.group().registrations.keys() == {a_key()}


def test_forgotten_group_leaves_no_state() -> None:
    log = expired(Log())
    log.tick(DAY_MS + 1)

    assert log.groups.groups == {}
    assert not log.state.gone


def test_a_stale_registration_removes_its_broker_process_with_a_row() -> None:
    log = Log()
    log.register(a_registration("10.0.0.9:1", data_version=DataVersion(1, 1, 5)))
    log.register(a_registration("10.0.0.2:1", 1))

    rows = log.register(a_registration("10.0.0.2:1", 0))

    assert [r.kind for r in rows] == ["ignored", "broker_data", "broker_live", "holder"]
    assert log.alive() == {"10.0.0.9:1"}
    assert [k.live_key.broker_addr for k in log.state.leases] == ["10.0.0.9:1"]


def test_refused_registration_writes_a_row_and_changes_nothing() -> None:
    log = Log()

    rows = log.register(a_registration(topics={"one": RW}))

    assert [(r.kind, r.cause) for r in rows] == [("ignored", "registered")]
    assert log.groups.groups == {}


# ---- operators ----


def test_a_topic_is_deleted_in_one_cluster_only() -> None:
    log = Log()
    log.register(a_registration())
    log.register(a_registration("10.0.0.2:1", cluster="c1", broker_name="broker-b"))

    log.say(TopicDeleted(S1, "TopicTest", "c1"))

    assert topics_of(log.group()) == {"TopicTest": RW}
    assert topics_of(log.group("broker-b")) == {}


@pytest.mark.parametrize("order", [("b", "a"), ("a", "b")])
def test_rows_of_a_deleted_topic_are_in_the_same_order_whatever_the_order_of_the_store(order: tuple[str, str]) -> None:
    log = Log()
    for name in order:
        log.register(a_registration(f"{name}:1", broker_name=name))

    rows = log.say(TopicDeleted(S1, "TopicTest", None))

    assert [r.broker_name for r in rows] == ["a", "b"]


def test_settings_from_the_configuration_are_two_rows() -> None:
    rows = Log().change_settings(source="config", default_timeout_ms=60_000)

    assert [(r.namespace, r.key, r.value) for r in rows] == [
        ("effective", "default_timeout_ms", "60000"),
        ("config", "default_timeout_ms", "60000"),
    ]


def test_settings_of_an_operator_have_a_name_and_keep_the_configuration() -> None:
    rows = Log().change_settings(source="ada", delete_topic_with_broker_registration=True)

    assert [(r.namespace, r.value, r.detail) for r in rows] == [("effective", "true", "by ada, was false")]


# ---- invalid records ----


def poison() -> Iterator[tuple[str, bytes]]:
    good = orjson.loads(encode_event(BrokerRegistered(S1, broker)))
    yield "empty", b""
    yield "no JSON", b"{"
    yield "no object", b"[]"
    yield "not UTF-8", b'{"kind":"\xff"}'
    yield "lone surrogate", b'{"schema_version":1,"kind":"tick","server_id":"\\ud800","server_epoch":1}'
    yield "nested", b"[" * 100_000
    changes: dict[str, dict[str, object]] = {
        "version": {"schema_version": 2},
        "kind": {"kind": "x"},
        "name": {"broker_name": 5},
        "id": {"broker_id": "0"},
        "id too large": {"broker_id": 2**63},
        "bool id": {"broker_id": True},
        "topics": {"topics": [1]},
        "topic": {"topics": {"t": [1, 2]}},
        "perm too large": {"topics": {"t": [1, 1, 2**31, 0]}},
        "data version": {"data_version": [1]},
        "data version too large": {"data_version": [2**63, 1, 1]},
        "timeout": {"timeout_ms": 1.5},
        "timeout too large": {"timeout_ms": 2**64 - 1},
        "filter servers": {"filter_servers": [1]},
        "mapping": {"topic_mappings": {"t": {}}},
        "epoch": {"server_epoch": None},
        "connection": {"connection_id": "1"},
        "no server's": {"server_id": "job"},
    }
    for what, change in changes.items():
        yield what, orjson.dumps(good | change)
    head: dict[str, object] = {"schema_version": 1, "server_id": "s1", "server_epoch": 1}
    yield "items", orjson.dumps(head | {"kind": "broker_heartbeats", "items": {}})
    for name, value in {
        "default_timeout_ms": "60",
        "max_gap_ms": 0,
        "min_timeout_ms": -1,
        "server_silent_ms": True,
        "server_lost_ms": 2**62,
        "delete_topic_with_broker_registration": 1,
    }.items():
        fields = head | {"kind": "settings_changed", "source": "x", "values": {"max_timeout_ms": 9, name: value}}
        yield name, orjson.dumps(fields)


@pytest.mark.parametrize("value", [p[1] for p in poison()], ids=[p[0] for p in poison()])
def test_an_invalid_record_becomes_a_dead_letter_and_changes_nothing(value: bytes) -> None:
    log = Log()
    log.register(a_registration("10.0.0.5:1", broker_name="other"))
    log.say(SettingsChanged(JOB_ORIGIN, "config", (("max_gap_ms", 3_000),)))
    groups, leases, settings = dict(log.groups.groups), dict(log.state.leases), log.state.settings

    rows = log.append(value)

    assert rows == []
    assert [(d.offset, bool(d.reason)) for d in log.dead_letters] == [(2, True)]
    assert (log.groups.groups, log.state.leases, log.state.settings) == (groups, leases, settings)
    assert log.state.next_offset == 3


def test_a_record_in_the_wrong_partition_is_a_dead_letter() -> None:
    right = partition_of(NAME, 4)
    log = Log(partition=(right + 1) % 4, partitions=4)

    assert log.register(broker) == []
    assert [d.item for d in log.dead_letters] == [0]
    assert str(right) in log.dead_letters[0].reason
    assert log.groups.groups == {}
    assert not log.state.leases


def test_bad_items_are_dead_letters_and_the_others_apply() -> None:
    log = Log()
    log.register(broker)
    log.pass_time(4_000)
    no_hash = orjson.loads(encode_heartbeats([a_proof(broker)]))["items"][0] | {"registration_hash": 7}

    log.append(heartbeats_with([a_proof(broker)], 5, {}, {"proof": "x"}, no_hash))
    log.pass_time(4_000)

    assert [(d.offset, d.item) for d in log.dead_letters] == [(9, 1), (9, 2), (9, 3), (9, 4)]
    assert log.alive() == {broker.broker_addr}


def test_items_of_another_partition_are_dead_letters_and_the_others_apply() -> None:
    names = [f"broker-{n}" for n in range(20)]
    mine = [n for n in names if partition_of(n, 2) == 0]
    log = Log(partitions=2)
    items = [BrokerHeartbeat(S1, n, a_key(), Proof.REGISTRATION, "h") for n in names]

    rows = log.append(encode_heartbeats(items))

    assert [r.broker_name for r in rows] == mine
    others = [number for number, name in enumerate(names) if name not in mine]
    assert [d.item for d in log.dead_letters] == [*others[:MAX_DEAD_LETTERS], -1]
    assert log.dead_letters[-1].reason == f"{len(others) - MAX_DEAD_LETTERS} more of its items were rejected"
    assert [r.seq for r in rows] == list(range(len(mine)))


def test_invalid_item_leaves_no_gap_in_the_rows_of_its_record() -> None:
    log = Log()

    rows = log.append(heartbeats_with([a_proof(broker)], 5))

    assert [(r.seq, r.kind) for r in rows] == [(0, "registration_wanted")]


def test_a_record_folded_before_is_skipped() -> None:
    log = Log()
    log.register(broker)
    stored = encode_state(log.state)

    log.redeliver(log.records[0])

    assert encode_state(log.state) == stored
    assert len(of_kind(log.output.changes, ChangeKind.BROKER_LIVE)) == 1


class BrokenStore:
    """A store whose reads fail, like Spark's when its process has ended."""

    def get(self, broker_name: str) -> BrokerGroup | None:
        raise ValueError(f"no connection for {broker_name}")

    def put(self, group: BrokerGroup) -> None:
        raise ValueError("no connection")

    def names(self) -> Iterable[str]:
        raise ValueError("no connection")


def test_failing_store_does_not_make_a_dead_letter() -> None:
    output = FoldOutput()
    record = Record(0, 0, 1, encode_event(BrokerRegistered(S1, broker)))

    with pytest.raises(ValueError, match="no connection"):
        fold(FoldState(0, 1, settings=FoldSettings()), BrokenStore(), record, output)

    assert output.dead_letters == []
