"""What a server makes of the records behind its tables: what the fold will make of them, time aside."""

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
UNGUARDED = FoldSettings(guard_min_brokers=1_000_000)
FAST = FoldSettings(default_timeout_ms=4_000, server_silent_ms=3_000, server_lost_ms=6_000, guard_min_brokers=2)
TOPICS = ("t1", "t2", "t3", "t4")


def view_at(logs_: Iterable[Log], next_offsets: dict[int, int]) -> RouteView:
    """A server that has opened the tables as they were at these offsets."""
    return RouteView(table_at(logs_, next_offsets), next_offsets, partitions=len(next_offsets))


def table_at(logs_: Iterable[Log], next_offsets: dict[int, int]) -> RouteTable:
    table = RouteTable()
    apply(table, [row for log in logs_ for row in log.output.changes if row.offset < next_offsets[log.state.partition]])
    return table


def ends(logs_: Iterable[Log]) -> dict[int, int]:
    return {log.state.partition: len(log.records) for log in logs_}


def content(table: RouteTable) -> object:
    """All of a table that answers are made of, its indexes too; not who is silent or held, which only the fold says."""
    routes = {topic: pickup_topic_route(table, topic, support_acting_master=True) for topic in TOPICS}
    return (table.groups, table.kv, table.settings, routes, table.clusters(), set(table.topics()))


class Commit(NamedTuple):
    """The job commits up to ``records`` more of one of the partitions."""

    partition: int
    records: int


class Case(NamedTuple):
    """A log of one to three partitions; tables that end somewhere in it; and the commits that follow."""

    logs: list[Log]
    begins: dict[int, int]
    commits: list[Commit]
    is_by_partition: bool

    def tail(self) -> list[Record]:
        """The records behind the tables, as Kafka may give them: in order within each partition."""
        records = [r for log in self.logs for r in log.records if r.offset >= self.begins[r.partition]]
        return records if self.is_by_partition else sorted(records, key=lambda r: (r.offset, -r.partition))

    def started(self) -> RouteView:
        """A server after its start."""
        view = view_at(self.logs, self.begins)
        tail = LogTail(view, len(self.logs), PLENTY)
        assert all(tail.take(record) for record in self.tail())
        return view


def cases(fold_settings: FoldSettings, *, is_timeless: bool) -> st.SearchStrategy[Case]:
    """Each record is in every partition, so what is not for a partition is there as well, for the fold to refuse."""

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
    """What the fold makes of the log, without the closed connections that are not committed."""
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
def test_while_no_time_passes_the_view_is_what_the_fold_will_say_but_for_closed_connections(case: Case) -> None:
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
def test_whatever_time_did_the_commits_make_the_view_the_folds_table_exactly(case: Case) -> None:
    view = case.started()
    for step in case.commits:
        commit(case, view, step)
    commit_all(case, view)
    assert content(view.table) == content(table_at(case.logs, ends(case.logs)))
    assert view.pending_count == 0


@settings(max_examples=examples(50))
@given(cases(FAST, is_timeless=False), st.booleans())
def test_tables_opened_anew_keep_what_is_still_behind_them(case: Case, is_end: bool) -> None:
    view = case.started()
    for step in case.commits:
        commit(case, view, step)
    kept = dict(view.next_offsets)
    before = content(view.table)
    view.reload(table_at(case.logs, kept), kept)
    assert content(view.table) == before
    commit_all(case, view)
    assert content(view.table) == content(table_at(case.logs, ends(case.logs)))


# ---- one thing at a time ----


def taken(*values: bytes | Event, view: RouteView | None = None, max_bytes: int = PLENTY) -> tuple[RouteView, LogTail]:
    """A server of one partition that starts with these records behind its tables."""
    view = view or RouteView()
    tail = LogTail(view, 1, max_bytes)
    for offset, value in enumerate(values):
        tail.take(Record(0, offset, 0, value if isinstance(value, bytes) else encode_event(value)))
    return view, tail


def test_an_acknowledged_entry_is_there_though_the_tables_lack_it() -> None:
    view, tail = taken(ENTRY)
    assert view.table.kv == {"ns": {"k": "v"}}
    assert (tail.events, view.pending_count) == (1, 1)


def test_a_later_record_wins() -> None:
    view, _ = taken(ENTRY, replace(ENTRY, value="w"), KvDeleted(S2, "ns", "gone"))
    assert view.table.kv == {"ns": {"k": "w"}}


def test_a_deleted_topic_goes_in_the_partition_of_the_record_only() -> None:
    names = {partition_of(name, 2): name for name in ("broker-a", "broker-b")}
    assert len(names) == 2
    of_partition = [Log(partition=p, partitions=2) for p in (0, 1)]
    for partition, name in names.items():
        of_partition[partition].register(a_registration(broker_name=name))
    view = view_at(of_partition, {0: 1, 1: 1})
    LogTail(view, 2, PLENTY).take(Record(1, 1, 0, encode_event(TopicDeleted(S1, "TopicTest", None))))
    assert [group.broker_name for group, _ in view.table.queue_data_of("TopicTest")] == [names[0]]


