"""The main property of a server's view.

When everything is committed, the view equals the fold of the log. Before that it equals the fold of the committed
records followed by the events that the server has accepted, except closed connections. Time
and the guard, which only the fold has, are not included.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    KvDeleted,
    KvPut,
    Origin,
    Proof,
    SettingsChanged,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
    partition_of,
    routing_key,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import DataVersion, LiveKey, QueueData, Registration
from namesrv_stream.route.reducer import CommitRows, apply, slices_of
from namesrv_stream.route.steps import finish
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import TopicRoute, pickup_topic_route
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.route.view.view_layers import Pending
from tests.support.builders import Log, a_mapping, a_registration
from tests.support.examples import examples

#: Both have a broker name and a KV namespace.
PARTITIONS = 2
UNGUARDED = FoldSettings(guard_share_percent=100)
NAMES = st.sampled_from(("broker-a", "broker-b"))
KEYS = st.builds(LiveKey, st.sampled_from(("c0", "c1")), st.sampled_from(("1.1.1.1:1", "2.2.2.2:2", "3.3.3.3:3")))
TOPICS = st.sampled_from(("t1", "t2", "t3"))
TOPIC_TABLE = {topic: QueueData(1, 1, 6) for topic in ("t1", "t2", "t3")}
QUEUES = st.sampled_from((QueueData(1, 1, 6), QueueData(1, 1, 4), QueueData(2, 2, 7, 1)))
NAMESPACES = st.sampled_from(("ORDER_TOPIC_CONFIG", "n2"))
SWITCHES = st.sampled_from(("delete_topic_with_broker_registration", "take_over_contradictions"))
SETTINGS = st.tuples(st.tuples(SWITCHES, st.booleans()))
ORIGINS = st.sampled_from([Origin("s1", 1, connection) for connection in (1, 2, 3)])
REGISTRATIONS = st.builds(
    Registration,
    cluster=st.sampled_from(("c0", "c1")),
    broker_name=NAMES,
    broker_addr=st.sampled_from(("1.1.1.1:1", "2.2.2.2:2", "3.3.3.3:3")),
    broker_id=st.sampled_from((0, 0, 1, 2, -1)),
    ha_server_addr=st.just("ha"),
    data_version=st.builds(DataVersion, st.integers(1, 2), st.just(1), st.integers(0, 1)),
    topics=st.dictionaries(TOPICS, QUEUES, max_size=3),
    enable_acting_master=st.sampled_from((True, False, None)),
    zone_name=st.sampled_from((None, "z1")),
    topic_mappings=st.sampled_from((None, None, {"t1": a_mapping("t1")})),
    filter_servers=st.sampled_from((None, (), ("f:1",))),
    registration_hash=st.sampled_from(("h1", "h2")),
)
EVENTS: st.SearchStrategy[AcceptedEvent] = st.one_of(
    st.builds(BrokerRegistered, ORIGINS, REGISTRATIONS),
    st.builds(BrokerRegistered, ORIGINS, REGISTRATIONS),
    st.builds(BrokerHeartbeat, ORIGINS, NAMES, KEYS, st.just(Proof.REGISTRATION), st.sampled_from(("h1", "h2"))),
    st.builds(BrokerHeartbeat, ORIGINS, NAMES, KEYS, st.just(Proof.HEARTBEAT)),
    st.builds(BrokerUnregistered, ORIGINS, NAMES, KEYS, st.just(0)),
    st.builds(BrokerDisconnected, ORIGINS, NAMES, KEYS, st.just("closed")),
    st.builds(TopicRegistered, ORIGINS, NAMES, TOPICS, QUEUES),
    st.builds(WritePermChanged, ORIGINS, NAMES, st.booleans()),
    st.builds(TopicDeleted, ORIGINS, TOPICS, st.sampled_from((None, "c0", "c1"))),
    st.builds(SettingsChanged, ORIGINS, st.sampled_from(("ada", "config")), SETTINGS),
    st.builds(KvPut, ORIGINS, NAMESPACES, TOPICS, st.sampled_from(("v1", "v2"))),
    st.builds(KvDeleted, ORIGINS, NAMESPACES, TOPICS),
)


class Commit(NamedTuple):
    """The job commits up to ``records`` of a partition's records that are not committed yet."""

    partition: int
    records: int


