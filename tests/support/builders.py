"""Builders of route values and logs with all fields set; a test passes only the values it needs."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.event_json import encode_event, encode_heartbeats
from namesrv_stream.route.events import (
    DIRECT,
    JOB,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    Origin,
    Proof,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    SettingsChanged,
    Tick,
)
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.folded_log import Place, fingerprint
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.fold.step import DeadLetter, FoldOutput, GroupDict, Record
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.liveness_settings import FoldSettings, SettingValue
from namesrv_stream.route.model import DataVersion, Holder, LiveKey, QueueData, Registration, TopicQueueMappingInfo

CLUSTER = "c0"
NAME = "broker-a"
#: LogAppendTime of the first record of a ``Log``, epoch milliseconds.
BEGIN_MS = 1_700_000_000_000

RW = QueueData(8, 8, 6)
READ_ONLY = QueueData(8, 8, 4)
#: A topic that every broker has besides the topic of the test, so that no payload has exactly one topic.
BASE = {"baseTopic": RW}


def a_registration(addr: str = "10.0.0.1:10911", broker_id: int = 0, **changes: Any) -> Registration:
    """A 5.x broker's full registration; ``topics`` replaces both of its topics."""
    values: dict[str, Any] = {
        "cluster": CLUSTER,
        "broker_name": NAME,
        "broker_addr": addr,
        "broker_id": broker_id,
        "ha_server_addr": addr.replace(":10911", ":10912"),
        "data_version": DataVersion(1, 1_000, 0),
        "topics": {"TopicTest": RW, **BASE},
        "enable_acting_master": False,
        "registration_hash": f"hash of {addr}",
    }
    return Registration(**(values | changes))


def a_mapping(topic: str = "static", bname: str = NAME, **changes: Any) -> TopicQueueMappingInfo:
    values: dict[str, Any] = {
        "topic": topic,
        "bname": bname,
        "total_queues": 4,
        "epoch": 7,
        "scope": "__global__",
        "dirty": False,
        "curr_id_map": {0: 0, 2: 1},
    }
    return TopicQueueMappingInfo(**(values | changes))


def a_key(addr: str = "10.0.0.1:10911", cluster: str = CLUSTER) -> LiveKey:
    return LiveKey(cluster, addr)


def a_server(server_id: str = "s1", epoch: int = 1) -> Origin:
    return Origin(server_id, epoch)


S1 = a_server("s1")
S2 = a_server("s2")
DIRECT_ORIGIN = Origin(DIRECT, 0)
JOB_ORIGIN = Origin(JOB, 1)
HOLDER = Holder(1, 1)


