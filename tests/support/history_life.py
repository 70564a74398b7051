"""A random history of a small fleet from a seed: each kind of event, duplicates, poison records, a clock that jumps.

Besides single events there are scenes: a fleet that falls silent, or is closed, all at once, so that the mass-expiry
guard holds it; a name server that starts again; and a producer that sends what it has sent, in order, again.
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
#: A server has a new epoch after so many records.
_EPOCH_RECORDS: Final = 150
#: At most, of a scene.
_SCENE_RECORDS: Final = 40
_TOPICS: Final = ("t1", "t2", "t3", "t4", "t5")
#: No broker registers it: it comes and goes by itself.
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


def names_of(partition: int, partitions: int, wanted: int, prefix: str = "broker") -> list[str]:
    """The first names of a numbered kind whose events belong into a partition."""
    numbered = (f"{prefix}-{number}" for number in count())
    return list(islice((name for name in numbered if partition_of(name, partitions) == partition), wanted))


def live_on(log: Log, random: Random, records: int) -> None:
    """Let so many records be added to the log of a partition."""
    names = names_of(log.state.partition, log.state.partitions, 2)
    until = len(log.records) + records
    while len(log.records) < until:
        log.now_ms += random.choice((0, 0, 0, 1, 400, 500, 500, 1_000, 4_000))
        if random.random() < 0.02:
            log.now_ms -= 700  # another broker of Kafka leads the partition, by its own clock
        if random.random() < 0.01:
            log.now_ms += random.choice((90_000, 3_600_000))
        if random.random() < 0.02 and len(log.records) + _SCENE_RECORDS < until:
            random.choice(_SCENES)(log, random, names)
        _add(log, random, names)
    assert len(log.records) == until


def _add(log: Log, random: Random, names: list[str]) -> None:
    server = _server(log, random)
    registration = _registration(random, names)
    what = random.random()
    if what < 0.35:
        log.tick(0, _server_of(log, "s1" if random.random() < 0.7 else "s2"))
    elif what < 0.60:
        beats = [_beat(random, _registration(random, names), server) for _ in range(random.randint(1, 3))]
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
        log.append(random.choice(log.records).value)  # sent twice, long after
    elif what < 0.95 and log.records:
        log.append(log.records[-1].value)  # sent twice, at once
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


def _beat(random: Random, registration: Registration, server: Origin) -> BrokerHeartbeat:
    if random.random() < 0.7:
        return a_proof(registration, server, random.randint(1, 2))
    return BrokerHeartbeat(over(server, 1), registration.broker_name, registration.live_key, Proof.HEARTBEAT)


def _change(log: Log, random: Random, names: list[str]) -> Event:
    server, topic, name = _server_of(log, "s1"), random.choice(_TOPICS), random.choice(names)
    namespace, *others = names_of(log.state.partition, log.state.partitions, 2, "ns")
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


def _silence_of_all(log: Log, random: Random, names: list[str]) -> None:
    """All register, then all fall silent: the guard holds them until they are released or send heartbeats again."""
    s1 = _server_of(log, "s1")
    for registration in _a_fleet(names):
        log.register(registration, s1)
    log.pass_time(random.choice((4_000, 12_000)), s1)
    if random.random() < 0.5:
        log.say(GuardReleased(s1, CLUSTER, "ada"))
    elif random.random() < 0.5:
        for registration in _a_fleet(names):
            log.heard(registration, s1)
    log.pass_time(1_000, s1)


def _close_of_all(log: Log, random: Random, names: list[str]) -> None:
    """All come, and are closed in a moment: the first ones go, and are taken back."""
    s2 = _server_of(log, "s2")
    for registration in _a_fleet(names):
        log.register(registration, s2)
    for registration in _a_fleet(names):
        log.disconnect(registration, s2)
        log.now_ms += random.choice((0, 1))
    log.pass_time(random.choice((1_000, 8_000)), s2)


def _server_starts_again(log: Log, random: Random, names: list[str]) -> None:
    """It says so, says what it heard in its new epoch, and then what it has already said."""
    began = len(log.records)
    s2 = Origin("s2", 100 + began)
    log.started(s2)
    for registration in _a_fleet(names)[: random.randint(1, 6)]:
        log.register(registration, s2)
    log.tick(500, s2)
    for record in log.records[began:]:
        log.append(record.value)
    random.choice((log.resumed, log.stopped))(s2)


def _sent_again(log: Log, random: Random, names: list[str]) -> None:
    """The newest records once more, in order."""
    for record in log.records[-random.randint(2, 15) :]:
        log.append(record.value, random.choice((0, 0, 1)))


_SCENES: Final[tuple[Callable[[Log, Random, list[str]], None], ...]] = (
    _silence_of_all,
    _close_of_all,
    _server_starts_again,
    _sent_again,
)
