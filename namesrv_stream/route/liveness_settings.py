"""The settings that the fold depends on, and the history of their changes.

The fold receives its settings only as ``settings_changed`` events. A row of kind ``setting`` records who changed which
setting, from which value to which. A change has one such row in each partition, because partitions are folded
separately.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import orjson

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.model import RegistrationSettings

SettingValue = int | bool | tuple[str, ...]

#: Namespace of the values in effect. The values of the configuration file are in the namespace "config".
EFFECTIVE: Final = "effective"

#: The longest duration: a hundred years.
_MAX_MS: Final = 100 * 366 * 86_400_000
#: The highest values of settings other than durations.
_MAX: Final = {"guard_share_percent": 100, "guard_min_brokers": 1_000_000, "guard_hold_timeouts": 1_000}


@dataclass(frozen=True, slots=True)
class FoldSettings:
    """The fold's settings. Durations are in milliseconds of observed time unless stated otherwise.

    Attributes:
        default_timeout_ms: Timeout of brokers that request none. Source: rocketmq 5.3.3, RouteInfoManager
            DEFAULT_BROKER_CHANNEL_EXPIRED_TIME.
        min_timeout_ms: Lower limit of the timeout that a broker requests.
        max_timeout_ms: Upper limit of the timeout that a broker requests.
        max_gap_ms: The most by which one record advances a server's clock; longer than several intervals between ticks.
        server_silent_ms: A server is silent if it has written no record for this long while others have.
        server_lost_ms: A silent server is lost if it has written no record for this long. Its shares in leases end.
        registration_retention_ms: How long the last registration of a removed broker is kept, in log time.
        delete_topic_with_broker_registration: RocketMQ's setting of that name: whether a registration removes topics
            that it does not contain.
        take_over_contradictions: Whether a registration with an unchanged DataVersion changes topics whose content
            differs; otherwise, as in Java, existing topics stay as they are.
        guard_share_percent: If more than this share of a cluster's brokers seems to fail at once, the guard holds them;
            100 turns the guard off.
        guard_min_brokers: The guard acts only if at least this many brokers seem to fail at once, over all partitions.
        guard_hold_timeouts: For how many further timeouts the guard holds a broker.
        guard_known_ms: The guard counts a broker that has been live for this long, in log time, without interruption.
        guard_close_window_ms: Connections that one server sees closed within this time count as closed simultaneously.
        guard_off_clusters: Clusters without the guard.
    """

    default_timeout_ms: int = 120_000
    min_timeout_ms: int = 1_000
    max_timeout_ms: int = 3_600_000
    max_gap_ms: int = 2_000
    server_silent_ms: int = 15_000
    server_lost_ms: int = 600_000
    registration_retention_ms: int = 86_400_000
    delete_topic_with_broker_registration: bool = False
    take_over_contradictions: bool = False
    guard_share_percent: int = 50
    guard_min_brokers: int = 5
    guard_hold_timeouts: int = 2
    guard_known_ms: int = 600_000
    guard_close_window_ms: int = 2_000
    guard_off_clusters: tuple[str, ...] = ()

    def effective_timeout_ms(self, requested_ms: int | None) -> int:
        """Return the timeout of a broker that requested ``requested_ms``, in milliseconds."""
        wanted = self.default_timeout_ms if requested_ms is None else requested_ms
        return max(self.min_timeout_ms, min(wanted, self.max_timeout_ms))

    @property
    def of_registrations(self) -> RegistrationSettings:
        """The settings on which the effect of a registration depends."""
        return RegistrationSettings(self.delete_topic_with_broker_registration, self.take_over_contradictions)

    def is_guarded(self, cluster: str) -> bool:
        """Whether the mass-expiry guard is on for a cluster."""
        return self.guard_share_percent < 100 and cluster not in self.guard_off_clusters

    def guard_min_brokers_of(self, partitions: int) -> int:
        """Return how many brokers of one of ``partitions`` partitions must seem to fail before the guard acts."""
        return max(2, math.ceil(self.guard_min_brokers / partitions))

    def with_values(self, values: Mapping[str, SettingValue]) -> "FoldSettings":
        """Return these settings with some replaced. Unknown names belong to newer versions and are ignored.

        Raises:
            ValueError: A value is of the wrong type or out of range; the text names it.
        """
        kinds = {f.name: type(f.default) for f in fields(self)}
        known: dict[str, Any] = {k: v for k, v in values.items() if k in kinds}
        for name, value in known.items():
            if type(value) is not kinds[name]:
                raise ValueError(f"{name}: {value!r} is of the wrong type")
            # Zero would be an outage in the others: a clock that never advances, or a server that is silent at once.
            least, limit = int(name != "guard_known_ms"), _MAX.get(name, _MAX_MS)
            if type(value) is int and not least <= value <= limit:
                raise ValueError(f"{name}: {value} is not between {least} and {limit}")
        return replace(self, **known)

    def with_texts(self, texts: Mapping[str, str]) -> "FoldSettings":
        """Return these settings as ``with_values`` does, given JSON texts as in rows of kind ``setting``."""
        return self.with_values({name: setting_value(text) for name, text in texts.items()})


def setting_text(value: SettingValue) -> str:
    """Return a value as JSON, as rows of kind ``setting`` contain it."""
    return orjson.dumps(value).decode()


def setting_value(text: str) -> SettingValue:
    """Inverse of ``setting_text``."""
    value: Any = orjson.loads(text)
    return tuple(value) if isinstance(value, list) else value


def settings_of_registrations(values: Mapping[tuple[str, str], str]) -> RegistrationSettings:
    """Return the settings on which the effect of a registration depends, given (namespace, name) → JSON text."""
    names = ("delete_topic_with_broker_registration", "take_over_contradictions")
    return RegistrationSettings(*(values.get((EFFECTIVE, name)) == "true" for name in names))


def fold_settings_of(values: Mapping[tuple[str, str], str]) -> FoldSettings:
    """Return the settings in effect, given (namespace, name) → JSON text."""
    return FoldSettings().with_texts(effective_texts(values))


def effective_texts(values: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Return name → JSON text of the values in effect, given (namespace, name) → JSON text."""
    return {name: text for (namespace, name), text in values.items() if namespace == EFFECTIVE}


