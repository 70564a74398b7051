"""Operators' events in the view: KV entries, deleted topics and settings apply at once and in order."""

from collections.abc import Iterator

import orjson
import pytest

from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import (
    BrokerRegistered,
    BrokerUnregistered,
    KvDeleted,
    KvPut,
    SettingsChanged,
    TopicDeleted,
    TopicRegistered,
    partition_of,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import DataVersion, Registration
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.steps import finish
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view.route_view import RouteView
from tests.support.builders import NAME, RW, S1, S2, Log, a_key, a_mapping, a_registration, over

ORDER = "ORDER_TOPIC_CONFIG"
DROPS_ABSENT = ("effective", "delete_topic_with_broker_registration")
PUT = KvPut(S1, ORDER, "TopicTest", "broker-a:4")
DELETE = TopicDeleted(S1, "TopicTest", None)
FEWER_TOPICS = a_registration(topics={"baseTopic": RW, "new": RW}, registration_hash="2")


def registered(registration: Registration | None = None, connection: int = 1) -> BrokerRegistered:
    return BrokerRegistered(over(S1, connection), registration or a_registration())


def unregistered() -> BrokerUnregistered:
    return BrokerUnregistered(over(S1, 1), NAME, a_key(), 0)


def drops_absent(value: bool) -> SettingsChanged:
    return SettingsChanged(S1, "ada", ((DROPS_ABSENT[1], value),))


def committed(log: Log, *, partitions: int = 1) -> RouteView:
    view = RouteView(partitions=partitions)
    view.commit(log.output.changes, {log.state.partition: len(log.records)})
    return view


def topics(view: RouteView, name: str = NAME) -> set[str]:
    return set(view.table.group(name).topics)


def a_log_with_a_broker() -> Log:
    log = Log()
    log.register(a_registration())
    return log


# ---- KV ----


def test_put_and_delete_are_visible_at_once() -> None:
    view = RouteView()

    for event in (PUT, KvPut(S1, ORDER, "other", "x"), KvDeleted(S1, ORDER, "other")):
        view.accept(event)
    assert view.table.kv == {ORDER: {"TopicTest": "broker-a:4"}}


def test_put_of_the_existing_value_changes_nothing() -> None:
    view = RouteView()
    view.accept(PUT)
    namespace = view.table.kv[PUT.namespace]
    assert namespace == {PUT.key: PUT.value}
    view.accept(PUT)
    assert view.table.kv[PUT.namespace] == namespace


def test_namespace_outlives_its_last_key_and_is_not_made_by_a_delete() -> None:
    view = RouteView()
    for event in (PUT, KvDeleted(S1, ORDER, "TopicTest"), KvDeleted(S1, "never", "k")):
        view.accept(event)
    assert view.table.kv == {ORDER: {}}


def test_rows_of_others_are_applied_below_a_pending_put() -> None:
    view, log = RouteView(), Log()
    view.accept(PUT)
    log.say(KvPut(S2, ORDER, "TopicTest", "theirs"))
    log.say(KvPut(S2, ORDER, "other", "theirs"))

    view.commit(log.output.changes, {0: 2})
    assert view.table.kv == {ORDER: {"TopicTest": "broker-a:4", "other": "theirs"}}


def test_covered_put_is_replaced_by_later_records() -> None:
    view, log = RouteView(), Log()
    [pending] = view.accept(PUT)
    log.say(PUT)
    log.say(KvPut(S2, ORDER, "TopicTest", "theirs"))
    pending.position = (0, 0)

    view.commit(log.output.changes, {0: 2})
    assert (view.table.kv, view.pending_count) == ({ORDER: {"TopicTest": "theirs"}}, 0)


def test_dropped_put_restores_the_former_value() -> None:
    log = Log()
    log.say(KvPut(S2, ORDER, "TopicTest", "theirs"))
    view = committed(log)
    [pending] = view.accept(PUT)

    view.drop(pending)
    assert view.table.kv == {ORDER: {"TopicTest": "theirs"}}
    view.drop(pending)


def test_dropped_put_removes_a_namespace_without_other_entries() -> None:
    view = RouteView()
    [pending] = view.accept(PUT)
    view.drop(pending)
    assert view.table.kv == {}


def test_reload_keeps_a_pending_put() -> None:
    view, log = RouteView(), Log()
    view.accept(PUT)
    log.say(KvPut(S2, ORDER, "other", "theirs"))
    table = RouteTable()
    apply(table, log.output.changes)

    view.reload(table, {0: 1})

    assert view.table.kv == {ORDER: {"other": "theirs", "TopicTest": "broker-a:4"}}


# ---- deleted topics ----


def test_deleted_topic_is_removed_from_all_groups_at_once() -> None:
    log = a_log_with_a_broker()
    log.register(a_registration("9.9.9.9:9", broker_name="other"))
    view = committed(log)

    view.accept(DELETE)
    assert (topics(view), topics(view, "other")) == ({"baseTopic"}, {"baseTopic"})


def test_a_static_mapping_without_queues_is_deleted_with_its_topic_at_once() -> None:
    log = Log()
    log.register(a_registration(topic_mappings={"static": a_mapping()}))
    view = committed(log)
    assert set(view.table.group(NAME).topic_mappings) == {"static"}

    view.accept(TopicDeleted(S1, "static", None))
    assert not view.table.group(NAME).topic_mappings
    view.reload(committed(log).table, {0: len(log.records)})
    assert not view.table.group(NAME).topic_mappings


@pytest.mark.parametrize(("cluster", "is_deleted"), [("c0", True), ("c1", False), (None, True)])
def test_deletion_in_one_cluster_keeps_the_topic_in_other_clusters(cluster: str | None, is_deleted: bool) -> None:
    view = committed(a_log_with_a_broker())
    view.accept(TopicDeleted(S1, "TopicTest", cluster))
    assert ("TopicTest" not in topics(view)) is is_deleted


@pytest.mark.parametrize(("cluster", "is_deleted"), [("c0", True), ("c1", False), ("", True)])
def test_deletion_by_another_producer_is_the_same_in_the_view_as_in_the_fold(cluster: str, is_deleted: bool) -> None:
    # RocketMQ 5.3.3 treats an empty clusterName as absent (DefaultRequestProcessor.deleteTopicInNamesrv).
    fields = {"schema_version": 1, "kind": "topic_deleted", "topic": "TopicTest", "cluster": cluster}
    log = a_log_with_a_broker()
    view = committed(log)
    (event,) = decode_record(orjson.dumps(fields))
    assert isinstance(event, TopicDeleted)
    view.accept_at(event, 0, len(log.records))
    log.append(orjson.dumps(fields))
    assert topics(view) == set(log.group().topics)
    assert ("TopicTest" not in topics(view)) is is_deleted


def test_deletion_has_a_ticket_for_each_partition_and_each_is_covered_separately() -> None:
    names = [next(n for n in (f"b{i}" for i in range(100)) if partition_of(n, 3) == p) for p in range(3)]
    logs = [Log(partition=p, partitions=3) for p in range(3)]
    view = RouteView(partitions=3)
    for name, log in zip(names, logs, strict=True):
        view.commit(log.register(a_registration(broker_name=name)), {log.state.partition: 1})

    tickets = view.accept(DELETE)
    for partition, pending in enumerate(tickets):
        pending.position = (partition, 1)
    rows = logs[1].say(DELETE)
    view.commit(rows, {1: 2})

    assert len(tickets) == 3
    assert [topics(view, name) for name in names] == [{"baseTopic"}] * 3
    assert view.pending_count == 2
    # In partition 1 the deletion is committed: a broker that registers the topic there from now on offers it.
    again = logs[1].register(a_registration(broker_name=names[1], data_version=DataVersion(2, 2, 0)))
    view.commit(again, {1: 3})
    assert "TopicTest" in topics(view, names[1])


def test_topic_registered_after_its_deletion_stays() -> None:
    view = committed(a_log_with_a_broker())
    view.accept(DELETE)
    view.accept(TopicRegistered(S1, NAME, "TopicTest", RW))
    assert "TopicTest" in topics(view)


def test_pending_deletion_removes_a_topic_from_rows_that_are_earlier_in_the_log() -> None:
    """Rows of another server arrive while the deletion, which is later in the log, is not committed yet."""
    view, log = RouteView(), Log()
    tickets = view.accept(DELETE)
    rows = log.register(a_registration(), server=S2)
    log.say(DELETE)
    tickets[0].position = (0, 1)

    view.commit(rows, {0: 1})
    assert topics(view) == {"baseTopic"}
    view.commit(log.output.changes[len(rows) :], {0: 2})
    assert (topics(view), view.pending_count) == ({"baseTopic"}, 0)


def test_pending_deletion_also_removes_the_topic_of_a_group_that_was_unknown_before() -> None:
    view, log = RouteView(), Log()
    view.accept(DELETE)
    view.accept(TopicRegistered(S1, NAME, "side", RW))

    view.commit(log.register(a_registration(), server=S2), {0: 1})

    assert topics(view) == {"baseTopic", "side"}


def test_deletion_between_two_registrations_is_applied_between_them() -> None:
    view, log = RouteView(), Log()
    [first] = view.accept(registered())
    view.accept(DELETE)
    view.accept(TopicRegistered(S1, NAME, "side", RW))
    first.position = (0, 0)

    view.commit(log.say(registered()), {0: 1})

    assert topics(view) == {"baseTopic", "side"}


def test_commit_between_the_steps_of_a_deletion_is_not_lost() -> None:
    log = a_log_with_a_broker()
    view, later = committed(log), list[Iterator[None]]()
    view.table.later = later.append
    view.accept(DELETE)
    view.accept(TopicRegistered(S1, NAME, "side", RW))
    [shown] = later
    next(shown)

    view.commit(log.register(a_registration("10.0.0.9:1", 1), server=S2), {0: 2})
    finish(shown)

    assert topics(view) == {"baseTopic", "side"}
    assert set(view.table.group(NAME).broker_addrs) == {0, 1}


def test_dropped_deletion_restores_the_topic() -> None:
    view = committed(a_log_with_a_broker(), partitions=2)
    tickets = view.accept(DELETE)

    for pending in tickets:
        view.drop(pending)
    assert (topics(view), view.pending_count) == ({"TopicTest", "baseTopic"}, 0)


def test_reload_keeps_a_pending_deletion() -> None:
    view, log = RouteView(), a_log_with_a_broker()
    view.accept(DELETE)
    table = RouteTable()
    apply(table, log.output.changes)

    view.reload(table, {0: 1})

    assert topics(view) == {"baseTopic"}


# ---- settings ----


def test_changed_setting_applies_only_to_later_registrations() -> None:
    for is_before in (True, False):
        view = committed(a_log_with_a_broker())
        if is_before:
            view.accept(drops_absent(True))
        view.accept(registered(FEWER_TOPICS))
        if not is_before:
            view.accept(drops_absent(True))
        assert ("TopicTest" in topics(view)) is not is_before
        # This remains so when the group is created again.
        view.commit(a_log_with_a_broker().output.changes, {0: 1})
        assert ("TopicTest" in topics(view)) is not is_before


def test_changed_setting_is_visible_at_once_and_undone_when_dropped() -> None:
    view = RouteView(partitions=2)
    tickets = view.accept(drops_absent(True))
    assert view.table.settings == {DROPS_ABSENT: "true"}

    for pending in tickets:
        view.drop(pending)

    assert (view.table.settings, view.pending_count) == ({}, 0)


def test_setting_changed_by_others_before_a_registration_applies_to_it() -> None:
    view, log = committed(a_log_with_a_broker()), a_log_with_a_broker()
    view.accept(registered(FEWER_TOPICS))

    view.commit(log.change_settings(delete_topic_with_broker_registration=True), {0: 2})

    assert topics(view) == {"baseTopic", "new"}


def test_setting_of_the_lowest_partition_is_shown() -> None:
    view = RouteView(partitions=2)
    tickets = view.accept(drops_absent(True))
    log = Log(partition=1, partitions=2)
    rows = log.say(drops_absent(False))
    tickets[1].position = (1, 0)

    view.commit(rows, {1: 1})

    assert view.table.settings[DROPS_ABSENT] == "true"
    assert view.table.settings_of(1)[DROPS_ABSENT] == "false"


# ---- watched groups ----


def watched(view: RouteView) -> list[tuple[dict[int, str], dict[int, str]]]:
    changes: list[tuple[dict[int, str], dict[int, str]]] = []

    def changed(before: BrokerGroup, after: BrokerGroup) -> None:
        changes.append((dict(before.broker_addrs), dict(after.broker_addrs)))

    view.on_group_changed = changed
    return changes


MEMBERS = {0: "10.0.0.1:10911"}


def test_every_kind_of_member_change_is_notified() -> None:
    log = Log()
    rows = log.register(a_registration())
    view = RouteView()
    changes = watched(view)

    view.commit(rows, {0: 1})
    [pending] = view.accept(unregistered())
    view.drop(pending)
    view.accept(unregistered())

    assert changes == [({}, MEMBERS), (MEMBERS, {}), ({}, MEMBERS), (MEMBERS, {})]


def test_unchanged_members_are_not_notified() -> None:
    log = a_log_with_a_broker()
    view = committed(log)
    changes = watched(view)

    [pending] = view.accept(registered(FEWER_TOPICS, connection=2))
    pending.position = (0, 1)
    view.commit(log.register(FEWER_TOPICS, connection=2), {0: 2})
    view.accept(DELETE)

    assert changes == []


def test_reload_notifies_no_broker() -> None:
    view = RouteView()
    view.accept(registered())
    changes = watched(view)
    table = RouteTable()
    apply(table, a_log_with_a_broker().output.changes)

    view.reload(table, {0: 1})
    view.reload(RouteTable(), {})

    assert changes == []
