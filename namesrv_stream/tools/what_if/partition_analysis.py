"""One partition of the log, folded with several timeouts at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import (
    JOB,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    Proof,
    SettingsChanged,
    partition_of,
    routing_key,
)
from namesrv_stream.route.fold.fold_record import fold_events
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.fold.step import FoldOutput, GroupDict, Record
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import LeaseKey, Registration
from namesrv_stream.tools.what_if.gaps import GapWatch
from namesrv_stream.tools.what_if.silences import Silence, SilenceTally, SilenceWatch

_GUARD_OFF: Final = 100  # percent
_OVERRIDDEN: Final = (
    *("default_timeout_ms", "min_timeout_ms", "max_timeout_ms"),
    *("guard_share_percent", "registration_retention_ms"),
)


@dataclass(frozen=True, slots=True)
class Override:
    """A timeout to try, instead of the one in the settings of the log.

    Attributes:
        timeout_ms: The default timeout; None for the log's own.
        of_every_broker: Whether the timeout also applies to brokers that request a timeout of their own.
    """

    timeout_ms: int | None = None
    of_every_broker: bool = False

    def apply(self, settings: FoldSettings) -> FoldSettings:
        """Return the settings to fold with: the log's own if there is no timeout.

        With a timeout, the guard is off, because it would hide the effect of the timeout. Registrations are then kept
        for at least a day: a broker that expires in a run must be able to return, or it could expire only once.
        """
        timeout_ms, kept_ms = self.timeout_ms, FoldSettings().registration_retention_ms
        if timeout_ms is None:
            return settings
        return replace(
            settings,
            default_timeout_ms=timeout_ms,
            min_timeout_ms=timeout_ms if self.of_every_broker else min(settings.min_timeout_ms, timeout_ms),
            max_timeout_ms=timeout_ms if self.of_every_broker else max(settings.max_timeout_ms, timeout_ms),
            guard_share_percent=_GUARD_OFF,
            registration_retention_ms=max(settings.registration_retention_ms, kept_ms),
        )


class TimeoutRun:
    """The fold of one partition with an override; it starts without brokers.

    Args:
        state: State of the fold at the start of the analysed log, without brokers.
        override: The timeout to try.
    """

    def __init__(self, state: FoldState, override: Override) -> None:
        self.override = override
        self.groups = GroupDict()
        self._settings = state.settings
        self.state = replace(state, settings=override.apply(state.settings))

    def fold(self, record: Record, events: Sequence[Event]) -> list[RouteChange]:
        """Fold the events of a record; returns the rows about ends of broker processes."""
        output = FoldOutput()
        if self.override.timeout_ms is not None:
            events = [self._overridden(e) if isinstance(e, SettingsChanged) else e for e in events]
        fold_events(self.state, self.groups, record, events, output)
        return [row for row in output.changes if row.gone and row.kind == ChangeKind.BROKER_LIVE]

    def _overridden(self, event: SettingsChanged) -> SettingsChanged:
        """Return a change of settings, adapted so that the override stays in force."""
        try:
            self._settings = self._settings.with_values(dict(event.values))
        except ValueError:
            return event  # the fold refuses all of it
        wanted = self.override.apply(self._settings)
        values = dict(event.values) | {name: getattr(wanted, name) for name in _OVERRIDDEN}
        return replace(event, values=tuple(sorted(values.items())))


class PartitionAnalysis:
    """Folds the records of one partition, in order, once per timeout.

    Run 0 is the recorded log, the others have the requested timeouts. Topics do not influence the life of a broker and
    are removed from registrations, so that many folds cost little more than one.

    Attributes:
        tally: Results of those silences that are over and during which some run ended the broker.
        silences: Follows the silences; its ``open`` are those that are not over.
        gaps: Lengths of the silences of live brokers.
        timeouts: Broker process → the timeout that it requests; None for the default.
        at_ms: LogAppendTime of the first and the last record, in epoch milliseconds; None without records.
        unregistered: Brokers without a known registration, which are left out.
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
        """Begin without brokers; a broker has age zero at its first heartbeat.

        Args:
            overrides: The overrides of the runs after the first.
            settings: The settings in force at the start of the analysed log.
            elsewhere: Registrations from the tables, for brokers that registered before the analysed log.
            on_over: Called with every silence during which some run ended the broker, once the silence is over.
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
        """The observed time since the first record."""
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
            if self._is_of_partition(event):
                self._add_event(event, record.at_ms)

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
        """Return the registration that the sender of a heartbeat sent before the analysed log, if needed and known."""
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

    def _add_event(self, event: Event, at_ms: int) -> None:
        if isinstance(event, BrokerUnregistered | BrokerDisconnected):
            self.silences.left(event)
        elif isinstance(event, BrokerHeartbeat | BrokerRegistered):
            server_id = event.origin.server_id
            heartbeat = self.silences.seen(event.lease_key, event.origin, self.observed_ms)
            clock_ms = self.runs[0].state.servers[server_id].observed_ms
            self.gaps.seen(event.lease_key, server_id, clock_ms, at_ms, heartbeat)

    def _is_of_partition(self, event: Event) -> bool:
        """Whether the fold accepts the event as one of a broker of this partition."""
        name, state = routing_key(event), self.runs[0].state
        return (
            name is not None
            and event.origin.server_id != JOB
            and partition_of(name, state.partitions) == state.partition
        )


def _events(record: Record) -> Iterator[Event]:
    """Yield the events of a record, without topics and without events that cannot be decoded."""
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
    """Return the registration without topics; a single one stays: such a registration is of another kind."""
    topics = registration.topics if len(registration.topics) == 1 else {}
    return replace(registration, topics=topics, topic_mappings=None, filter_servers=None)
