"""The mass-expiry guard as a server has it: closes that are many at once hide no broker until the fold has decided.

Whom the guard keeps is decided in the fold (``guard.py``), so a server learns it with a commit; that may be long in
coming just when the way to the brokers breaks, for what breaks that may break the way to Kafka or to the job as well.
So a view counts the closes that it takes in, by the guard's own rule. One that makes a mass ends nothing in the view,
and brings those back that went by the closes before it; it is pending as any event is, so this holds until the commit
that covers it, and from then on what the fold says.

The view knows less than the fold: not who has fallen silent, nor the time of the log. Where it cannot know, it counts
too many: a dead broker that is shown until the next commit costs a client a retry, hidden live ones are an outage.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from namesrv_stream.route.changes import Cause
from namesrv_stream.route.events import BrokerDisconnected, BrokerUnregistered, Origin
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.mass import CloseOfMany, PendingEvent, mass_of
from namesrv_stream.route.overlay import Pending
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.settings import FoldSettings, effective_texts
from namesrv_stream.route.table import RouteTable


class _Close(NamedTuple):
    """The newest close of a broker.

    Attributes:
        observed_ms: The server's observed time then.
        kept_by: The ticket of the close by which the broker is shown all the same; None where there is none.
    """

    event: BrokerDisconnected
    observed_ms: int
    kept_by: Pending | None = None

    def is_ending(self, group: BrokerGroup) -> bool:
        """Whether the broker is gone by it, or kept in spite of it, and has not been heard over another connection."""
        origin = self.event.origin
        live = group.lives.get(self.event.live_key)
        holder = live.holders.get(origin.server_id) if live else None
        return holder == (origin.holder if self.kept_by else None)


@dataclass(slots=True)
class _Count:
    """What was counted last, and the closes since: from these, bounds of what would be counted now.

    Attributes:
        heard: What ``CloseGuard.heard`` was then; each event since may have ended one hold, or brought one broker.
        is_mass: Of the last close.
    """

    ending: int
    brokers: int
    heard: int
    is_mass: bool


class _Scope(NamedTuple):
    """Closes of one scope count together."""

    server_id: str
    cluster: str
    partition: int


class CloseGuard:
    """Knows the closes of the last moments, and those that a view does not follow.

    A mass is not counted anew with each of its closes, so that it takes time in proportion to its brokers.

    Args:
        partitions: Of the topic.
        committed_group: A group of the view as the committed rows have it.

    Attributes:
        heard: How many events of brokers the view took in, other than their ends.
    """

    def __init__(self, partitions: int, committed_group: Callable[[str], BrokerGroup]) -> None:
        self.heard = 0
        self._partitions = partitions
        self._committed_group = committed_group
        self._closes: dict[LeaseKey, _Close] = {}
        self._counts: dict[_Scope, _Count] = {}
        self._settings: dict[int, tuple[Mapping[tuple[str, str], str], FoldSettings]] = {}
        self._tidied_ms = 0

    def judge(
        self, event: BrokerDisconnected | BrokerUnregistered, pending: Pending, table: RouteTable, observed_ms: int
    ) -> PendingEvent:
        """Take in the end of a broker; returns what it means: the event itself where it is to take effect at once.

        Args:
            event: A close; or a goodbye, which is never guarded, and after which an earlier close means nothing.
            pending: Its ticket.
            table: What is shown.
            observed_ms: For how long the server could listen.
        """
        key, origin = LeaseKey(event.broker_name, event.live_key), event.origin
        if isinstance(event, BrokerUnregistered):
            self._counts.clear()
            self._closes.pop(key, None)
            return event
        live = table.group(key.broker_name).lives.get(key.live_key)
        if live is None or live.holders.get(origin.server_id) != origin.holder:
            return event  # The connection was superseded: its close ends nothing.
        if self._is_closed(key, origin, table):
            return CloseOfMany(event)  # The same close once more.
        scope = self._scope_of(key, event)
        settings = self._settings_of(scope.partition, table)
        # The log has a record up to max_gap_ms after it was accepted here, or this server is blind.
        self._forget_old(observed_ms, settings.guard_close_window_ms + settings.max_gap_ms)
        self._closes[key] = _Close(event, observed_ms)
        if not settings.is_guarded(scope.cluster):
            return event
        was_mass, is_mass = self._is_mass(key, scope, settings, table)
        if not is_mass:
            return event
        undone = [] if was_mass else [k for k in self._closed(scope, table) if self._closes[k].kept_by is None]
        for k in (*undone, key):
            self._closes[k] = self._closes[k]._replace(kept_by=pending)
        return CloseOfMany(event, tuple(self._closes[k].event for k in _masters_first(undone, table)))

    def drop(self, pending: Pending, event: CloseOfMany) -> Pending | None:
        """A close that is one of many will never be in the log.

        Args:
            pending: Its ticket.
            event: What that says.

        Returns:
            The ticket of a later close of the same mass, which undoes from now on what this one did, too; None where
            there is none.
        """
        self._counts.clear()
        key = LeaseKey(event.close.broker_name, event.close.live_key)
        scope = self._scope_of(key, event.close)
        heir: Pending | None = None
        for k, close in reversed(self._closes.items()):
            if close.kept_by is not None and close.kept_by is not pending and self._scope_of(k, close.event) == scope:
                heir = close.kept_by
                break
        for k in [k for k, close in self._closes.items() if close.kept_by is pending]:
            if heir is None or k == key:
                del self._closes[k]
            else:
                self._closes[k] = self._closes[k]._replace(kept_by=heir)
        if heir is not None and isinstance(heir.event, CloseOfMany):
            heir.event = CloseOfMany(heir.event.close, event.undone + heir.event.undone)
        return heir

    def settle(self, next_offsets: Mapping[int, int], table: RouteTable) -> None:
        """The fold has decided what a commit covers: it holds a broker, or this is a close as any other."""
        self._counts.clear()
        for key, close in list(self._closes.items()):
            if close.kept_by is not None and close.kept_by.is_covered(next_offsets):
                if key in table.held:
                    del self._closes[key]
                else:
                    self._closes[key] = close._replace(kept_by=None)

    def _forget_old(self, observed_ms: int, window_ms: int) -> None:
        if self._tidied_ms == observed_ms:
            return
        self._tidied_ms = observed_ms
        for key, close in list(self._closes.items()):
            if close.kept_by is None and observed_ms - close.observed_ms > window_ms:
                del self._closes[key]
                self._counts.clear()

    def _is_mass(self, key: LeaseKey, scope: _Scope, settings: FoldSettings, table: RouteTable) -> tuple[bool, bool]:
        """Whether the close before this one was of a mass, so that all are kept already; and whether this one is."""
        count = self._counts.get(scope)
        was_mass = count is not None and count.is_mass
        if count is not None:
            count.ending += key not in table.held or self._was_heard(key, table)
            others = self.heard - count.heard
            most = mass_of(settings, self._partitions, count.ending, count.brokers)
            least = mass_of(settings, self._partitions, count.ending - others, count.brokers + others)
            if most is None or least is not None:
                count.is_mass = most is not None
                return was_mass, count.is_mass
        closed = {*self._closed(scope, table), key}
        held = {
            k
            for k in table.held
            if k.live_key.cluster == scope.cluster
            and partition_of(k.broker_name, self._partitions) == scope.partition
            and not self._was_heard(k, table)
        }
        count = self._counts[scope] = _Count(len(closed | held), len(closed), self.heard, is_mass=False)
        for name, group in table.groups.items():
            if partition_of(name, self._partitions) == scope.partition:
                live = (k for k in group.lives if k.cluster == scope.cluster)
                count.brokers += sum(LeaseKey(name, k) not in closed for k in live)
        count.is_mass = mass_of(settings, self._partitions, count.ending, count.brokers) is not None
        return was_mass, count.is_mass

    def _closed(self, scope: _Scope, table: RouteTable) -> list[LeaseKey]:
        """The brokers that are gone, or kept, by the closes of a scope."""
        return [
            k
            for k, close in self._closes.items()
            if self._scope_of(k, close.event) == scope and close.is_ending(table.group(k.broker_name))
        ]

    def _is_closed(self, key: LeaseKey, origin: Origin, table: RouteTable) -> bool:
        """Whether the broker is kept, or held, in spite of this very close."""
        close, hold = self._closes.get(key), table.held.get(key)
        if close is not None and close.kept_by is not None and close.event.origin == origin:
            return True
        is_of_close = hold is not None and (hold.goes_with, hold.server_id) == (Cause.DISCONNECTED, origin.server_id)
        return is_of_close and not self._was_heard(key, table)

    def _scope_of(self, key: LeaseKey, close: BrokerDisconnected) -> _Scope:
        partition = partition_of(key.broker_name, self._partitions)
        return _Scope(close.origin.server_id, key.live_key.cluster, partition)

    def _settings_of(self, partition: int, table: RouteTable) -> FoldSettings:
        """Read once; the table puts another mapping in the place of one that changes."""
        values = table.settings_of(partition)
        if partition not in self._settings or self._settings[partition][0] is not values:
            self._settings[partition] = (values, FoldSettings().with_texts(effective_texts(values)))
        return self._settings[partition][1]

    def _was_heard(self, key: LeaseKey, table: RouteTable) -> bool:
        """Whether a broker came over another connection than the committed rows know, or went since."""
        committed = self._committed_group(key.broker_name).lives.get(key.live_key)
        live = table.group(key.broker_name).lives.get(key.live_key)
        return live is None or committed is None or live.holders != committed.holders


def _masters_first(keys: list[LeaseKey], table: RouteTable) -> list[LeaseKey]:
    """By broker name, then as their topics are to be theirs."""

    def order(key: LeaseKey) -> tuple[str, int, LeaseKey]:
        registration = table.group(key.broker_name).registrations.get(key.live_key)
        return key.broker_name, registration.broker_id if registration else 0, key

    return sorted(keys, key=order)