class Reload(NamedTuple):
    """The tables are reopened at their last commit."""


class Publish(NamedTuple):
    """The next ``records`` accepted records of a partition reach the log."""

    partition: int
    records: int


class Lose(NamedTuple):
    """A session with Kafka fails: pending records are lost, except changes that some partitions already have."""


class Sweep(NamedTuple):
    """Events that are in the log, and that the committed rows include, are removed from the view."""


class Later(NamedTuple):
    """So many further steps are done of what the view does later."""

    steps: int


class Foreign(NamedTuple):
    """Another server writes an event to the log."""

    event: AcceptedEvent


Step = AcceptedEvent | Commit | Reload | Publish | Lose | Sweep | Later | Foreign

COMMITS = st.builds(Commit, st.integers(0, PARTITIONS - 1), st.integers(0, 4))
OUTAGES = st.builds(Publish, st.integers(0, PARTITIONS - 1), st.integers(1, 4)) | st.builds(Lose)
SWEEPS = st.builds(Sweep) | st.builds(Later, st.integers(1, 3))
#: Events of the same server, or of another one.
FOREIGN = EVENTS.flatmap(lambda e: st.sampled_from((e, replace(e, origin=e.origin._replace(server_id="s2"))))).map(
    Foreign
)
#: Registrations, so that every event that removes something has something to remove.
REGISTERED: list[Step] = [
    BrokerRegistered(Origin("s1", 1, 1), a_registration(addr, broker_name=name, topics=TOPIC_TABLE))
    for name, addr in (("broker-a", "1.1.1.1:1"), ("broker-b", "2.2.2.2:2"))
]


def routes(table: RouteTable) -> dict[str, TopicRoute | None]:
    return {topic: pickup_topic_route(table, topic, support_acting_master=True) for topic in ("t1", "t2", "t3")}


def order_conf(table: RouteTable, topic: str) -> str | None:
    return table.kv.get("ORDER_TOPIC_CONFIG", {}).get(topic)


@dataclass(eq=False)
class InFlightEvent:
    """An event that is being written to one partition.

    Attributes:
        pending: The view's ticket; None for a closed connection, which the view ignores.
    """

    event: AcceptedEvent
    pending: Pending | None


