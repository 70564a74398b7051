"""Appends random events of a small fleet to a log: every kind of event, duplicates, invalid records, clock jumps.

Besides single events there are sequences: all brokers fall silent, or all their connections close, so that the
mass-expiry guard holds them; a name server restarts; a producer sends its newest records again, in order.
"""

from collections.abc import Callable, Sequence
from itertools import count, islice
from random import Random
from typing import Final

from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import (
    DIRECT,
    BrokerHeartbeat,
    Event,
    GuardReleased,
    KvDeleted,
    KvPut,
    Origin,
    Proof,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
    partition_of,
)
from namesrv_stream.route.model import QueueData, Registration
from tests.support.builders import CLUSTER, Log, a_mapping, a_proof, a_registration, heartbeats_with, over

_SERVER_IDS: Final = ("s1", "s1", "s1", "s2", "s3")
#: A server gets a new epoch after this number of records.
_EPOCH_RECORDS: Final = 150
#: The most records of one sequence.
_SEQUENCE_RECORDS: Final = 40
_TOPICS: Final = ("t1", "t2", "t3", "t4", "t5")
#: No broker registers this topic: operators add and delete it.
RARE_TOPIC: Final = "rare"
_QUEUES: Final = (QueueData(8, 8, 6), QueueData(8, 8, 4), QueueData(4, 4, 6, 1))
_POISON: Final = (
    b"",
    b"{}",
    b"[1]",
    b"\xff\xfe no JSON",
    b'{"schema_version":1,"kind":"tick"',
    '{"kind":"für später"}'.encode(),
)


def names_in_partition(partition: int, partitions: int, wanted: int, prefix: str = "broker") -> list[str]:
    """Return the first names ``prefix-N`` whose events belong to a partition."""
    numbered = (f"{prefix}-{number}" for number in count())
    return list(islice((name for name in numbered if partition_of(name, partitions) == partition), wanted))


def append_random_events(log: Log, random: Random, records: int) -> None:
    """Append exactly ``records`` random records to the log of a partition."""
    names = names_in_partition(log.state.partition, log.state.partitions, 2)
    until = len(log.records) + records
    while len(log.records) < until:
        log.now_ms += random.choice((0, 0, 0, 1, 400, 500, 500, 1_000, 4_000))
        if random.random() < 0.02:
            log.now_ms -= 700  # another Kafka broker leads the partition; its clock is slower
        if random.random() < 0.01:
            log.now_ms += random.choice((90_000, 3_600_000))
        if random.random() < 0.02 and len(log.records) + _SEQUENCE_RECORDS < until:
            random.choice(_SEQUENCES)(log, random, names)
        _append_one(log, random, names)
    assert len(log.records) == until


def _append_one(log: Log, random: Random, names: list[str]) -> None:
    server = _server(log, random)
    registration = _registration(random, names)
    what = random.random()
    if what < 0.35:
        log.tick(0, _server_of(log, "s1" if random.random() < 0.7 else "s2"))
    elif what < 0.60:
        beats = [_heartbeat(random, _registration(random, names), server) for _ in range(random.randint(1, 3))]
        bad = [{"broker_name": names[0], "proof": "rumour"}, {"proof": "heartbeat"}] if random.random() < 0.1 else []
        log.append(heartbeats_with(beats, *bad))
    elif what < 0.80:
        log.register(registration, server, random.randint(1, 2))
    elif what < 0.85:
        log.unregister(registration, server, random.randint(1, 2))
    elif what < 0.89:
        log.disconnect(registration, server, random.randint(1, 2))
    elif what < 0.90:
        log.change_settings(default_timeout_ms=random.choice((3_000, 9_000)))
    elif what < 0.92:
        log.append(random.choice(_POISON))
    elif what < 0.94 and log.records:
        log.append(random.choice(log.records).value)  # a late duplicate
    elif what < 0.95 and log.records:
        log.append(log.records[-1].value)  # an immediate duplicate
    else:
        log.append(encode_event(_change(log, random, names)))


def _server(log: Log, random: Random) -> Origin:
    return Origin(DIRECT, 0) if random.random() < 0.1 else _server_of(log, random.choice(_SERVER_IDS))


