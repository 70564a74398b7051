"""The log with all taken out that cannot matter to liveness, so that folding it many times is cheap.

Clocks move as before: what is taken out leaves an event of the same server that does nothing without topics. A broker
whose registration is older than the part of the log that is read is registered with what is known of it elsewhere, just
before it is first heard.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import (
    BrokerHeartbeat,
    BrokerRegistered,
    Event,
    KvDeleted,
    KvPut,
    Proof,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.fold import Record
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.model import Registration


class ThinRecord(NamedTuple):
    """A record to fold.

    Attributes:
        record: Where and when it was logged; its value is not looked at.
        events: What of it is folded: without items that cannot be decoded, and of poison nothing.
        is_stand_in: It is not in the log: a registration from before the part of the log that is read.
    """

    record: Record
    events: Sequence[Event]
    is_stand_in: bool = False


class ThinLog:
    """Thins the records of one partition, in their order.

    Attributes:
        unregistered: Brokers that were heard and never registered, here or elsewhere.
    """

    def __init__(self, elsewhere: Mapping[LeaseKey, Registration]) -> None:
        """Begin.

        Args:
            elsewhere: What is known of brokers without this part of the log.
        """
        self.unregistered: set[LeaseKey] = set()
        self._elsewhere = elsewhere
        self._registered: set[LeaseKey] = set()

    def thinned(self, record: Record) -> Iterator[ThinRecord]:
        """What to fold instead; all at the same offset, which the caller counts anew."""
        try:
            events = [e for e in decode_record(record.value) if not isinstance(e, EventDecodeError)]
        except EventDecodeError:
            events = []
        for event in events:
            if isinstance(event, BrokerHeartbeat) and (registered := self._first_heard(event)) is not None:
                yield ThinRecord(record, [registered], is_stand_in=True)
        if not events or isinstance(events[0], BrokerHeartbeat):
            yield ThinRecord(record, events)
            return
        only = _thin(events[0])
        if isinstance(only, BrokerRegistered):
            self._registered.add(LeaseKey(only.registration.broker_name, only.registration.live_key))
        yield ThinRecord(record, [only])

    def _first_heard(self, event: BrokerHeartbeat) -> BrokerRegistered | None:
        """The registration that a broker must have sent before the log that is read begins."""
        key = LeaseKey(event.broker_name, event.live_key)
        if key in self._registered or event.proof is not Proof.REGISTRATION:
            return None
        self._registered.add(key)
        known = self._elsewhere.get(key)
        if known is None:
            self.unregistered.add(key)
            return None
        registration = replace(_without_topics(known), registration_hash=event.registration_hash)
        return BrokerRegistered(event.origin, registration)


def _thin(event: Event) -> Event:
    if isinstance(event, BrokerRegistered):
        return BrokerRegistered(event.origin, _without_topics(event.registration))
    if isinstance(event, TopicRegistered):
        return WritePermChanged(event.origin, event.broker_name, writable=True)
    return KvDeleted(event.origin, event.namespace, event.key) if isinstance(event, KvPut) else event


def _without_topics(registration: Registration) -> Registration:
    """Without what routes are made of; one topic stays one, for that is another kind of registration."""
    topics = registration.topics if len(registration.topics) == 1 else {}
    return replace(registration, topics=topics, topic_mappings=None, filter_servers=None)
