"""Checks of the event log in Kafka: the topics, their settings, this user's rights, and Kafka's clock."""

from collections.abc import Collection, Iterator
from typing import Final

from namesrv_stream.kafka.event_topics import wanted_topics
from namesrv_stream.kafka.inspection import InspectedLog, InspectedTopic
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import PartState
from namesrv_stream.text_table import counted
from namesrv_stream.tools.doctor.finding import Finding, fault, fine, note, warning

_AREA: Final = "Kafka"
#: A job logs a tick every half second, so while it runs the newest record is no older than this.
_FRESH_MS: Final = 5_000


def topics(settings: Settings, log: InspectedLog) -> Iterator[Finding]:
    """Check brokers, topics, rights and settings of Kafka that the product relies on."""
    brokers = counted(log.brokers, "broker")
    yield fine(_AREA, f"{log.servers} answers, {brokers}")
    kafka = settings.kafka
    for topic, (name, partitions) in zip((log.events, log.dead_letters), wanted_topics(settings), strict=True):
        lacks = log.missing_rights.get(name, ())
        if lacks:
            yield _rights(f"topic {name}", lacks, is_events=name == kafka.broker_events_topic)
        elif topic is None:
            yield note(f"topic {name}", "does not exist yet: the first process that starts creates it")
        if topic is not None and "DescribeConfigs" not in lacks:
            yield from _topic(topic, partitions, log.brokers)
    if log.dead_letters_held:
        text = f"the job refused {counted(log.dead_letters_held, 'record')}"
        yield warning("dead letters", text, "`namesrv-stream dead-letters` lists them with the reasons")


def _rights(area: str, lacks: Collection[str], is_events: bool) -> Finding:
    """Say which operations on a topic Kafka does not permit. A part with its own Kafka user may need fewer."""
    remedy = "grant this user the operations that docs/production.md lists"
    if "Create" in lacks:
        return warning(area, "does not exist yet, and this user may not create it", f"create it, or {remedy}")
    text = f"this user lacks {', '.join(lacks)}"
    if "Describe" in lacks:
        return fault(area, f"{text}, so Kafka does not say whether the topic exists", remedy)
    if "DescribeConfigs" in lacks or (is_events and "Read" in lacks):
        return fault(area, text, remedy)
    if is_events:
        return warning(area, f"{text}, which the servers and the job need", remedy)
    return note(area, f"{text}; the job needs Write, `namesrv-stream dead-letters` needs Read", remedy)


def _topic(topic: InspectedTopic, partitions: int, brokers: int) -> Iterator[Finding]:
    area, is_fine = f"topic {topic.name}", True
    if topic.partitions != partitions:
        text = f"has {counted(topic.partitions, 'partition')}, the configuration says {partitions}"
        yield fault(area, text, "set kafka.partitions to that number; for more use `namesrv-stream repartition`")
        is_fine = False
    for name, reason in topic.faults.items():
        remedy = f"kafka-configs --alter --topic {topic.name} --add-config {name}=…; see `namesrv-stream config show`"
        yield fault(area, f"{name} {reason}", remedy)
        is_fine = False
    if topic.without_leader:
        text = f"partitions {list(topic.without_leader)} have no leader, so nothing can be logged there"
        yield fault(area, text, "start their Kafka brokers again")
        is_fine = False
    elif topic.behind:
        yield warning(area, f"replicas of partitions {list(topic.behind)} are behind", "check those Kafka brokers")
        is_fine = False
    for name, reason in topic.doubts.items():
        remedy = f"kafka-configs --alter --topic {topic.name} --add-config {name}=2"
        yield warning(area, f"{name} {reason}: acknowledged records may be lost with one Kafka broker", remedy)
        is_fine = False
    if brokers > 1 and topic.replicas < 2:
        remedy = "kafka-reassign-partitions; kafka.replication_factor applies only when a topic is created"
        yield warning(area, "has one replica: it is lost with its Kafka broker", remedy)
        is_fine = False
    if is_fine:
        partitions_text, replicas = counted(topic.partitions, "partition"), counted(topic.replicas, "replica")
        yield fine(area, f"{partitions_text}, {replicas}, settings as needed")


def kafka_clock(log: InspectedLog, now_ms: int, job: PartState) -> Iterator[Finding]:
    """Compare Kafka's clock, which stamps all records, with this machine's.

    Args:
        log: The log as it was inspected.
        now_ms: This machine's clock after the inspection, in epoch milliseconds.
        job: State of the job of this data directory. A ready job writes records all the time.
    """
    if not log.newest_ms:
        return
    ahead_ms = max(log.newest_ms.values()) - now_ms
    remedy = "run NTP on Kafka's machines and on this one; expiry does not depend on it, times shown do"
    if ahead_ms > _FRESH_MS:
        yield warning("Kafka's clock", f"is at least {_seconds(ahead_ms)} ahead of this machine's", remedy)
    elif job != "ready" or _may_not_write(log):
        reasons = {"absent": "no job runs here", "starting": "the job here is starting"}
        reason = reasons.get(job, "this user lacks Write")
        yield note("Kafka's clock", f"the newest record is {_seconds(max(0, -ahead_ms))} old; {reason}")
    elif -ahead_ms > _FRESH_MS:
        text = (
            f"the newest record is {_seconds(-ahead_ms)} old, but the job on this machine logs a tick every half second"
        )
        yield warning("Kafka's clock", f"{text}: Kafka's clock is behind, or the job is stalled", remedy)
    else:
        yield fine("Kafka's clock", f"within {_seconds(_FRESH_MS)} of this machine's")


def _may_not_write(log: InspectedLog) -> bool:
    return log.events is not None and "Write" in log.missing_rights.get(log.events.name, ())


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"
