"""One partition of the log, folded with several timeouts at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import (
    JOB,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    Proof,
)
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import LeaseKey, Registration
from namesrv_stream.route.partitioner import partition_of, routing_key
from namesrv_stream.what_if.gaps import GapWatch
from namesrv_stream.what_if.silences import Silence, SilenceTally, SilenceWatch
from namesrv_stream.what_if.timeout_run import Override, TimeoutRun


class PartitionAnalysis:
    """Takes the records of one partition, in order.

    Run 0 is the log as it was, the others are those asked for. Topics matter to no broker's life and are left out of
    registrations, so that many folds cost little more than one.

    Attributes:
        tally: What the silences came to that some run ended, and that are over.
        silences: The others.
        gaps: How long live brokers were silent.
        timeouts: Broker process to the timeout that it asks for; None for the default.
        at_ms: LogAppendTime of the first and the last record, epoch milliseconds; None without records.
        unregistered: Brokers of which no registration is known: they were left out.
    """

    def __init__(
        self,
        partition: int,
        partitions: int,
        overrides: Sequence[Override],
        settings: FoldSettings | None = None,
        elsewhere: Mapping[LeaseKey, Registration] | None = None,
        on_over: Callable[[Silence], None] = lambda silence: None,
    ) -> None:
        """Begin with no broker known: each is of age zero where it is first heard.

        Args:
            partition: Kafka partition.
            partitions: Of the topic.
            overrides: Of the runs besides the first.
            settings: As they hold where the log that is read begins.
            elsewhere: Registrations of brokers that may have registered before that.
            on_over: Told of each silence that some run ended, once it is over.
        """
        self.tally = SilenceTally()
        self.silences = SilenceWatch(self._over)
        self._on_over = on_over
        self.gaps = GapWatch()
        self.timeouts: dict[LeaseKey, int | None] = {}
        self.at_ms: tuple[int, int] | None = None
        self.unregistered: set[LeaseKey] = set()
        self.runs = [
            TimeoutRun(FoldState(partition, partitions, settings=settings or FoldSettings()), override)
            for override in (Override(), *overrides)
        ]
        self._elsewhere = elsewhere or {}
        self._registered: set[LeaseKey] = set()

    @property
    def observed_ms(self) -> int:
        """Observed time that passed."""
        return self.runs[0].state.observed_ms

    def feed(self, record: Record) -> None:
        """Fold one record in every run."""
        self.at_ms = (self.at_ms[0] if self.at_ms else record.at_ms, record.at_ms)
        events = list(_events(record))
        for event in events:
            known = self._registered_before(event)
            if known is not None:
                self._fold(record, [known])
        self._fold(record, events)
        for event in events:
            if self._is_ours(event):
                self._take(event, record.at_ms)

    def _over(self, silence: Silence) -> None:
        self.tally.add(silence)
        self._on_over(silence)

    def _fold(self, record: Record, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, BrokerRegistered):
                self._registered.add(event.lease_key)
                self.timeouts[event.lease_key] = event.registration.timeout_ms
        for number, run in enumerate(self.runs):
            for row in run.fold(record, events):
                self.silences.ended(number, row, run.state.observed_ms)

    def _registered_before(self, event: Event) -> BrokerRegistered | None:
        """The registration that a broker must have sent before the log that is read begins."""
        if not isinstance(event, BrokerHeartbeat) or event.proof is not Proof.REGISTRATION:
            return None
        key = event.lease_key
        if key in self._registered:
            return None
        self._registered.add(key)
        known = self._elsewhere.get(key)
        if known is None:
            self.unregistered.add(key)
            return None
        registration = replace(_without_topics(known), registration_hash=event.registration_hash)
        return BrokerRegistered(event.origin, registration)

    def _take(self, event: Event, at_ms: int) -> None:
        if isinstance(event, BrokerUnregistered | BrokerDisconnected):
            self.silences.left(event)
        elif isinstance(event, BrokerHeartbeat | BrokerRegistered):
            server_id = event.origin.server_id
            hearing = self.silences.heard(event.lease_key, event.origin, self.observed_ms)
            clock_ms = self.runs[0].state.servers[server_id].observed_ms
            self.gaps.heard(event.lease_key, server_id, clock_ms, at_ms, hearing)

    def _is_ours(self, event: Event) -> bool:
        """Whether the fold takes the event for one of a broker of this partition."""
        name, state = routing_key(event), self.runs[0].state
        return (
            name is not None
            and event.origin.server_id != JOB
            and partition_of(name, state.partitions) == state.partition
        )


def _events(record: Record) -> Iterator[Event]:
    """What a record says; nothing of what cannot be decoded."""
    try:
        events = decode_record(record.value)
    except EventDecodeError:
        return
    for event in events:
        if isinstance(event, BrokerRegistered):
            yield BrokerRegistered(event.origin, _without_topics(event.registration))
        elif not isinstance(event, EventDecodeError):
            yield event


def _without_topics(registration: Registration) -> Registration:
    """Without what routes are made of; one topic stays one, for that is another kind of registration."""
    topics = registration.topics if len(registration.topics) == 1 else {}
    return replace(registration, topics=topics, topic_mappings=None, filter_servers=None)
