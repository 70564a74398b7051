"""After a repartition the same brokers are alive as if there had always been as many partitions."""

from collections.abc import Iterator
from random import Random

import pytest

from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import (
    BrokerDisconnected,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    Origin,
    Tick,
    partition_of,
    routing_key,
)
from namesrv_stream.route.fold import fold_record as folding
from namesrv_stream.route.fold.derived_state import repartitioned
from namesrv_stream.route.fold.state import FoldState, decode_state, encode_state
from namesrv_stream.route.fold.step import FoldOutput, GroupDict, Record
from namesrv_stream.route.group import BrokerGroup
from tests.support.builders import BEGIN_MS, S1, S2, a_proof, a_registration, over

_FLEET = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}", timeout_ms=20_000) for n in range(24)]
_BEATS = 240


class _Topic:
    """Partitions that are folded as they are written, with a common clock."""

    def __init__(self, states: list[FoldState]) -> None:
        self.states = states
        self.groups = GroupDict()
        self.output = FoldOutput()

    def write(self, event: Event, at_ms: int) -> None:
        key = routing_key(event)
        count = len(self.states)
        for partition in range(count) if key is None else (partition_of(key, count),):
            state = self.states[partition]
            record = Record(partition, state.next_offset, at_ms, encode_event(event))
            folding.fold(state, self.groups, record, self.output)

    def write_early_ticks(self, server: Origin, seconds: int) -> None:
        """Write ticks to the first partition before all others, whose clocks are then behind."""
        for tick in range(2 * seconds):
            record = Record(
                0, self.states[0].next_offset, BEGIN_MS - 500 * (2 * seconds - tick), encode_event(Tick(server))
            )
            folding.fold(self.states[0], self.groups, record, self.output)

    def removals(self) -> list[tuple[int, str, str]]:
        rows = (row for row in self.output.changes if row.gone and row.kind == ChangeKind.BROKER_LIVE)
        return sorted((row.at_ms, row.broker_name or "", row.cause) for row in rows)

    def by_name(self) -> dict[str, BrokerGroup]:
        return dict(self.groups.groups)


def _life(random: Random) -> Iterator[tuple[int, Event]]:
    """Random events: two servers tick every half second; brokers register, are heard, fall silent or are removed."""
    silent: set[int] = set()
    for beat in range(_BEATS):
        at_ms = BEGIN_MS + 500 * beat
        for number, broker in enumerate(_FLEET):
            server = (S1, S2)[number % 2]
            if beat == 0 or (number in silent and random.random() < 0.01):
                silent.discard(number)
                yield at_ms, BrokerRegistered(over(server, 1), broker)
            elif random.random() < 0.004:
                silent.add(number)
                if random.random() < 0.4:
                    yield at_ms, BrokerUnregistered(over(server, 1), broker.broker_name, broker.live_key, 0)
                elif random.random() < 0.5:
                    yield at_ms, BrokerDisconnected(over(server, 1), broker.broker_name, broker.live_key, "closed")
            elif number not in silent and beat % 20 == number % 20:
                yield at_ms, a_proof(broker, server)
        yield from ((at_ms + 400, Tick(server)) for server in (S1, S2))


def _states(partitions: int) -> list[FoldState]:
    return [FoldState(partition, partitions) for partition in range(partitions)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 4), (4, 6)])
def test_brokers_keep_their_age_after_a_repartition(before: int, after: int, seed: int) -> None:
    grown, always = _Topic(_states(before)), _Topic(_states(after))
    grown.write_early_ticks(S1, 30)
    grown.write_early_ticks(S2, 7)
    life = list(_life(Random(seed)))
    for number, (at_ms, event) in enumerate(life):
        if number == len(life) * (seed + 1) // 10:
            stored = [decode_state(encode_state(state)) for state in repartitioned(grown.states, after)]
            assert [state.next_offset for state in stored[before:]] == [0] * (after - before)
            grown.states = stored
        for topic in (grown, always):
            topic.write(event, at_ms)
    assert len(grown.states) == after
    assert len(grown.removals()) > 3
    assert grown.removals() == always.removals()
    assert grown.by_name() == always.by_name()
    assert grown.output.dead_letters == []


def test_recent_closes_move_to_the_new_partition_of_their_broker_name() -> None:
    topic = _Topic(_states(1))
    for broker in _FLEET[:4]:
        topic.write(BrokerRegistered(over(S1, 1), broker), BEGIN_MS)
        topic.write(BrokerDisconnected(over(S1, 1), broker.broker_name, broker.live_key, "closed"), BEGIN_MS + 10)
    found = repartitioned(topic.states, 5)
    closes = {c.key.broker_name: state.partition for state in found for c in state.servers["s1"].closes}
    assert closes == {broker.broker_name: partition_of(broker.broker_name, 5) for broker in _FLEET[:4]}
    gone = {key.broker_name: state.partition for state in found for key in state.gone}
    assert gone == closes


def test_later_rows_of_a_name_have_later_times_despite_kafkas_clock() -> None:
    """The new partition may have a lower number, so the rows of a key are ordered by their times."""
    topic = _Topic(_states(3))
    for broker in _FLEET:
        topic.write(BrokerRegistered(over(S1, 1), broker), BEGIN_MS)
    topic.states = repartitioned(topic.states, 5)
    said = len(topic.output.changes)
    for broker in _FLEET:
        topic.write(BrokerUnregistered(over(S1, 1), broker.broker_name, broker.live_key, 0), BEGIN_MS)
    assert {row.at_ms for row in topic.output.changes[said:]} == {BEGIN_MS + 1}
