"""A life of a small fleet, by chance from a seed: each kind of event, duplicates, poison, and a clock that jumps."""

from random import Random

from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import (
    DIRECT,
    BrokerHeartbeat,
    Event,
    KvDeleted,
    KvPut,
    Origin,
    Proof,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.model import QueueData, Registration
from tests.support.builders import S1, S2, Log, a_proof, a_registration, heartbeats_with, over

_SERVERS = (S1, S1, S1, S2, Origin(DIRECT, 0))
_TOPICS = ("t1", "t2", "t3", "t4", "t5")
_QUEUES = (QueueData(8, 8, 6), QueueData(8, 8, 4), QueueData(4, 4, 6, 1))
_POISON = (
    b"",
    b"{}",
    b"[1]",
    b"\xff\xfe no JSON",
    b'{"schema_version":1,"kind":"tick"',
    '{"kind":"für später"}'.encode(),
)


def live_on(log: Log, random: Random, records: int) -> None:
    """Let so many records be added to a log of one partition."""
    names = [f"broker-{log.state.partition}-{letter}" for letter in "ab"]
    until = len(log.records) + records
    while len(log.records) < until:
        log.now_ms += random.choice((0, 0, 0, 1, 400, 500, 500, 1_000, 4_000))
        if random.random() < 0.02:
            log.now_ms -= 700  # another broker of Kafka leads the partition, by its own clock
        if random.random() < 0.01:
            log.now_ms += random.choice((90_000, 3_600_000))
        _add(log, random, names)


def _add(log: Log, random: Random, names: list[str]) -> None:
    server = random.choice(_SERVERS)
    registration = _registration(random, names)
    what = random.random()
    if what < 0.35:
        log.tick(0, S1 if random.random() < 0.7 else S2)
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
        log.append(random.choice(log.records).value)  # sent twice
    else:
        log.append(encode_event(_change(random, names)))


def _registration(random: Random, names: list[str]) -> Registration:
    number = random.randint(0, 2)
    hash_ = f"h{random.randint(1, 3)}"
    return a_registration(
        f"10.0.0.{number}:10911",
        broker_id=number,
        broker_name=random.choice(names),
        topics={topic: random.choice(_QUEUES) for topic in random.sample(_TOPICS, random.randint(2, 4))},
        timeout_ms=random.choice((3_000, 5_000, None)),
        registration_hash=hash_,
    )


def _beat(random: Random, registration: Registration, server: Origin) -> BrokerHeartbeat:
    if random.random() < 0.7:
        return a_proof(registration, server, random.randint(1, 2))
    return BrokerHeartbeat(over(server, 1), registration.broker_name, registration.live_key, Proof.HEARTBEAT)


def _change(random: Random, names: list[str]) -> Event:
    topic, name = random.choice(_TOPICS), random.choice(names)
    choices: tuple[Event, ...] = (
        TopicRegistered(S1, name, topic, random.choice(_QUEUES)),
        TopicDeleted(S1, topic, None),
        WritePermChanged(S1, name, random.random() < 0.5),
        KvPut(S1, f"ns{random.randint(1, 2)}", "k", f"v{random.randint(1, 9)}"),
        KvDeleted(S1, "ns1", "k"),
    )
    return random.choice(choices)
