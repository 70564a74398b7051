"""The view of one server: its own accepted events at once, on top of the rows of the fold."""

from namesrv_stream.route.events import (
    BrokerDisconnected,
    BrokerEvent,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Origin,
    Proof,
    SettingsChanged,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import DataVersion, QueueData, Registration
from namesrv_stream.route.reducer import CommitRows, apply
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import pickup_topic_route
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.route.view.view_layers import Pending
from tests.support.builders import NAME, READ_ONLY, RW, S1, S2, Log, a_key, a_registration, over

MASTER = "10.0.0.1:10911"
V2 = DataVersion(2, 2_000, 0)
NEWER = a_registration(data_version=V2, topics={"TopicTest": READ_ONLY, "new": RW}, registration_hash="2")


def registered(registration: Registration | None = None, connection: int = 1, server: Origin = S1) -> BrokerRegistered:
    return BrokerRegistered(over(server, connection), registration or a_registration())


def unregistered(connection: int = 1, server: Origin = S1) -> BrokerUnregistered:
    return BrokerUnregistered(over(server, connection), NAME, a_key(), 0)


def disconnected(connection: int = 1, server: Origin = S1) -> BrokerDisconnected:
    return BrokerDisconnected(over(server, connection), NAME, a_key(), "closed by peer")


def view_of(*events: BrokerEvent) -> RouteView:
    view = RouteView()
    for event in events:
        view.accept(event)
    return view


def committed(*events: BrokerEvent) -> RouteView:
    """Return a view of a table in which ``events`` are committed."""
    view, log = RouteView(), Log()
    for event in events:
        log.say(event)
    view.commit(log.output.changes, {0: len(log.records)})
    return view


def group_of(view: RouteView) -> BrokerGroup:
    return view.table.group(NAME)


def holders(view: RouteView) -> set[str]:
    return set(group_of(view).live_brokers[a_key()].holders)


# ---- accepted events ----


def test_accepted_registration_is_seen_at_once() -> None:
    view = RouteView()

    view.accept(registered())

    assert pickup_topic_route(view.table, "TopicTest") is not None
    assert view.pending_count == 1


def test_accepted_unregistration_is_seen_at_once() -> None:
    view = committed(registered())

    view.accept(unregistered())

    assert not group_of(view).is_registered


def test_closed_connection_is_seen_with_the_folds_commit() -> None:
    view, log = RouteView(), Log()
    for event in (registered(), disconnected()):
        log.say(event)

    view.commit([row for row in log.output.changes if row.offset == 0], {0: 1})
    assert group_of(view).is_registered
    view.commit([row for row in log.output.changes if row.offset == 1], {0: 2})
    assert not group_of(view).is_registered


def test_broker_that_registers_again_stays_when_the_close_before_that_is_committed() -> None:
    view, log = committed(registered()), Log()
    log.say(registered())
    again = registered(connection=2)
    [pending] = view.accept(again)
    rows = log.say(disconnected())
    pending.position = (0, 2)

    view.commit(rows, {0: 2})
    assert group_of(view).is_registered
    view.commit(log.say(again), {0: 3})
    assert (group_of(view).is_registered, view.pending_count) == (True, 0)


def test_accepted_permissions_and_topics_are_seen_at_once() -> None:
    view = committed(registered())

    view.accept(WritePermChanged(S1, NAME, writable=False))
    view.accept(TopicRegistered(S1, NAME, "side", RW))

    assert group_of(view).topics == {"TopicTest": READ_ONLY, "baseTopic": READ_ONLY, "side": RW}


def test_heartbeat_changes_nothing() -> None:
    view = committed(registered())
    before = group_of(view)

    view.accept(BrokerHeartbeat(over(S1, 1), NAME, a_key(), Proof.HEARTBEAT))

    assert group_of(view) is before


def test_event_without_change_keeps_the_same_group_object() -> None:
    view = committed(registered())
    before = group_of(view)

    view.accept(registered())

    assert group_of(view) is before


def test_refused_registration_changes_nothing() -> None:
    view = view_of(registered(a_registration(topics={"one": RW})))

    assert not group_of(view).is_registered


def test_absent_topics_are_removed_if_the_committed_setting_says_so() -> None:
    log = Log()
    log.change_settings(delete_topic_with_broker_registration=True)
    view = RouteView()
    view.commit(log.output.changes, {0: 1})
    view.accept(registered())

    view.accept(registered(NEWER))

    assert set(group_of(view).topics) == {"TopicTest", "new"}


# ---- holders ----


def test_a_committed_setting_counts_from_the_first_step_of_its_commit() -> None:
    name = "delete_topic_with_broker_registration"
    off = SettingsChanged(S1, "ada", ((name, False),))
    view, log = RouteView(), Log()
    log.say(SettingsChanged(S1, "ada", ((name, True),)))
    log.say(registered())
    view.commit(log.output.changes, {0: 2})
    settled = view.accept(off)[0]
    view.accept(TopicRegistered(S1, NAME, "other", RW))
    view.accept(registered(NEWER))
    settled.position = (0, 2)
    rows = [*log.say(off), *log.say(WritePermChanged(S1, NAME, False))]
    for _ in view.committing(CommitRows(rows), {0: 4}):
        assert "other" in group_of(view).topics


def test_broker_stays_while_another_server_is_its_holder() -> None:
    view = committed(registered(), registered(server=S2))

    view.accept(unregistered())

    assert group_of(view).is_registered
    assert holders(view) == {"s2"}


def test_view_removes_a_broker_with_its_last_holder() -> None:
    view = committed(registered(), registered(server=S2))

    view.accept(unregistered(server=S2))
    view.accept(unregistered())

    assert not group_of(view).is_registered


def test_late_end_of_an_older_connection_is_ignored() -> None:
    view = committed(registered(connection=1), registered(connection=2))

    view.accept(unregistered(1))

    assert group_of(view).is_registered


def test_unregistration_over_a_newer_connection_than_the_registration_removes_the_broker() -> None:
    view = committed(registered(connection=1))

    view.accept(unregistered(connection=2))

    assert not group_of(view).is_registered


def test_end_at_a_server_that_is_not_a_holder_of_the_broker_is_ignored() -> None:
    view = committed(registered())

    view.accept(unregistered(server=S2))

    assert holders(view) == {"s1"}


def test_end_of_a_connection_of_an_earlier_epoch_is_ignored() -> None:
    later = Origin("s1", 2)
    view = committed(registered(connection=9), registered(connection=1, server=later))

    view.accept(unregistered(9))

    assert group_of(view).is_registered


def test_end_of_an_unknown_broker_is_ignored() -> None:
    view = view_of(unregistered())

    assert view.table.groups == {}


# ---- commits ----


def test_event_without_a_position_outlives_every_commit() -> None:
    view = view_of(registered())

    view.commit([], {0: 1_000})

    assert (group_of(view).is_registered, view.pending_count) == (True, 1)


def test_event_is_dropped_when_its_offset_is_covered_and_not_before() -> None:
    view, log = RouteView(), Log()
    log.tick()
    event = registered()
    [pending] = view.accept(event)
    rows = log.say(event)
    pending.position = (0, 1)

    counts = []
    for next_offset, changes in ((1, []), (2, rows)):
        view.commit(changes, {0: next_offset})
        counts.append(view.pending_count)

    assert counts == [1, 0]
    assert view.table.groups == log.groups.groups


def test_offsets_of_other_partitions_cover_nothing() -> None:
    view = RouteView()
    [pending] = view.accept(registered())
    pending.position = (3, 0)

    view.commit([], {0: 5, 2: 5})
    assert view.pending_count == 1
    view.commit([], {3: 1})
    assert view.pending_count == 0


def test_covered_event_that_the_fold_refused_is_removed_from_the_view() -> None:
    # For example because another server's registration of the same id is before it in the log.
    view = RouteView()
    [pending] = view.accept(registered())
    pending.position = (0, 0)

    view.commit([], {0: 1})

    assert view.table.groups == {}


def test_later_events_stay_applied_when_earlier_ones_are_covered() -> None:
    view, log = RouteView(), Log()
    [first] = view.accept(registered())
    view.accept(registered(NEWER))
    rows = log.say(registered())
    first.position = (0, 0)

    view.commit(rows, {0: 1})

    assert group_of(view).topics == {"TopicTest": READ_ONLY, "baseTopic": RW, "new": RW}
    assert view.pending_count == 1


def test_rows_of_others_are_applied_below_pending_events() -> None:
    view, log = RouteView(), Log()
    view.accept(registered(NEWER))
    # Another server's rows of the same broker name, earlier in the log than this server's.
    slave = a_registration("10.0.0.2:10911", 1)
    log.register(a_registration(), server=S2)
    log.register(slave, server=S2, connection=2)

    view.commit(log.output.changes, {0: 2})

    group = group_of(view)
    assert group.broker_addrs == {0: MASTER, 1: "10.0.0.2:10911"}
    assert group.topics == {"TopicTest": READ_ONLY, "baseTopic": RW, "new": RW}
    assert holders(view) == {"s1", "s2"}


def test_rows_of_other_broker_names_are_applied_directly() -> None:
    view, log = view_of(registered()), Log()
    rows = log.register(a_registration("9.9.9.9:9", broker_name="other", topics={"x": RW, "y": RW}))

    view.commit(rows, {0: 1})
    assert set(view.table.groups) == {NAME, "other"}


def test_expiry_by_the_fold_reaches_the_view() -> None:
    view, log = RouteView(), Log()
    rows = log.register(a_registration(timeout_ms=3_000)) + log.pass_time(3_500)

    view.commit(rows, {0: len(log.records)})

    assert not group_of(view).is_registered


def test_expiry_committed_below_a_pending_registration_is_not_visible() -> None:
    view, log = RouteView(), Log()
    r = a_registration(timeout_ms=3_000)
    view.commit(log.register(r), {0: 1})
    view.accept(registered(r, connection=2))

    view.commit(log.pass_time(3_500), {0: len(log.records)})

    assert group_of(view).is_registered


def test_kv_and_settings_are_committed_next_to_pending_events() -> None:
    view, log = view_of(registered()), Log()
    rows = log.change_settings(default_timeout_ms=5_000)

    view.commit(rows, {0: 1})

    assert view.table.settings["effective", "default_timeout_ms"] == "5000"
    assert group_of(view).is_registered


# ---- drop ----


def test_dropped_event_is_removed_from_the_view() -> None:
    view = committed(registered())
    [pending] = view.accept(registered(NEWER))

    view.drop(pending)

    assert group_of(view).topics == a_registration().topics
    assert view.pending_count == 0


def test_drop_keeps_the_other_events_in_order() -> None:
    view = view_of(registered())
    [pending] = view.accept(WritePermChanged(S1, NAME, writable=False))
    view.accept(TopicRegistered(S1, NAME, "side", RW))

    view.drop(pending)

    assert group_of(view).topics == {"TopicTest": RW, "baseTopic": RW, "side": RW}


def test_dropping_twice_or_after_the_commit_does_nothing() -> None:
    view = RouteView()
    [pending] = view.accept(registered())
    view.drop(pending)

    view.drop(pending)
    view.drop(Pending(registered()))
    assert view.table.groups == {}


# ---- reload ----


def test_reload_replaces_rows_and_keeps_pending_events() -> None:
    view = committed(registered(a_registration("9.9.9.9:9", broker_name="old", topics={"x": RW, "y": RW})))
    view.accept(TopicRegistered(S1, NAME, "side", READ_ONLY))
    log = Log()
    log.register(a_registration())
    table = RouteTable()
    apply(table, log.output.changes)

    view.reload(table, {0: 7})

    assert set(view.table.groups) == {NAME}
    assert group_of(view).topics["side"] == READ_ONLY
    assert (view.next_offsets, view.pending_count) == ({0: 7}, 1)


def test_reload_drops_events_that_it_covers() -> None:
    view = RouteView()
    [pending] = view.accept(registered())
    pending.position = (0, 3)

    view.reload(RouteTable(), {0: 4})

    assert (view.table.groups, view.pending_count) == ({}, 0)


def test_rows_after_a_reload_are_applied_below_pending_events() -> None:
    view, log = RouteView(), Log()
    view.accept(TopicRegistered(S1, NAME, "side", READ_ONLY))
    view.reload(RouteTable(), {})

    view.commit(log.register(a_registration()), {0: 1})

    assert set(group_of(view).topics) == {"TopicTest", "baseTopic", "side"}


# ---- many pending registrations ----


def numbered(number: int, *topics: str) -> BrokerRegistered:
    """Return a registration with its own DataVersion, hash and queues."""
    queues = QueueData(number, number, 6)
    version = DataVersion(number, 1_000, 0)
    topic_table = dict.fromkeys(topics, queues)
    return registered(a_registration(data_version=version, topics=topic_table, registration_hash=f"h{number}"))


def test_a_lost_registration_leaves_the_topics_of_the_one_before() -> None:
    view = view_of(numbered(1, "t1", "t2"))
    [lost] = view.accept(numbered(2, "t1", "t2", "t3"))

    view.drop(lost)

    assert group_of(view).topics == dict.fromkeys(("t1", "t2"), QueueData(1, 1, 6))


def test_a_registration_after_a_lost_one_leaves_the_topics_of_those_before() -> None:
    view = view_of(numbered(1, "t1", "t2"))
    [lost] = view.accept(numbered(2, "t1", "t2"))
    view.drop(lost)

    [last] = view.accept(numbered(3, "t1", "t3"))
    view.drop(last)

    assert group_of(view).topics == dict.fromkeys(("t1", "t2"), QueueData(1, 1, 6))


def test_an_event_that_is_accepted_and_lost_between_the_steps_of_a_commit_is_not_shown() -> None:
    for steps in range(6):
        view = view_of(numbered(1, "t1", "t2"))
        committing = view.committing(CommitRows(Log().say(registered(a_registration("10.0.0.2:10911", 1)))), {0: 1})
        for _ in range(steps):
            next(committing, None)
        [lost] = view.accept(numbered(2, "t1", "t2", "t3"))
        next(committing, None)
        view.drop(lost)
        for _ in committing:
            pass

        assert {t: group_of(view).topics.get(t) for t in ("t1", "t3")} == {"t1": QueueData(1, 1, 6), "t3": None}