_BY = "by "
_WAS = ", was "
#: The records of one change reach all partitions within this time, or the command that sends them has failed.
_APART_MS = 60_000


def change_detail(source: str, old: str | None) -> str:
    """Return the ``detail`` of a row of kind ``setting``.

    Args:
        source: Who changed the setting.
        old: JSON text of the value before; None if there was none.
    """
    return f"{_BY}{source}" if old is None else f"{_BY}{source}{_WAS}{old}"


def read_detail(detail: str) -> tuple[str, str | None]:
    """Return source and old value from a ``detail``. Older versions did not record the old value: it is None then."""
    text = detail.removeprefix(_BY)
    parts = text.split(_WAS, 8)  # the source can contain the separator, and so can a list of clusters
    for count in range(1, len(parts)):
        old = _WAS.join(parts[count:])
        if _is_json(old):
            return _WAS.join(parts[:count]), old
    return text, None


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One change of a setting.

    Attributes:
        at_ms: LogAppendTime of the event, epoch milliseconds; the earliest of its partitions.
        name: Name of a field of ``FoldSettings``.
        old: JSON text of the value before; None if it is not known.
        new: JSON text of the new value.
        source: ``config`` for an edited configuration file, otherwise who changed it.
        partitions: Partition → offset of the event's record, for the partitions that have folded it.
    """

    at_ms: int
    name: str
    old: str | None
    new: str
    source: str
    partitions: Mapping[int, int]


def setting_changes(rows: Iterable[RouteChange]) -> list[SettingChange]:
    """Return the changes of effective values, oldest first. Rows of one change in several partitions are merged.

    Args:
        rows: Rows of ``route_changes`` of any kind, in log order of each partition.
    """
    found: list[SettingChange] = []
    latest: dict[tuple[str, str, str], int] = {}
    effective = (r for r in rows if r.kind == ChangeKind.SETTING and r.namespace == EFFECTIVE)
    for row in sorted(effective, key=lambda row: (row.at_ms, row.partition, row.offset, row.seq)):
        source, old = read_detail(row.detail or "")
        name, new = row.key or "", row.value or ""
        index = latest.get((name, source, new))
        known = None if index is None else found[index]
        if known is None or row.partition in known.partitions or row.at_ms - known.at_ms > _APART_MS:
            latest[name, source, new] = len(found)
            found.append(SettingChange(row.at_ms, name, old, new, source, {row.partition: row.offset}))
        elif index is not None:
            found[index] = replace(known, partitions={**known.partitions, row.partition: row.offset})
    return found


def values_before(rows: Iterable[RouteChange], partition: int, offset: int) -> dict[str, str]:
    """Return name → JSON text of the values in effect just before a record, as far as they are known.

    Args:
        rows: Rows of ``route_changes`` of any kind, in log order of each partition.
        partition: Kafka partition of the record.
        offset: Offset of the record.
    """
    values: dict[str, str] = {}
    for row in rows:
        if row.kind != ChangeKind.SETTING or row.namespace != EFFECTIVE or row.partition != partition:
            continue
        name = row.key or ""
        if row.offset < offset:
            values[name] = row.value or ""
        elif name not in values:
            _, old = read_detail(row.detail or "")
            if old is not None:
                values[name] = old
    return values