class Simulation:
    """One server's view, the fold of the whole log, and commits that lag behind."""

    def __init__(self) -> None:
        self.view = RouteView(partitions=PARTITIONS)
        self.waiting: deque[Iterator[None]] = deque()  # what the view does later
        self.logs = [a_log(p) for p in range(PARTITIONS)]
        self._outboxes: list[deque[InFlightEvent]] = [deque() for _ in range(PARTITIONS)]
        self._tickets: list[dict[Pending, AcceptedEvent]] = [{} for _ in range(PARTITIONS)]  # to what was accepted
        self._logged: list[dict[int, Pending]] = [{} for _ in range(PARTITIONS)]  # by offset
        self._committed = [0] * PARTITIONS

    def run(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self._do(step)

    def publish_all(self) -> None:
        self.run(Publish(p, len(outbox)) for p, outbox in enumerate(self._outboxes))

    def commit_all(self) -> None:
        self.publish_all()
        self.run(Commit(p, len(log.records)) for p, log in enumerate(self.logs))

    def table(self) -> RouteTable:
        """Return the table of all rows, without a view."""
        return table_of(self.logs)

    def expected(self) -> RouteTable:
        """Fold the committed records and the pending events, each as a separate record."""
        logs = []
        for log, committed, tickets in zip(self.logs, self._committed, self._tickets, strict=True):
            folded = a_log(log.state.partition)
            for record in log.records[:committed]:
                folded.append(record.value)
            for pending, event in tickets.items():
                if not pending.is_covered(self.view.next_offsets):
                    folded.append(encode_event(event))
            logs.append(folded)
        return table_of(logs)

    def _do(self, step: Step) -> None:
        match step:
            case Commit():
                self._commit(step.partition, step.records)
            case Reload():
                self._reload()
            case Publish():
                self._publish(step.partition, step.records)
            case Lose():
                self._lose()
            case Sweep():
                self.view.commit((), {})
            case Later():
                for _ in range(step.steps):
                    self.do_later()
            case Foreign(event=event):
                for partition in partitions_of(event):
                    self.logs[partition].append(encode_event(event))
            case _:
                self._accept(replace(step))  # a copy, so that its identity distinguishes it from an equal event

    def do_later(self) -> None:
        """Do one step of the first thing that waits."""
        if self.waiting and next(self.waiting[0], self) is self:
            self.waiting.popleft()

    def _accept(self, event: AcceptedEvent) -> None:
        partitions = partitions_of(event)
        is_close = isinstance(event, BrokerDisconnected)
        tickets: Sequence[Pending | None] = [None] if is_close else self.view.accept(event)
        for partition, pending in zip(partitions, tickets, strict=True):
            self._outboxes[partition].append(InFlightEvent(event, pending))
            if pending is not None:
                self._tickets[partition][pending] = event

    def _publish(self, partition: int, records: int) -> None:
        for _ in range(min(records, len(self._outboxes[partition]))):
            sent = self._outboxes[partition].popleft()
            log = self.logs[partition]
            if sent.pending is not None:
                self._logged[partition][len(log.records)] = sent.pending
            log.append(encode_event(sent.event))

    def _lose(self) -> None:
        waiting = Counter(id(sent.event) for outbox in self._outboxes for sent in outbox)
        for partition, outbox in enumerate(self._outboxes):
            for sent in list(outbox):
                if waiting[id(sent.event)] == len(partitions_of(sent.event)):
                    outbox.remove(sent)
                    if sent.pending is not None:
                        del self._tickets[partition][sent.pending]
                        self.view.drop(sent.pending)

    def _commit(self, partition: int, records: int) -> None:
        self.view.commit(*self.next_commit(partition, records))

    def next_commit(self, partition: int, records: int) -> tuple[list[RouteChange], dict[int, int]]:
        log, begin = self.logs[partition], self._committed[partition]
        end = self._committed[partition] = min(begin + records, len(log.records))
        # The producer learns the offset of a record before or after its rows are committed; here shortly before.
        for offset in range(begin, min(end + 2, len(log.records))):
            if offset in self._logged[partition]:
                self._logged[partition][offset].position = (partition, offset)
        rows = [r for r in log.output.changes if begin <= r.offset < end]
        return rows, {partition: end}

    def _reload(self) -> None:
        table = RouteTable()
        for log, committed in zip(self.logs, self._committed, strict=True):
            apply(table, [row for row in log.output.changes if row.offset < committed])
        self.view.reload(table, dict(enumerate(self._committed)))


def a_log(partition: int) -> Log:
    return Log(UNGUARDED, partition=partition, partitions=PARTITIONS)


def table_of(logs: Iterable[Log]) -> RouteTable:
    """Return the table of all rows of some logs."""
    table = RouteTable()
    apply(table, [row for log in logs for row in log.output.changes])
    return table


def partitions_of(event: AcceptedEvent) -> Sequence[int]:
    key = routing_key(event)
    return range(PARTITIONS) if key is None else (partition_of(key, PARTITIONS),)


def content(table: RouteTable) -> object:
    """Return the content of a table that answers use, including its indexes."""
    return (table.groups, table.kv, table.settings, routes(table), table.clusters(), set(table.topics()))


@settings(max_examples=examples(150))
@given(st.lists(EVENTS | FOREIGN | COMMITS | OUTAGES | st.just(Reload()), max_size=30))
def test_view_equals_the_fold_when_everything_is_committed(steps: list[Step]) -> None:
    simulation = Simulation()
    simulation.run(steps)
    simulation.commit_all()

    assert [log.dead_letters for log in simulation.logs] == [[], []]
    assert content(simulation.view.table) == content(simulation.table())
    assert (simulation.view.pending_count, simulation.view.pending_bytes) == (0, 0)


@settings(max_examples=examples(200))
@given(st.lists(EVENTS | FOREIGN | COMMITS | OUTAGES | st.just(Reload()), max_size=20))
def test_view_equals_the_fold_of_committed_records_and_own_events_without_closes(
    steps: list[Step],
) -> None:
    simulation = Simulation()
    simulation.run(REGISTERED)
    simulation.commit_all()
    for step in steps:
        simulation.run([step])

        assert content(simulation.view.table) == content(simulation.expected())


@settings(max_examples=examples(100))
@given(st.lists(EVENTS | FOREIGN | OUTAGES, max_size=12), COMMITS, st.integers(1, 5))
def test_applying_a_commit_in_slices_equals_applying_it_at_once(
    steps: list[Step], commit: Commit, max_rows: int
) -> None:
    whole, sliced = Simulation(), Simulation()
    for simulation in (whole, sliced):
        simulation.run([*REGISTERED, *steps])
    rows, next_offsets = sliced.next_commit(*commit)
    whole.view.commit(*whole.next_commit(*commit))

    for part, reached in slices_of(rows, next_offsets, max_rows):
        sliced.view.commit(part, reached)
        (partition, offset), *_ = reached.items()
        assert all(row.offset < offset for row in part), "a slice has no row from beyond the offset that it reaches"
        assert sliced.view.next_offsets[partition] == offset
        committed = [row for row in rows if row.offset < offset]
        assert len(part) <= len(committed)
    assert content(sliced.view.table) == content(whole.view.table)
    assert sliced.view.next_offsets == whole.view.next_offsets


@settings(max_examples=examples(150))
@given(
    st.lists(EVENTS | FOREIGN | OUTAGES, max_size=12),
    COMMITS,
    st.lists(EVENTS | OUTAGES | SWEEPS, max_size=6),
)
def test_events_may_be_accepted_and_lost_between_the_steps_of_a_commit(
    steps: list[Step], commit: Commit, events: list[Step]
) -> None:
    simulation = Simulation()
    simulation.view.table.later = simulation.waiting.append
    simulation.run([*REGISTERED, *steps])
    rows, next_offsets = simulation.next_commit(*commit)
    committing = simulation.view.committing(CommitRows(rows), next_offsets)
    for event in events:
        next(committing, None)
        simulation.run([event])
    finish(committing)
    while simulation.waiting:
        simulation.do_later()

    assert not simulation.view.is_committing
    assert content(simulation.view.table) == content(simulation.expected())


def test_the_index_of_topics_may_follow_in_steps() -> None:
    table, later = RouteTable(), list[Iterator[None]]()
    table.later = later.append
    many = {f"t{number}": QueueData(8, 8, 6) for number in range(3_000)}
    for name in ("b", "a"):
        table.replace_group(BrokerGroup(name, broker_addrs={0: "a:1"}, topics=many))
    table.replace_group(BrokerGroup("b", broker_addrs={0: "a:1"}, topics={"t0": QueueData(8, 8, 6)}))

    expected = [("t0", ("a", "b")), ("t2999", ("a",)), ("other", ())]
    assert [(topic, table.names_offering(topic)) for topic, _ in expected] == expected
    for steps in later:
        for _ in steps:
            assert [(topic, table.names_offering(topic)) for topic, _ in expected] == expected
    assert [(topic, table.names_offering(topic)) for topic, _ in expected] == expected
    assert set(table.topics()) == set(many)
