"""A server applies the records after its tables as the fold will, except for the effects of time."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route.event_json import encode_event, encode_heartbeats
from namesrv_stream.route.events import (
    JOB,
    BrokerRegistered,
    Event,
    KvDeleted,
    KvPut,
    Origin,
    SettingsChanged,
    Tick,
    TopicDeleted,
    TopicRegistered,
    partition_of,
)
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import pickup_topic_route
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.start.opening import LogTail
from tests.support.builders import NAME, RW, S1, S2, Log, a_key, a_proof, a_registration, heartbeats_with, over
from tests.support.examples import examples
from tests.support.strategies_route import Entry, logs

PLENTY = 1 << 30
ENTRY = KvPut(S1, "ns", "k", "v")
REGISTERED = BrokerRegistered(over(S1, 1), a_registration())
#: The guard never acts, whatever settings the events change.
UNGUARDED = FoldSettings(guard_known_ms=0, guard_min_brokers=1_000_000)
FAST = FoldSettings(
    guard_known_ms=0, default_timeout_ms=4_000, server_silent_ms=3_000, server_lost_ms=6_000, guard_min_brokers=2
)
TOPICS = ("t1", "t2", "t3", "t4")


def view_at(logs_: Iterable[Log], next_offsets: dict[int, int]) -> RouteView:
    """Return the view of a server that opened the tables as of these offsets."""
    return RouteView(table_at(logs_, next_offsets), next_offsets, partitions=len(next_offsets))


def table_at(logs_: Iterable[Log], next_offsets: dict[int, int]) -> RouteTable:
    table = RouteTable()
    apply(table, [row for log in logs_ for row in log.output.changes if row.offset < next_offsets[log.state.partition]])
    return table


def ends(logs_: Iterable[Log]) -> dict[int, int]:
    return {log.state.partition: len(log.records) for log in logs_}


def content(table: RouteTable) -> object:
    """Return what answers depend on, indexes included. Only the fold knows silent servers and held brokers."""
    routes = {topic: pickup_topic_route(table, topic, support_acting_master=True) for topic in TOPICS}
    return (
        dict(table.groups),
        {name: dict(entries) for name, entries in table.kv.items()},
        table.settings,
        routes,
        table.clusters(),
        set(table.topics()),
    )


class Commit(NamedTuple):
    """The job commits up to ``records`` more of one of the partitions."""

    partition: int
    records: int


class Case(NamedTuple):
    """A log of one to three partitions, tables that end somewhere in it, and the commits that follow."""

    logs: list[Log]
    begins: dict[int, int]
    commits: list[Commit]
    is_by_partition: bool

    def tail(self) -> list[Record]:
        """Return the records after the tables, as Kafka may return them: in order within each partition."""
        records = [r for log in self.logs for r in log.records if r.offset >= self.begins[r.partition]]
        return records if self.is_by_partition else sorted(records, key=lambda r: (r.offset, -r.partition))

    def started(self) -> RouteView:
        """Return the view of a server after its start."""
        view = view_at(self.logs, self.begins)
        tail = LogTail(view, len(self.logs), PLENTY)
        assert all(tail.take(record) for record in self.tail())
        return view


def cases(fold_settings: FoldSettings, *, is_timeless: bool) -> st.SearchStrategy[Case]:
    """Write every record to every partition. The fold must refuse those of another partition."""

    def built(partitions: int, entries: list[Entry], cuts: list[int], commits: list[Commit], order: bool) -> Case:
        of_partition = [Log(fold_settings, partition=p, partitions=partitions) for p in range(partitions)]
        for log in of_partition:
            for entry in entries:
                log.append(entry.value, 0 if is_timeless else entry.after_ms)
        begins = {p: cuts[p] % (len(entries) + 1) for p in range(partitions)}
        return Case(of_partition, begins, [c._replace(partition=c.partition % partitions) for c in commits], order)

    return st.builds(
        built,
        st.integers(1, 3),
        logs() | logs(30),
        st.lists(st.integers(0, 60), min_size=3, max_size=3),
        st.lists(st.builds(Commit, st.integers(0, 2), st.integers(0, 6)), max_size=12),
        st.booleans(),
    )


def commit(case: Case, view: RouteView, step: Commit) -> None:
    log, begin = case.logs[step.partition], view.next_offsets[step.partition]
    end = min(begin + step.records, len(log.records))
    view.commit([r for r in log.output.changes if begin <= r.offset < end], {step.partition: end})


def commit_all(case: Case, view: RouteView) -> None:
    for log in case.logs:
        commit(case, view, Commit(log.state.partition, len(log.records)))


def folded_without_closes(case: Case, next_offsets: Mapping[int, int]) -> RouteTable:
    """Fold the log without the closed connections that are not committed."""
    logs = []
    for log in case.logs:
        folded = Log(UNGUARDED, partition=log.state.partition, partitions=len(case.logs))
        for record in log.records:
            is_close = b'"kind":"broker_disconnected"' in record.value
            if not is_close or record.offset < next_offsets[record.partition]:
                folded.append(record.value)
        logs.append(folded)
    return table_at(logs, ends(logs))


@settings(max_examples=examples(50))
@given(cases(UNGUARDED, is_timeless=True))
def test_without_timeouts_the_view_equals_the_fold_except_for_uncommitted_closes(case: Case) -> None:
    view = case.started()
    assert content(view.table) == content(folded_without_closes(case, view.next_offsets))
    for step in case.commits:
        commit(case, view, step)
        assert content(view.table) == content(folded_without_closes(case, view.next_offsets))
    commit_all(case, view)
    assert content(view.table) == content(table_at(case.logs, ends(case.logs)))
    assert view.pending_count == 0


@settings(max_examples=examples(50))
@given(cases(FAST, is_timeless=False))
def test_after_all_commits_the_view_equals_the_table_of_the_fold(case: Case) -> None:
    view = case.started()
    for step in case.commits:
        commit(case, view, step)
    commit_all(case, view)
    assert content(view.table) == content(table_at(case.logs, ends(case.logs)))
    assert view.pending_count == 0


@settings(max_examples=examples(50))
@given(cases(FAST, is_timeless=False))
def test_reopening_the_tables_keeps_the_records_after_them(case: Case) -> None:
    view = case.started()
    for step in case.commits:
        commit(case, view, step)
    kept = dict(view.next_offsets)
    before = content(view.table)
    view.reload(table_at(case.logs, kept), kept)
    assert content(view.table) == before
    commit_all(case, view)
    assert content(view.table) == content(table_at(case.logs, ends(case.logs)))


# ---- single cases ----


def taken(*values: bytes | Event, view: RouteView | None = None, max_bytes: int = PLENTY) -> tuple[RouteView, LogTail]:
    """Start a server of one partition that has these records after its tables."""
    view = view or RouteView()
    tail = LogTail(view, 1, max_bytes)
    for offset, value in enumerate(values):
        tail.take(Record(0, offset, 0, value if isinstance(value, bytes) else encode_event(value)))
    return view, tail


def test_an_acknowledged_entry_is_in_the_view_although_the_tables_lack_it() -> None:
    view, tail = taken(ENTRY)
    assert view.table.kv == {"ns": {"k": "v"}}
    assert (tail.events, view.pending_count) == (1, 1)


def test_a_later_record_wins() -> None:
    view, _ = taken(ENTRY, replace(ENTRY, value="w"), KvDeleted(S2, "ns", "gone"))
    assert view.table.kv == {"ns": {"k": "w"}}


def test_a_topic_is_deleted_in_the_partition_of_the_record_only() -> None:
    names = {partition_of(name, 2): name for name in ("broker-a", "broker-b")}
    assert len(names) == 2
    of_partition = [Log(partition=p, partitions=2) for p in (0, 1)]
    for partition, name in names.items():
        of_partition[partition].register(a_registration(broker_name=name))
    view = view_at(of_partition, {0: 1, 1: 1})
    LogTail(view, 2, PLENTY).take(Record(1, 1, 0, encode_event(TopicDeleted(S1, "TopicTest", None))))
    assert [group.broker_name for group, _ in view.table.queue_data_of("TopicTest")] == [names[0]]


def test_records_without_a_valid_event_are_skipped() -> None:
    view, tail = taken(b"", b"{}", b"\xff", b'{"schema_version":1,"kind":"kv_put"}', Tick(S1), ENTRY)
    assert (view.table.kv, tail.events) == ({"ns": {"k": "v"}}, 1)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(replace(ENTRY, origin=Origin(JOB, 1)), id="the job puts no entries"),
        pytest.param(SettingsChanged(S1, "ada", (("max_gap_ms", 0),)), id="out of range"),
        pytest.param(SettingsChanged(S1, "ada", (("max_gap_ms", True),)), id="of the wrong type"),
    ],
)
def test_events_that_the_fold_refuses_are_skipped(event: Event) -> None:
    view, tail = taken(event)
    assert (view.table.kv, view.table.settings, tail.events) == ({}, {}, 0)


def test_events_of_another_partition_are_skipped() -> None:
    view = RouteView(partitions=2)
    value = encode_event(REGISTERED)
    LogTail(view, 2, PLENTY).take(Record(1 - partition_of(NAME, 2), 0, 0, value))
    assert view.table.groups == {}


def test_settings_that_the_job_logged_are_applied() -> None:
    view, _ = taken(SettingsChanged(Origin(JOB, 1), "config", (("max_gap_ms", 4_000),)))
    assert view.table.settings["config", "max_gap_ms"] == "4000"


def test_records_with_another_json_layout_are_applied() -> None:
    fields = orjson.loads(encode_event(ENTRY))
    view, _ = taken(orjson.dumps(dict(reversed(fields.items())), option=orjson.OPT_INDENT_2))
    assert view.table.kv == {"ns": {"k": "v"}}


# ---- heartbeats ----


def test_a_heartbeat_that_changes_nothing_is_not_kept() -> None:
    proof = a_proof(a_registration())
    _, tail = taken(REGISTERED, *[proof] * 5, encode_heartbeats([proof] * 3))
    assert tail.events == 1


def test_a_broker_that_returned_with_an_unchanged_registration_is_in_the_view() -> None:
    log = Log()
    log.register(a_registration())
    log.heard(a_registration())
    log.unregister(a_registration())
    log.heard(a_registration())
    view, tail = taken(*[r.value for r in log.records])
    assert view.table.groups == log.groups.groups
    assert view.table.group(NAME).is_registered
    assert tail.events == 3


def test_the_late_close_of_a_replaced_connection_removes_no_holder() -> None:
    log = Log()
    log.register(a_registration())
    log.heard(a_registration(), connection=2)
    log.disconnect(a_registration(), connection=1)
    view, _ = taken(*[r.value for r in log.records])
    assert view.table.group(NAME).live_brokers[a_key()].holders == {"s1": over(S1, 2).holder}


def test_a_broker_keeps_the_holder_that_received_only_an_unchanged_registration() -> None:
    log = Log()
    log.register(a_registration())
    log.heard(a_registration(), server=S2)
    log.unregister(a_registration())
    view, _ = taken(*[r.value for r in log.records])
    assert set(view.table.group(NAME).live_brokers[a_key()].holders) == {"s2"}


def test_a_closed_connection_removes_its_broker_with_the_commit_of_the_fold() -> None:
    log = Log()
    log.register(a_registration())
    log.disconnect(a_registration())
    view, _ = taken(*[r.value for r in log.records])
    assert view.table.group(NAME).is_registered
    view.commit(log.output.changes, {0: 2})
    assert not view.table.group(NAME).is_registered


def test_an_unchanged_registration_restores_a_deleted_topic() -> None:
    log = Log()
    log.register(a_registration())
    log.heard(a_registration())
    log.say(TopicDeleted(S1, "TopicTest", None))
    log.heard(a_registration())
    view, _ = taken(*[r.value for r in log.records])
    assert "TopicTest" in view.table.group(NAME).topics


def test_an_unchanged_registration_is_applied_again_after_a_change_of_settings() -> None:
    log = Log()
    log.register(a_registration())
    log.say(TopicRegistered(S1, NAME, "new", RW))
    log.heard(a_registration())
    log.change_settings(delete_topic_with_broker_registration=True)
    log.heard(a_registration())
    view, _ = taken(*[r.value for r in log.records])
    assert view.table.groups == log.groups.groups
    assert "new" not in view.table.group(NAME).topics


def test_invalid_items_in_a_record_of_heartbeats_are_skipped() -> None:
    log = Log()
    log.register(a_registration())
    log.unregister(a_registration())
    view, _ = taken(*[r.value for r in log.records], heartbeats_with([a_proof(a_registration())], 7, {}, {"proof": 1}))
    assert view.table.group(NAME).is_registered


# ---- limit of bytes ----


def test_a_record_beyond_the_limit_is_not_taken() -> None:
    view = RouteView()
    tail = LogTail(view, 1, 1_000)
    values = [encode_event(replace(ENTRY, key=key)) for key in ("k1", "k2")]
    assert [tail.take(Record(0, offset, 0, value)) for offset, value in enumerate(values)] == [True, False]
    assert view.table.kv == {"ns": {"k1": "v"}}


def test_heartbeats_and_ticks_do_not_count_towards_the_limit() -> None:
    heard: list[Event] = [Tick(S1), a_proof(a_registration())]
    view, _ = taken(REGISTERED, *heard * 100, ENTRY, max_bytes=2_000)
    assert view.table.kv == {"ns": {"k": "v"}}


def test_the_first_registration_after_a_server_restart_replaces_the_holder() -> None:
    later = S1._replace(server_epoch=2)
    topic = TopicRegistered(later, NAME, "new", RW)
    view, _ = taken(REGISTERED, BrokerRegistered(over(later, 1), a_registration()), topic, REGISTERED)
    assert view.table.group(NAME).live_brokers[a_key()].holders == {"s1": over(later, 1).holder}
