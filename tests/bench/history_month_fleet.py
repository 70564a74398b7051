"""The log of a fleet for a month: changes are folded event by event; the number of heartbeats in between is a choice.

There are 1,000 brokers in four clusters, and 20,000 topics on four broker names each. Every day has a full registration
of each broker, restarts of a seventh of the fleet, ten crashes, five flapping brokers, 20 new topics, and changes by an
operator. Once a week the name server restarts, and every broker registers over a new connection.
"""

import heapq
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.event_json import encode_event, encode_heartbeats
from namesrv_stream.route.events import (
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    Origin,
    Proof,
    ServerStarted,
    SettingsChanged,
    Tick,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.state import FoldState, encode_state
from namesrv_stream.route.fold.step import FoldOutput, GroupDict, Record
from namesrv_stream.route.model import Registration
from namesrv_stream.tables.layout import HISTORY_SCHEMAS
from namesrv_stream.tables.snapshot import FoldStateRow
from tests.support.builders import RW, a_registration

DAY_MS: Final = 86_400_000
BEAT_MS: Final = 30_000  # RocketMQ's registerNameServerPeriod
TICK_MS: Final = 500
_CLUSTERS: Final = 4
_SERVER: Final = "s1"


class FleetLog:
    """The log of one partition, folded as it is written; records are kept until ``take``.

    Attributes:
        next_offset: Offset of the next record.
    """

    def __init__(self, brokers: int = 1_000, topics_a_broker: int = 80, seed: int = 1) -> None:
        total = brokers * topics_a_broker // 4
        self.registrations = [_registration(n, topics_a_broker, total) for n in range(brokers)]
        self.next_offset = 0
        self._state = FoldState(0, 1)
        self._groups = GroupDict()
        self._output = FoldOutput()
        self._records: list[Record] = []
        self._random = Random(seed)
        self._epoch = 1
        self._connection = count(1)
        self._connections: dict[int, int] = {}
        self._topic = count()

    def begin(self, at_ms: int) -> None:
        """Start the server and register all brokers."""
        server = Origin(_SERVER, self._epoch)
        self._say(at_ms, ServerStarted(server))
        # With few records, observed time hardly advances, so the guard would take a day's restarts for one failure.
        self._say(at_ms, SettingsChanged(server, "bench", (("guard_share_percent", 100),)))
        for number in range(len(self.registrations)):
            self._register(at_ms + number, number)

    def take(self) -> tuple[list[Record], list[RouteChange]]:
        """Return the records since the last call, and their rows."""
        records, self._records = self._records, []
        changes, self._output.changes = self._output.changes, []
        self._output.dead_letters.clear()
        return records, changes

    def fold_state(self) -> FoldStateRow:
        return FoldStateRow(self._state.next_offset, self._state.at_ms, encode_state(self._state))

    def skip(self, records: int) -> int:
        """Reserve offsets for records that are made elsewhere; returns the first one."""
        first, self.next_offset = self.next_offset, self.next_offset + records
        return first

    def changes_of_day(self, day: int, begin_ms: int) -> "list[Planned]":
        """Return the events of a day, by time."""
        random, brokers = self._random, range(len(self.registrations))
        plan = [Planned(random.randrange(DAY_MS), "register", n) for n in brokers]
        for n in (n for n in brokers if n % 7 == day % 7):
            at = random.randrange(DAY_MS - 60_000)
            plan += [Planned(at, "unregister", n), Planned(at + 40_000, "come", n)]
        for n in random.sample(brokers, 10):
            at = random.randrange(DAY_MS - 200_000)
            plan += [Planned(at, "disconnect", n), Planned(at + 180_000, "come", n)]
        for n in random.sample(brokers, 5):
            at = random.randrange(DAY_MS - 600_000)
            for flap in range(5):
                plan += [Planned(at + flap * 60_000, "disconnect", n), Planned(at + flap * 60_000 + 20_000, "come", n)]
        plan += [Planned(random.randrange(DAY_MS), "topic", random.choice(brokers)) for _ in range(20)]
        plan += [Planned(random.randrange(DAY_MS), what, 7) for what in ("wipe", "add")]
        if day % 7 == 3:
            plan.append(Planned(random.randrange(DAY_MS - 120_000), "server", 0))
        return sorted(p._replace(at_ms=begin_ms + p.at_ms) for p in plan)

    def happen(self, plan: "list[Planned]") -> None:
        """Execute planned events, in order."""
        for at_ms, what, n in plan:
            r = self.registrations[n]
            match what:
                case "register":
                    self._say(at_ms, BrokerRegistered(self._origin(n), r))
                case "come":
                    self._register(at_ms, n)
                case "unregister":
                    self._say(at_ms, BrokerUnregistered(self._origin(n), r.broker_name, r.live_key, r.broker_id))
                case "disconnect":
                    self._say(at_ms, BrokerDisconnected(self._origin(n), r.broker_name, r.live_key, "closed by peer"))
                case "topic":
                    self._say(at_ms, TopicRegistered(self._origin(n), r.broker_name, f"new-{next(self._topic)}", RW))
                case "wipe" | "add":
                    self._say(at_ms, WritePermChanged(self._origin(n), r.broker_name, what == "add"))
                case "server":
                    self._epoch += 1
                    self._say(at_ms, ServerStarted(Origin(_SERVER, self._epoch)))
                    for number in range(len(self.registrations)):
                        self._connections[number] = next(self._connection)
                        self._append(at_ms + 30 * number, encode_heartbeats([self._beat(number)]))

    def all_are_heard(self, at_ms: int) -> None:
        """Append a record with a heartbeat of each broker, and a tick; they stand for the heartbeats of a period."""
        self._append(at_ms, encode_heartbeats([self._beat(n) for n in range(len(self.registrations))]))
        self._say(at_ms, Tick(Origin(_SERVER, self._epoch)))

    def minute_at_full_density(self, begin_ms: int) -> None:
        """Append all heartbeats and ticks of a minute as a server logs them, each broker at its own times."""
        brokers = len(self.registrations)
        beats = (
            (begin_ms + half + n * BEAT_MS // brokers + self._random.randint(0, 9), 1, n)
            for half in range(0, 60_000, BEAT_MS)
            for n in range(brokers)
        )
        ticks = ((begin_ms + at, 0, 0) for at in range(0, 60_000, TICK_MS))
        for at_ms, is_beat, n in heapq.merge(sorted(beats), ticks):
            if is_beat:
                self._append(at_ms, encode_heartbeats([self._beat(n)]))
            else:
                self._say(at_ms, Tick(Origin(_SERVER, self._epoch)))

    def events_at_full_density(self, begin_ms: int, end_ms: int) -> Iterator[pa.Table]:
        """Yield rows of ``broker_events`` of an hour each, as the writer makes them of heartbeats and ticks."""
        brokers, schema = len(self.registrations), HISTORY_SCHEMAS["broker_events"]
        values = pa.array([encode_heartbeats([self._beat(n)]).decode() for n in range(brokers)])
        values = pa.concat_arrays([values, pa.array([encode_event(Tick(Origin(_SERVER, self._epoch))).decode()])])
        kinds = pa.array(["broker_heartbeats"] * brokers + ["tick"])
        noise = np.random.default_rng(begin_ms)
        for hour_ms in range(begin_ms, end_ms, 3_600_000):
            until_ms = min(end_ms, hour_ms + 3_600_000)
            rounds = (until_ms - hour_ms) // BEAT_MS
            beats = hour_ms + (np.arange(rounds * brokers) * BEAT_MS) // brokers
            at = np.concatenate([beats + noise.integers(0, 9, beats.size), np.arange(hour_ms, until_ms, TICK_MS)])
            who = np.concatenate([np.tile(np.arange(brokers), rounds), np.full(at.size - beats.size, brokers)])
            order = np.argsort(at, kind="stable")
            at, who = at[order], pa.array(who[order])
            offsets = self.skip(at.size) + np.arange(at.size)
            known = {
                "partition": pa.array(np.zeros(at.size, np.int32)),
                "offset": pa.array(offsets),
                "at": pa.array(at * 1000).cast(pa.timestamp("us", tz="UTC")),
                "kind": kinds.take(who),
                "server_id": pa.repeat(_SERVER, at.size),
                "server_epoch": pa.repeat(pa.scalar(self._epoch, pa.int64()), at.size),
                "items": pa.array(np.ones(at.size, np.int32), mask=np.asarray(who) == brokers),
                "value": values.take(who),
                "event_day": pa.array(at).cast(pa.timestamp("ms")).cast(pa.date32()),
            }
            yield pa.table({f.name: known.get(f.name, pa.nulls(at.size, f.type)) for f in schema}, schema=schema)

    def minutes_at_full_density(self, begin_ms: int, end_ms: int) -> pa.Table:
        """Return rows of ``heartbeat_minutes`` as the writer makes them of the same heartbeats."""
        brokers, minutes = len(self.registrations), (end_ms - begin_ms) // 60_000
        minute = begin_ms + np.repeat(np.arange(minutes) * 60_000, brokers)
        who = pa.array(np.tile(np.arange(brokers), minutes))
        noise = np.random.default_rng(end_ms)
        first = minute + np.asarray(who) * BEAT_MS // brokers + noise.integers(0, 9, minute.size)
        gaps = noise.integers(-9, 10, (2, minute.size)) + BEAT_MS
        low, high = gaps.min(axis=0), gaps.max(axis=0)
        instants = {"minute": minute, "first_at": first, "last_at": first + gaps[1]}
        texts = {
            "cluster": [r.cluster for r in self.registrations],
            "broker_name": [r.broker_name for r in self.registrations],
            "broker_addr": [r.broker_addr for r in self.registrations],
        }
        columns = {
            **{name: pa.array(values).take(who) for name, values in texts.items()},
            "server_id": pa.repeat(_SERVER, minute.size),
            **{name: pa.array(at * 1000).cast(pa.timestamp("us", tz="UTC")) for name, at in instants.items()},
            "heartbeats": pa.array(np.full(minute.size, 2)),
            "gap_p50_ms": pa.array(low),
            "gap_p99_ms": pa.array(high),
            "gap_max_ms": pa.array(high),
            "partition": pa.array(np.zeros(minute.size, np.int32)),
            "day": pa.array(minute).cast(pa.timestamp("ms")).cast(pa.date32()),
        }
        schema = HISTORY_SCHEMAS["heartbeat_minutes"]
        return pa.table({name: columns[name] for name in schema.names}, schema=schema)

    def _register(self, at_ms: int, number: int) -> None:
        self._connections[number] = next(self._connection)
        self._say(at_ms, BrokerRegistered(self._origin(number), self.registrations[number]))

    def _origin(self, number: int) -> Origin:
        return Origin(_SERVER, self._epoch, self._connections.get(number, 0))

    def _beat(self, number: int) -> BrokerHeartbeat:
        r = self.registrations[number]
        return BrokerHeartbeat(
            self._origin(number), r.broker_name, r.live_key, Proof.REGISTRATION, registration_hash=r.registration_hash
        )

    def _say(self, at_ms: int, event: Event) -> None:
        self._append(at_ms, encode_event(event))

    def _append(self, at_ms: int, value: bytes) -> None:
        record = Record(0, self.skip(1), at_ms, value)
        self._records.append(record)
        fold(self._state, self._groups, record, self._output)


class Planned(NamedTuple):
    """A planned event: its time, its kind, and the broker."""

    at_ms: int
    what: str
    broker: int


def _registration(number: int, topics: int, total: int) -> Registration:
    names = {f"topic-{(number * topics + t) % total:05}": RW for t in range(topics)}
    return a_registration(
        f"10.{number % _CLUSTERS}.{number // 250}.{number % 250}:10911",
        broker_name=f"broker-{number:04}",
        cluster=f"cluster-{number % _CLUSTERS}",
        topics=names,
        registration_hash=f"{number:032x}",
    )