def test_what_is_no_event_is_passed_over() -> None:
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
def test_what_the_fold_refuses_is_left_out(event: Event) -> None:
    view, tail = taken(event)
    assert (view.table.kv, view.table.settings, tail.events) == ({}, {}, 0)


def test_what_belongs_into_another_partition_is_left_out() -> None:
    view = RouteView(partitions=2)
    value = encode_event(REGISTERED)
    LogTail(view, 2, PLENTY).take(Record(1 - partition_of(NAME, 2), 0, 0, value))
    assert view.table.groups == {}


def test_the_jobs_settings_count() -> None:
    view, _ = taken(SettingsChanged(Origin(JOB, 1), "config", (("max_gap_ms", 4_000),)))
    assert view.table.settings["config", "max_gap_ms"] == "4000"


def test_records_of_other_hands_count_as_well() -> None:
    fields = orjson.loads(encode_event(ENTRY))
    view, _ = taken(orjson.dumps(dict(reversed(fields.items())), option=orjson.OPT_INDENT_2))
    assert view.table.kv == {"ns": {"k": "v"}}


# ---- heartbeats ----


def test_a_heartbeat_that_changes_nothing_is_not_kept() -> None:
    proof = a_proof(a_registration())
    _, tail = taken(REGISTERED, *[proof] * 5, encode_heartbeats([proof] * 3))
    assert tail.events == 1


def test_a_broker_that_came_back_with_what_it_had_said_before_is_there() -> None:
    log = Log()
    log.register(a_registration())
    log.heard(a_registration())
    log.unregister(a_registration())
    log.heard(a_registration())
    view, tail = taken(*[r.value for r in log.records])
    assert view.table.groups == log.groups.groups
    assert view.table.group(NAME).is_registered
    assert tail.events == 3


def test_the_late_close_of_a_connection_that_was_replaced_ends_nothing() -> None:
    log = Log()
    log.register(a_registration())
    log.heard(a_registration(), connection=2)
    log.disconnect(a_registration(), connection=1)
    view, _ = taken(*[r.value for r in log.records])
    assert view.table.group(NAME).live_brokers[a_key()].holders == {"s1": over(S1, 2).holder}


def test_a_broker_stays_with_the_server_that_only_heard_it() -> None:
    log = Log()
    log.register(a_registration())
    log.heard(a_registration(), server=S2)
    log.unregister(a_registration())
    view, _ = taken(*[r.value for r in log.records])
    assert set(view.table.group(NAME).live_brokers[a_key()].holders) == {"s2"}


def test_a_closed_connection_ends_no_broker_before_the_fold_has_said_so() -> None:
    log = Log()
    log.register(a_registration())
    log.disconnect(a_registration())
    view, _ = taken(*[r.value for r in log.records])
    assert view.table.group(NAME).is_registered
    view.commit(log.output.changes, {0: 2})
    assert not view.table.group(NAME).is_registered


def test_a_heartbeat_brings_a_deleted_topic_back_as_the_registration_would() -> None:
    log = Log()
    log.register(a_registration())
    log.heard(a_registration())
    log.say(TopicDeleted(S1, "TopicTest", None))
    log.heard(a_registration())
    view, _ = taken(*[r.value for r in log.records])
    assert "TopicTest" in view.table.group(NAME).topics


def test_changed_settings_make_a_heartbeat_count_again() -> None:
    log = Log()
    log.register(a_registration())
    log.say(TopicRegistered(S1, NAME, "new", RW))
    log.heard(a_registration())
    log.change_settings(delete_topic_with_broker_registration=True)
    log.heard(a_registration())
    view, _ = taken(*[r.value for r in log.records])
    assert view.table.groups == log.groups.groups
    assert "new" not in view.table.group(NAME).topics


def test_items_that_are_no_heartbeats_are_passed_over() -> None:
    log = Log()
    log.register(a_registration())
    log.unregister(a_registration())
    view, _ = taken(*[r.value for r in log.records], heartbeats_with([a_proof(a_registration())], 7, {}, {"proof": 1}))
    assert view.table.group(NAME).is_registered


# ---- room ----


def test_what_has_no_room_is_left_with_all_that_is_behind_it() -> None:
    view = RouteView()
    tail = LogTail(view, 1, 1_000)
    values = [encode_event(replace(ENTRY, key=key)) for key in ("k1", "k2")]
    assert [tail.take(Record(0, offset, 0, value)) for offset, value in enumerate(values)] == [True, False]
    assert view.table.kv == {"ns": {"k1": "v"}}


def test_heartbeats_and_ticks_take_no_room() -> None:
    heard: list[Event] = [Tick(S1), a_proof(a_registration())]
    view, _ = taken(REGISTERED, *heard * 100, ENTRY, max_bytes=2_000)
    assert view.table.kv == {"ns": {"k": "v"}}


def test_the_first_registration_of_a_server_start_is_kept_whoever_was_there_before() -> None:
    later = S1._replace(server_epoch=2)
    topic = TopicRegistered(later, NAME, "new", RW)
    view, _ = taken(REGISTERED, BrokerRegistered(over(later, 1), a_registration()), topic, REGISTERED)
    assert view.table.group(NAME).live_brokers[a_key()].holders == {"s1": over(later, 1).holder}