class Log:
    """A log of one partition that is folded as it is written.

    Attributes:
        now_ms: LogAppendTime of the newest record.
        records: All records so far.
        output: All rows that the fold returned.
    """

    def __init__(
        self, settings: FoldSettings | None = None, *, partition: int = 0, partitions: int = 1, begin_ms: int = BEGIN_MS
    ) -> None:
        self.state = FoldState(partition, partitions, settings=settings or FoldSettings())
        self.groups = GroupDict()
        self.output = FoldOutput()
        self.now_ms = begin_ms
        self.records: list[Record] = []

    def place(self, next_offset: int | None = None) -> Place:
        """Return the progress that the job commits with the rows below an offset, by default with all rows."""
        end = self.state.next_offset if next_offset is None else next_offset
        last = next(iter(self.records[end - 1 : end]), None)
        return Place(end, 0 if last is None else fingerprint(last.at_ms, last.value))

    def append(self, value: bytes, after_ms: int = 0) -> list[RouteChange]:
        """Append one record ``after_ms`` after the one before; returns its rows."""
        self.now_ms += after_ms
        record = Record(self.state.partition, len(self.records), self.now_ms, value)
        self.records.append(record)
        before = len(self.output.changes)
        fold(self.state, self.groups, record, self.output)
        return self.output.changes[before:]

    def redeliver(self, record: Record) -> None:
        """Fold a record again."""
        fold(self.state, self.groups, record, self.output)

    def say(self, event: Event, after_ms: int = 0) -> list[RouteChange]:
        return self.append(encode_event(event), after_ms)

    def register(
        self, registration: Registration, server: Origin = S1, connection: int = 1, after_ms: int = 0
    ) -> list[RouteChange]:
        return self.say(BrokerRegistered(over(server, connection), registration), after_ms)

    def heard(
        self, registration: Registration, server: Origin = S1, connection: int = 1, after_ms: int = 0, **changes: str
    ) -> list[RouteChange]:
        """Append an unchanged registration."""
        return self.say(a_proof(registration, server, connection, **changes), after_ms)

    def beat(self, registration: Registration, server: Origin = S1, after_ms: int = 0) -> list[RouteChange]:
        """Append a heartbeat (904)."""
        origin = over(server, 1)
        event = BrokerHeartbeat(origin, registration.broker_name, registration.live_key, Proof.HEARTBEAT)
        return self.say(event, after_ms)

    def unregister(self, registration: Registration, server: Origin = S1, connection: int = 1) -> list[RouteChange]:
        r = registration
        return self.say(BrokerUnregistered(over(server, connection), r.broker_name, r.live_key, r.broker_id))

    def disconnect(self, registration: Registration, server: Origin = S1, connection: int = 1) -> list[RouteChange]:
        event = BrokerDisconnected(
            over(server, connection), registration.broker_name, registration.live_key, "closed by peer"
        )
        return self.say(event)

    def tick(self, after_ms: int = 500, server: Origin = S1) -> list[RouteChange]:
        return self.say(Tick(server), after_ms)

    def pass_time(self, ms: int, *servers: Origin, step_ms: int = 500) -> list[RouteChange]:
        """Let all ``servers`` (by default s1) tick every ``step_ms`` until ``ms`` have passed; returns the rows."""
        rows: list[RouteChange] = []
        left = ms
        while left > 0:
            step = min(step_ms, left)
            left -= step
            for number, server in enumerate(servers or (S1,)):
                rows += self.tick(step if number == 0 else 0, server)
        return rows

    def started(self, server: Origin, after_ms: int = 0) -> list[RouteChange]:
        return self.say(ServerStarted(server), after_ms)

    def resumed(self, server: Origin, after_ms: int = 0) -> list[RouteChange]:
        return self.say(ServerResumed(server), after_ms)

    def stopped(self, server: Origin, after_ms: int = 0) -> list[RouteChange]:
        return self.say(ServerStopped(server), after_ms)

    def change_settings(self, after_ms: int = 0, source: str = "ada", **values: SettingValue) -> list[RouteChange]:
        return self.say(SettingsChanged(S1, source, tuple(sorted(values.items()))), after_ms)

    def group(self, name: str = NAME) -> BrokerGroup:
        return self.groups.get(name) or BrokerGroup(name)

    @property
    def dead_letters(self) -> list[DeadLetter]:
        return self.output.dead_letters

    def alive(self) -> set[str]:
        """Addresses of brokers that are live."""
        return {k.broker_addr for g in self.groups.groups.values() for k in g.live_brokers}


def over(server: Origin, connection: int) -> Origin:
    """Return the server's origin with a connection; direct producers have none."""
    return server if server.server_id == DIRECT else server._replace(connection_id=connection)


def a_proof(registration: Registration, server: Origin = S1, connection: int = 1, **changes: str) -> BrokerHeartbeat:
    """Return an unchanged registration as a heartbeat item."""
    values: dict[str, Any] = {"registration_hash": registration.registration_hash} | changes
    return BrokerHeartbeat(
        over(server, connection), registration.broker_name, registration.live_key, Proof.REGISTRATION, **values
    )


def heartbeats_with(items: Iterable[BrokerHeartbeat], *bad_items: object) -> bytes:
    """Encode a heartbeats record, followed by items that are no heartbeats."""
    fields: dict[str, Any] = orjson.loads(encode_heartbeats(items))
    fields["items"] += bad_items
    return orjson.dumps(fields)


def of_kind(rows: Iterable[RouteChange], kind: ChangeKind) -> list[RouteChange]:
    return [row for row in rows if row.kind == kind]


def topics_of(group: BrokerGroup) -> Mapping[str, QueueData]:
    """The group's topics without the one that every builder adds."""
    return {t: q for t, q in group.topics.items() if t not in BASE}
