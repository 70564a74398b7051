"""One fold of the log with a timeout of our choice."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.events import Event, SettingsChanged
from namesrv_stream.route.fold.fold_record import fold_events
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.fold.step import FoldOutput, GroupDict, Record
from namesrv_stream.route.liveness_settings import FoldSettings

_GUARD_OFF: Final = 100  # percent
_OVERRIDDEN: Final = (
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
    """The fold of one partition under an override, from nothing on.

    Args:
        state: The fold's state where the log that is read begins, without brokers.
        override: What shall differ.
    """

    def __init__(self, state: FoldState, override: Override) -> None:
        self.override = override
        self.groups = GroupDict()
        self._settings = state.settings
        self.state = replace(state, settings=override.apply(state.settings))

    def fold(self, record: Record, events: Sequence[Event]) -> list[RouteChange]:
        """Fold what a record says; returns the rows that say that a broker process is gone."""
        output = FoldOutput()
        if self.override.timeout_ms is not None:
            events = [self._overridden(e) if isinstance(e, SettingsChanged) else e for e in events]
        fold_events(self.state, self.groups, record, events, output)
        return [row for row in output.changes if row.gone and row.kind == ChangeKind.BROKER_LIVE]

    def _overridden(self, event: SettingsChanged) -> SettingsChanged:
        """The change such that the override still holds after it."""
        try:
            self._settings = self._settings.with_values(dict(event.values))
        except ValueError:
            return event  # the fold refuses it whole
        wanted = self.override.apply(self._settings)
        values = dict(event.values) | {name: getattr(wanted, name) for name in _OVERRIDDEN}
        return replace(event, values=tuple(sorted(values.items())))