def _server_of(log: Log, server_id: str) -> Origin:
    return Origin(server_id, 1 + len(log.records) // _EPOCH_RECORDS)


def _registration(random: Random, names: list[str]) -> Registration:
    number, name = random.randint(0, 2), random.choice(names)
    hash_ = f"h{random.randint(1, 3)}"
    static = {"t1": a_mapping("t1", name, epoch=random.randint(1, 3))} if random.random() < 0.3 else None
    return a_registration(
        f"10.0.0.{number}:10911",
        broker_id=number,
        broker_name=name,
        topic_mappings=static,
        topics={topic: random.choice(_QUEUES) for topic in random.sample(_TOPICS, random.randint(2, 4))},
        timeout_ms=random.choice((3_000, 5_000, None)),
        registration_hash=hash_,
    )


def _heartbeat(random: Random, registration: Registration, server: Origin) -> BrokerHeartbeat:
    if random.random() < 0.7:
        return a_proof(registration, server, random.randint(1, 2))
    return BrokerHeartbeat(over(server, 1), registration.broker_name, registration.live_key, Proof.HEARTBEAT)


def _change(log: Log, random: Random, names: list[str]) -> Event:
    server, topic, name = _server_of(log, "s1"), random.choice(_TOPICS), random.choice(names)
    namespace, *others = names_in_partition(log.state.partition, log.state.partitions, 2, "ns")
    choices: tuple[Event, ...] = (
        TopicRegistered(server, name, topic, random.choice(_QUEUES)),
        TopicRegistered(server, name, RARE_TOPIC, random.choice(_QUEUES)),
        TopicDeleted(server, RARE_TOPIC, None),
        TopicDeleted(server, topic, None),
        WritePermChanged(server, name, random.random() < 0.5),
        KvPut(server, random.choice((namespace, *others)), "k", f"v{random.randint(1, 9)}"),
        KvDeleted(server, namespace, "k"),
    )
    return random.choice(choices)


def _a_fleet(names: Sequence[str]) -> list[Registration]:
    return [
        a_registration(f"10.0.1.{number}:10911", number, broker_name=name, timeout_ms=3_000)
        for name in names
        for number in range(3)
    ]


def _all_brokers_fall_silent(log: Log, random: Random, names: list[str]) -> None:
    """All brokers register and then fall silent: the guard holds them until a release or their next heartbeat."""
    s1 = _server_of(log, "s1")
    log.change_settings(guard_known_ms=0)
    for registration in _a_fleet(names):
        log.register(registration, s1)
    log.pass_time(random.choice((4_000, 12_000)), s1)
    if random.random() < 0.5:
        log.say(GuardReleased(s1, CLUSTER, "ada"))
    elif random.random() < 0.5:
        for registration in _a_fleet(names):
            log.heard(registration, s1)
    log.pass_time(1_000, s1)


def _all_connections_close(log: Log, random: Random, names: list[str]) -> None:
    """All brokers register, and then all their connections close: the first ones are removed and restored."""
    s2 = _server_of(log, "s2")
    log.change_settings(guard_known_ms=0)
    for registration in _a_fleet(names):
        log.register(registration, s2)
    for registration in _a_fleet(names):
        log.disconnect(registration, s2)
        log.now_ms += random.choice((0, 1))
    log.pass_time(random.choice((1_000, 8_000)), s2)


def _server_restarts(log: Log, random: Random, names: list[str]) -> None:
    """A server starts, logs registrations in its new epoch, and then logs all these records again."""
    began = len(log.records)
    s2 = Origin("s2", 100 + began)
    log.started(s2)
    for registration in _a_fleet(names)[: random.randint(1, 6)]:
        log.register(registration, s2)
    log.tick(500, s2)
    for record in log.records[began:]:
        log.append(record.value)
    random.choice((log.resumed, log.stopped))(s2)


def _records_are_sent_again(log: Log, random: Random, names: list[str]) -> None:
    """A producer sends its newest records again, in order."""
    for record in log.records[-random.randint(2, 15) :]:
        log.append(record.value, random.choice((0, 0, 1)))


_SEQUENCES: Final[tuple[Callable[[Log, Random, list[str]], None], ...]] = (
    _all_brokers_fall_silent,
    _all_connections_close,
    _server_restarts,
    _records_are_sent_again,
)
