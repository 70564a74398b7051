"""One fold of the log with a timeout of our choice."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.events import Event, SettingsChanged
from namesrv_stream.route.fold import FoldOutput, GroupDict, Record, fold_events
from namesrv_stream.route.fold_state import FoldState
from namesrv_stream.route.settings import FoldSettings

_GUARD_OFF = 100  # percent
_REGISTRATIONS_KEPT_MS = FoldSettings().registration_retention_ms
_OVERRIDDEN = (
    *("default_timeout_ms", "min_timeout_ms", "max_timeout_ms"),
    *("guard_share_percent", "registration_retention_ms"),
)


@dataclass(frozen=True, slots=True)
class Override:
    """What differs from the settings that the log says.

    Attributes:
        timeout_ms: The default timeout; None for the log's own.
        of_every_broker: Whether it also goes for brokers that ask for a timeout of their own.
    """

    timeout_ms: int | None = None
    of_every_broker: bool = False

    def apply(self, settings: FoldSettings) -> FoldSettings:
        """The settings to fold with.

        The guard is off: it would hide what the timeout alone does. Registrations are kept: a broker that a run lets
        go must be able to return, or it could go but once.
        """
        if self.timeout_ms is None:
            return settings
        settings = replace(
            settings,
            default_timeout_ms=self.timeout_ms,
            guard_share_percent=_GUARD_OFF,
            registration_retention_ms=max(settings.registration_retention_ms, _REGISTRATIONS_KEPT_MS),
        )
        if self.of_every_broker:
            return replace(settings, min_timeout_ms=self.timeout_ms, max_timeout_ms=self.timeout_ms)
        return replace(
            settings,
            min_timeout_ms=min(settings.min_timeout_ms, self.timeout_ms),
            max_timeout_ms=max(settings.max_timeout_ms, self.timeout_ms),
        )


class TimeoutRun:
    """The fold of one partition under an override."""

    def __init__(self, partition: int, partitions: int, settings: FoldSettings, override: Override) -> None:
        """Begin with nothing known.

        Args:
            partition: Kafka partition.
            partitions: Of the topic.
            settings: As they hold where the log that is read begins.
            override: What shall differ.
        """
        self.override = override
        self._settings = settings
        self.groups = GroupDict()
        self._output = FoldOutput()
        self.state = FoldState(partition, partitions, settings=override.apply(settings))

    def fold(self, record: Record, events: Sequence[Event]) -> list[RouteChange]:
        """Fold what one record of the thin log says; returns the rows that say that a broker process is gone."""
        if self.override.timeout_ms is not None and events and isinstance(events[0], SettingsChanged):
            events = [self._overridden(events[0])]
        fold_events(self.state, self.groups, record, events, self._output)
        gone = [row for row in self._output.changes if row.gone and row.kind == ChangeKind.BROKER_LIVE]
        self._output.changes.clear()
        self._output.dead_letters.clear()
        return gone

    def _overridden(self, event: SettingsChanged) -> SettingsChanged:
        """The change such that the override still holds after it."""
        try:
            self._settings = self._settings.with_values(dict(event.values))
        except ValueError:
            return event  # the fold refuses it whole
        wanted, values = self.override.apply(self._settings), dict(event.values)
        values |= {name: getattr(wanted, name) for name in _OVERRIDDEN}
        return replace(event, values=tuple(sorted(values.items())))
