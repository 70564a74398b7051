"""Whatever Kafka does, every change has one correct answer, and the view finally equals the log."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.errors import NamesrvStreamError, SystemBusy
from namesrv_stream.processor.name_server import Accepted
from namesrv_stream.route.events import AcceptedEvent, KvPut, Origin, TopicDeleted, partition_of
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from namesrv_stream.server.gateway.operator_changes import NOT_TAKEN
from tests.support.builders import Log
from tests.support.examples import examples
from tests.support.name_server import a_body, a_registration_request, a_topic
from tests.support.server_rig import Rig, turn

PARTITIONS = 2
ORIGIN = Origin("s1", 7)


class Register(NamedTuple):
    """A broker registers, with the same or other topics."""

    name: str
    topics: int


class Put(NamedTuple):
    """An operator stores a unique value."""


class Delete(NamedTuple):
    """An operator deletes a topic in all clusters."""

    topic: str


class Ack(NamedTuple):
    """Kafka acknowledges everything that was published, or everything in one partition."""

    partition: int | None


class Do(NamedTuple):
    what: str


Step = Register | Put | Delete | Ack | Do

STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(Register, st.sampled_from(("broker-a", "broker-b")), st.integers(1, 3)),
    st.builds(Put),
    st.builds(Delete, st.sampled_from(("T1", "T2"))),
    st.builds(Ack, st.sampled_from((0, 1, None))),
    st.sampled_from(("turn", "turn", "fail", "open", "beat", "beat")).map(Do),
)


class World:
    """One server, its Kafka in memory, and the answers of its operators."""

    def __init__(self) -> None:
        self.rig = Rig(partitions=PARTITIONS)
        self.rig.talk()
        self._is_opened = True
        self._broker = self.rig.connect()
        self.outcomes: list[list[NamesrvStreamError | None]] = []
        self.events: list[AcceptedEvent] = []

    async def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Register():
                    table = {f"T{i}": a_topic() for i in range(step.topics + 1)}
                    body = a_body(table, counter=step.topics)
                    self.rig.ask(self._broker, a_registration_request(body=body, brokerName=step.name))
                case Put():
                    self._change(KvPut(ORIGIN, "n", "k", str(len(self.outcomes))))
                case Delete():
                    # A separate connection id identifies this deletion in the log.
                    self._change(
                        TopicDeleted(ORIGIN._replace(connection_id=1_000 + len(self.outcomes)), step.topic, None)
                    )
                case Ack() if self.rig.publisher.unacked:
                    self.rig.publisher.ack(step.partition)
                case Do(what="turn"):
                    await turn()
                case Do(what="fail"):
                    self.rig.publisher.fail()
                case Do(what="open") if self.rig.publisher.is_begun and not self._is_opened:
                    self._is_opened = True
                    self.rig.publisher.open()
                case Do(what="beat"):
                    self.rig.beat()
            self._is_opened &= self.rig.publisher.is_begun

    async def recover(self) -> None:
        await self.run([Do("turn"), Do("beat"), Do("beat"), Do("beat"), Do("open"), Ack(None), Do("turn"), Ack(None)])
        assert self.rig.gateway.is_connected

    def copies_in_log(self, event: AcceptedEvent) -> list[int]:
        """Return the partition of every copy of the event in the log."""
        partitions = []
        for record in self.rig.publisher.log:
            fields = orjson.loads(record.value)
            match event:
                case KvPut():
                    is_copy = fields["kind"] == "kv_put" and fields["value"] == event.value
                case TopicDeleted():
                    is_copy = fields.get("connection_id") == event.origin.connection_id
                case _:
                    is_copy = False
            if is_copy:
                partitions.append(record.partition)
        return sorted(partitions)

    def commit_all(self) -> RouteTable:
        """Fold the whole log and commit it; return the table of its rows."""
        logs = [Log(partition=p, partitions=PARTITIONS) for p in range(PARTITIONS)]
        for record in self.rig.publisher.log:
            logs[record.partition].append(record.value)
        rows = [row for log in logs for row in log.output.changes]
        self.rig.served.committed(rows, self.rig.publisher.next_offsets)
        table = RouteTable()
        apply(table, rows)
        return table

    def _change(self, event: AcceptedEvent) -> None:
        outcomes: list[NamesrvStreamError | None] = []
        self.outcomes.append(outcomes)
        self.events.append(event)
        try:
            self.rig.gateway.change([Accepted(event, event)], outcomes.append)
        except SystemBusy as error:
            assert outcomes == []
            outcomes.append(error)


async def play(steps: Sequence[Step]) -> None:
    world = World()
    await world.run(steps)
    await world.recover()

    for event, outcomes in zip(world.events, world.outcomes, strict=True):
        assert len(outcomes) == 1
        everywhere = [0, 1] if isinstance(event, TopicDeleted) else [partition_of("n", PARTITIONS)]
        copies = world.copies_in_log(event)
        if outcomes == [None]:
            assert copies == everywhere
        elif str(outcomes[0]) == NOT_TAKEN:
            assert copies == []
        else:  # unknown; but a deletion is in all partitions by now
            assert copies in ([everywhere] if isinstance(event, TopicDeleted) else [[], everywhere])
    table = world.commit_all()
    assert world.rig.view.pending_count == 0
    assert world.rig.view.table.groups == table.groups
    assert world.rig.view.table.kv == table.kv


@settings(max_examples=examples(200))
@given(st.lists(STEPS, max_size=40))
def test_every_change_has_one_correct_answer_and_the_view_finally_equals_the_log(steps: list[Step]) -> None:
    asyncio.run(play(steps))
