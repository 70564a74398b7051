"""The settings that the fold's outcome depends on. They reach it only as ``settings_changed`` events."""

from dataclasses import dataclass, fields, replace
from typing import Any

#: A hundred years.
_MOST_MS = 100 * 366 * 86_400_000


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
    """

    default_timeout_ms: int = 120_000
    min_timeout_ms: int = 1_000
    max_timeout_ms: int = 3_600_000
    max_gap_ms: int = 2_000
    server_silent_ms: int = 15_000
    server_lost_ms: int = 600_000
    registration_retention_ms: int = 86_400_000
    delete_topic_with_broker_registration: bool = False

    def effective_timeout_ms(self, asked_ms: int | None) -> int:
        """The timeout of a broker that asked for ``asked_ms``."""
        wanted = self.default_timeout_ms if asked_ms is None else asked_ms
        return max(self.min_timeout_ms, min(wanted, self.max_timeout_ms))

    def with_values(self, values: dict[str, int | bool]) -> "FoldSettings":
        """These settings with some replaced; unknown names are for newer folds and ignored.

        Raises:
            ValueError: A value is of the wrong type or out of range; the text names it.
        """
        kinds = {f.name: f.type for f in fields(self)}
        known: dict[str, Any] = {k: v for k, v in values.items() if k in kinds}
        for name, value in known.items():
            if type(value) is not kinds[name]:
                raise ValueError(f"{name}: {value!r} is of the wrong type")
            # A clock that may not move, or a server that is silent at once, would be no setting but an outage.
            if type(value) is int and not 0 < value <= _MOST_MS:
                raise ValueError(f"{name}: {value} is not between 1 and {_MOST_MS} ms")
        return replace(self, **known)
