"""The settings that the fold's outcome depends on. They reach it only as ``settings_changed`` events."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import orjson

SettingValue = int | bool | tuple[str, ...]

#: Namespace of the values that hold; what only the configuration said is in another.
EFFECTIVE: Final = "effective"

#: A hundred years.
_MOST_MS: Final = 100 * 366 * 86_400_000
#: Highest values of what is no duration in ms.
_MOST: Final = {"guard_share_percent": 100, "guard_min_brokers": 1_000_000, "guard_hold_timeouts": 1_000}


@dataclass(frozen=True, slots=True)
class FoldSettings:
    """Durations in milliseconds of observed time.

    Attributes:
        default_timeout_ms: For brokers that ask for none. Source: rocketmq 5.3.3, RouteInfoManager
            DEFAULT_BROKER_CHANNEL_EXPIRED_TIME.
        min_timeout_ms: Floor for what a broker asks.
        max_timeout_ms: Ceiling for what a broker asks.
        max_gap_ms: Most that one record moves a server's clock: a few ticks.
        server_silent_ms: A server from which nothing came for so long cannot vouch for a broker.
        server_lost_ms: A broker heard only by a silent server goes after this.
        registration_retention_ms: How long a gone broker's last registration is kept, log time.
        delete_topic_with_broker_registration: RocketMQ's setting of that name.
        guard_share_percent: Where more of a cluster's brokers than this seem to end at once, they are kept a while;
            100 switches the guard off.
        guard_min_brokers: That many must seem to end at once, over all partitions.
        guard_hold_timeouts: For so many more timeouts they are kept.
        guard_close_window_ms: Connections closed at one server within this, observed time, were closed at once.
        guard_off_clusters: Clusters that the guard leaves alone.
    """

    default_timeout_ms: int = 120_000
    min_timeout_ms: int = 1_000
    max_timeout_ms: int = 3_600_000
    max_gap_ms: int = 2_000
    server_silent_ms: int = 15_000
    server_lost_ms: int = 600_000
    registration_retention_ms: int = 86_400_000
    delete_topic_with_broker_registration: bool = False
    guard_share_percent: int = 50
    guard_min_brokers: int = 5
    guard_hold_timeouts: int = 2
    guard_close_window_ms: int = 2_000
    guard_off_clusters: tuple[str, ...] = ()

    def effective_timeout_ms(self, asked_ms: int | None) -> int:
        """The timeout of a broker that asked for ``asked_ms``."""
        wanted = self.default_timeout_ms if asked_ms is None else asked_ms
        return max(self.min_timeout_ms, min(wanted, self.max_timeout_ms))

    def is_guarded(self, cluster: str) -> bool:
        """Whether the mass-expiry guard watches over a cluster."""
        return self.guard_share_percent < 100 and cluster not in self.guard_off_clusters

    def guard_min_brokers_of(self, partitions: int) -> int:
        """How many brokers must seem to end at once within one of so many partitions."""
        return max(2, math.ceil(self.guard_min_brokers / partitions))

    def with_values(self, values: Mapping[str, SettingValue]) -> "FoldSettings":
        """These settings with some replaced; unknown names are for newer folds and ignored.

        Raises:
            ValueError: A value is of the wrong type or out of range; the text names it.
        """
        kinds = {f.name: type(f.default) for f in fields(self)}
        known: dict[str, Any] = {k: v for k, v in values.items() if k in kinds}
        for name, value in known.items():
            if type(value) is not kinds[name]:
                raise ValueError(f"{name}: {value!r} is of the wrong type")
            # A clock that may not move, or a server that is silent at once, would be no setting but an outage.
            most = _MOST.get(name, _MOST_MS)
            if type(value) is int and not 0 < value <= most:
                raise ValueError(f"{name}: {value} is not between 1 and {most}")
        return replace(self, **known)

    def with_texts(self, texts: Mapping[str, str]) -> "FoldSettings":
        """``with_values`` of values as rows have them."""
        return self.with_values({name: setting_value(text) for name, text in texts.items()})


def setting_text(value: SettingValue) -> str:
    """A value as rows of kind ``setting`` have it: JSON."""
    return orjson.dumps(value).decode()


def setting_value(text: str) -> SettingValue:
    """Inverse of ``setting_text``."""
    value: Any = orjson.loads(text)
    return tuple(value) if isinstance(value, list) else value


def effective_texts(values: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Name → text of what holds, out of (namespace, name) → text."""
    return {name: text for (namespace, name), text in values.items() if namespace == EFFECTIVE}
