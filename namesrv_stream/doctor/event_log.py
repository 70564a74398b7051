"""The log: Kafka's answer, the topics' settings, replicas, dead letters, Kafka's clock."""

from collections.abc import Iterator
from typing import Final

from namesrv_stream.doctor.finding import Finding, fault, fine, note, warning
from namesrv_stream.kafka.inspection import InspectedLog, InspectedTopic
from namesrv_stream.plurals import counted
from namesrv_stream.settings import Settings

_AREA: Final = "Kafka"
#: A job's tick is logged each half second: with one running, the newest record is no older than this.
_FRESH_MS: Final = 5_000


def event_log(settings: Settings, log: InspectedLog) -> Iterator[Finding]:
    """What of Kafka the product relies on."""
    brokers = counted(log.brokers, "broker")
    yield fine(_AREA, f"{log.servers} answers, {brokers}")
    kafka = settings.kafka
    for topic, name, partitions in (
        (log.events, kafka.broker_events_topic, kafka.partitions),
        (log.dead_letters, kafka.dead_letter_topic, 1),
    ):
        if topic is None:
            yield note(f"topic {name}", "is not there yet: the first part of ours that starts makes it")
        else:
            yield from _topic(topic, partitions, log.brokers)
    if log.dead_letters_held:
        text = f"the job refused {counted(log.dead_letters_held, 'record')}"
        yield warning("dead letters", text, "`namesrv-stream dead-letters` lists them with the reasons")


def _topic(topic: InspectedTopic, partitions: int, brokers: int) -> Iterator[Finding]:
    area, is_fine = f"topic {topic.name}", True
    if topic.partitions != partitions:
        text = f"has {counted(topic.partitions, 'partition')}, the configuration says {partitions}"
        yield fault(area, text, "set kafka.partitions to what the topic has; more: `namesrv-stream repartition`")
        is_fine = False
    for name, reason in topic.faults.items():
        remedy = (
            f"kafka-configs --alter --topic {topic.name} --add-config {name}=…; `namesrv-stream config show` has ours"
        )
        yield fault(area, f"{name} {reason}", remedy)
        is_fine = False
    if topic.without_leader:
        text = f"partitions {list(topic.without_leader)} have no leader: nothing is logged there"
        yield fault(area, text, "bring their Kafka brokers back")
        is_fine = False
    elif topic.behind:
        yield warning(area, f"replicas of partitions {list(topic.behind)} are behind", "look at those Kafka brokers")
        is_fine = False
    for name, reason in topic.doubts.items():
        remedy = f"kafka-configs --alter --topic {topic.name} --add-config {name}=2"
        yield warning(area, f"{name} {reason}: acknowledged records may be lost with one Kafka broker", remedy)
        is_fine = False
    if brokers > 1 and topic.replicas < 2:
        remedy = "kafka-reassign-partitions; kafka.replication_factor counts only when we make a topic"
        yield warning(area, "has one replica: it is gone with its Kafka broker", remedy)
        is_fine = False
    if is_fine:
        partitions_text, replicas = counted(topic.partitions, "partition"), counted(topic.replicas, "replica")
        yield fine(area, f"{partitions_text}, {replicas}, settings as needed")


def kafka_clock(log: InspectedLog, now_ms: int, is_job_running: bool) -> Iterator[Finding]:
    """Kafka's clock, which stamps all records, against this machine's; silent where nothing can be said.

    Args:
        log: As inspected.
        now_ms: This machine's clock after that, epoch milliseconds.
        is_job_running: So that a fresh record is to be expected.
    """
    if not log.newest_ms:
        return
    ahead_ms = max(log.newest_ms.values()) - now_ms
    remedy = "run NTP on Kafka's machines and on this one; expiry does not depend on it, times shown do"
    if ahead_ms > _FRESH_MS:
        yield warning("Kafka's clock", f"is {_seconds(ahead_ms)} ahead of this machine's at least", remedy)
    elif not is_job_running:
        yield note("Kafka's clock", f"the newest record is {_seconds(max(0, -ahead_ms))} old, no job runs here")
    elif -ahead_ms > _FRESH_MS:
        text = f"the newest record is {_seconds(-ahead_ms)} old, though the job here logs a tick each half second"
        yield warning("Kafka's clock", f"{text}: it is behind, or the job stands still", remedy)
    else:
        yield fine("Kafka's clock", f"within {_seconds(_FRESH_MS)} of this machine's")


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"
