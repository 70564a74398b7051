"""The status of an installation: its parts, and every broker process of the last 24 hours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from namesrv_stream.client.server_states import BadAnswer, ServerUnreachable, ask_each, get


class Condition(StrEnum):
    """The condition of a broker process; those that need attention come first."""

    DOWN = "down"  # it expired or was disconnected within the last day, and was not replaced
    PROTECTED = "protected"  # it would be down without the mass-expiry guard
    LATE = "late"  # its last heartbeat is older than half of its timeout
    UNKNOWN = "not heard"  # no heartbeat at the queried servers since their start
    ALIVE = "alive"
    REPLACED = "replaced"  # it is down, and another address of its cluster has its brokerId
    UNREGISTERED = "unregistered"  # within the last day


NEED_ATTENTION: Final = frozenset({Condition.DOWN, Condition.PROTECTED, Condition.LATE})
ENDED: Final = frozenset({Condition.DOWN, Condition.REPLACED, Condition.UNREGISTERED})

_UNREGISTERED: Final = "unregistered"  # the cause


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a server's health: ``state`` is ok, degraded or failed; ``reason`` says why it is not ok, and
    ``run_book`` where to read what to do.
    """

    name: str
    state: str
    reason: str = ""
    since_ms: int | None = None
    run_book: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of ``/healthz``.

    Attributes:
        state: green, yellow or red.
        version: Version of the tables; -1 if there are none yet.
        age_ms: Time since the last commit of the job; before the first one, since the start of the server.
    """

    state: str
    parts: Sequence[Part]
    version: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A broker process in the answer of ``/brokers?state=any``; durations and instants in milliseconds."""

    cluster: str
    broker_name: str
    broker_addr: str
    expires_after_ms: int
    broker_id: int | None = None
    age_ms: int | None = None
    since_ms: int | None = None
    is_older: bool = False
    servers: Sequence[str] = ()
    held: Mapping[str, Any] | None = None
    ended: Mapping[str, Any] | None = None
    drained: Mapping[str, Any] | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.cluster, self.broker_name, self.broker_addr

    @property
    def condition(self) -> Condition:
        if self.ended is not None:
            if self.ended.get("cause") == _UNREGISTERED:
                return Condition.UNREGISTERED
            return Condition.REPLACED if self.ended.get("replaced_by") else Condition.DOWN
        if self.held is not None:
            return Condition.PROTECTED
        if self.age_ms is None:
            return Condition.UNKNOWN
        return Condition.LATE if self.age_ms * 2 > self.expires_after_ms else Condition.ALIVE


@dataclass(slots=True)
class Status:
    """The status of an installation.

    Attributes:
        servers: URL → health of the server.
        failures: URL → why the server did not answer.
        brokers: By cluster, name and address; those that ended come last, the newest first.
        history: State of the history tables; None if unknown.
        history_to_ms: End of their data, in epoch milliseconds.
    """

    servers: dict[str, Health] = field(default_factory=dict)
    failures: dict[str, ServerUnreachable | BadAnswer] = field(default_factory=dict)
    brokers: Sequence[BrokerProcess] = ()
    history: Part | None = None
    history_to_ms: int | None = None

    @property
    def needs_attention(self) -> bool:
        """Whether a part or a broker needs attention."""
        parts = [part for health in self.servers.values() for part in health.parts]
        parts += [self.history] if self.history else []
        return (
            bool(self.failures)
            or any(part.state != "ok" for part in parts)
            or any(broker.condition in NEED_ATTENTION for broker in self.brokers)
        )

    @property
    def exit_code(self) -> int:
        """0 if nothing needs attention, else 1; 3 if no server answers."""
        if not self.servers:
            return max(failure.exit_code for failure in self.failures.values())
        return int(self.needs_attention)


async def find_status(urls: Sequence[str], *, is_certificate_checked: bool) -> Status:
    """Query all servers at once.

    Args:
        urls: URLs of the servers' HTTP ports.
        is_certificate_checked: Whether HTTPS certificates are checked.
    """

    async def query(url: str) -> tuple[Health, list[BrokerProcess]]:
        health = await get(url, "/healthz", Health, is_certificate_checked=is_certificate_checked)
        return health, await get(
            url, "/brokers", list[BrokerProcess], is_certificate_checked=is_certificate_checked, state="any"
        )

    status = Status()
    found, status.failures = await ask_each(urls, query)
    status.servers = {url: health for url, (health, _) in found.items()}
    status.brokers = _merged(broker for _, brokers in found.values() for broker in brokers)
    return status


def _merged(brokers: Iterable[BrokerProcess]) -> Sequence[BrokerProcess]:
    """Return every process once, from the server with its last heartbeat; ended only if no server has it alive."""
    newest: dict[tuple[str, str, str], BrokerProcess] = {}
    for broker in brokers:
        other = newest.get(broker.key)
        if other is None or _rank(broker) < _rank(other):
            newest[broker.key] = broker
    live = sorted((b for b in newest.values() if b.ended is None), key=lambda b: b.key)
    ended = sorted((b for b in newest.values() if b.ended is not None), key=_ended_ms, reverse=True)
    return [*live, *ended]


def _rank(broker: BrokerProcess) -> tuple[bool, bool, int]:
    return broker.ended is not None, broker.age_ms is None, broker.age_ms or 0


def _ended_ms(broker: BrokerProcess) -> int:
    return int((broker.ended or {}).get("at_ms", 0))
