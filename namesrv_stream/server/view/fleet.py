"""Every broker process: the servers that receive its heartbeats, its last heartbeat's age, and why it was removed.

Also the name servers, and which of them are on the list for clients.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from operator import is_
from typing import Final, Literal, NamedTuple

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.liveness_settings import FoldSettings, fold_settings_of
from namesrv_stream.route.model import DRAINED_BROKERS, Hold, LeaseKey, LiveKey, QueueData, decode_drain
from namesrv_stream.route.table import KnownServer
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.gateway.gateway import Gateway
from namesrv_stream.server.view.recent_events import RecentEvents

State = Literal["alive", "held", "ended"]

#: The KV namespace with which operators take name servers off the list; the keys are their ids.
UNLISTED: Final = "namesrv-stream.unlisted-servers"


class Drain(NamedTuple):
    """The record of a drain of a broker name, which `drain --undo` deletes.

    Attributes:
        at: When the drain began, as the record says; None, like ``by``, if the KV entry is not a record of a drain.
        by: Who began it, as ``user@host``.
        topics: Number of topics from which the drain removed the write permission.
        writable_topics: How many of these topics have it again, because the broker registered again.
    """

    at: str | None
    by: str | None
    topics: int
    writable_topics: int


class Broker(NamedTuple):
    """A broker process.

    Attributes:
        broker_id: None if another address has it now, or if it is unknown.
        timeout_ms: The timeout that the broker asked for; None for the default.
        expires_after_ms: The timeout in force, in milliseconds of observed time.
        age_ms: Observed time since this server received the last heartbeat; None if it has received none since its
            start, or if the broker was removed.
        servers: The servers that receive its heartbeats.
        ended: The row that says why and when the broker was removed; None while it is live.
        replaced_by: The address, in the same cluster, that now has the name and brokerId of a removed broker.
        since_ms: When the broker came up, epoch milliseconds; None if that was more than a day ago or is unknown, or if
            the broker was removed. It is unknown until the job has folded the registration, and until this server has
            read the recent events.
        is_older: Whether the broker came up more than a day ago.
        contradictions: Topics that the broker reports with other content than the routes have; see ``BrokerLive``.
        drained: The drain of its broker name; None if there is none.
    """

    key: LeaseKey
    broker_id: int | None
    timeout_ms: int | None
    expires_after_ms: int
    age_ms: int | None
    servers: tuple[str, ...]
    held: Hold | None = None
    ended: RouteChange | None = None
    replaced_by: str | None = None
    since_ms: int | None = None
    is_older: bool = False
    contradictions: tuple[str, ...] = ()
    drained: Drain | None = None

    @property
    def state(self) -> State:
        if self.ended is not None:
            return "ended"
        return "held" if self.held else "alive"

    @property
    def is_late(self) -> bool:
        """Whether its last heartbeat is older than half of its timeout."""
        return self.age_ms is not None and self.age_ms * 2 > self.expires_after_ms


class Fleet:
    """Describes all broker processes and name servers. Only one event loop may use it."""

    def __init__(self, view: RouteView, gateway: Gateway, recent_events: RecentEvents) -> None:
        self.view = view
        self._gateway = gateway
        self._recent_events = recent_events
        # Broker name → KV entry of its drain, its topics, and what they say.
        self._drains: dict[str, tuple[str, Mapping[str, QueueData], Drain]] = {}

    def settings(self) -> FoldSettings:
        return fold_settings_of(self.view.table.settings)

    def name_servers(self) -> list[KnownServer]:
        """Return all name servers, by id.

        ``is_listed`` is False for those that an operator unlisted, and for this one if it is about to stop. If no
        listed server would remain, they stay listed, because clients need an address.
        """
        gateway = self._gateway
        off = self.unlisted | ({gateway.server_id} if gateway.leaves_list else set())
        known = self.view.table.known_servers(gateway.limits.partitions)
        left = [server._replace(is_listed=server.is_listed and server.server_id not in off) for server in known]
        return left if any(server.is_listed for server in left) else known

    @property
    def unlisted(self) -> set[str]:
        """The ids of the servers that an operator has taken off the list."""
        return set(self.view.table.kv.get(UNLISTED, ()))

    @property
    def unknown_unlisted(self) -> list[str]:
        """The ids that an operator has taken off the list, although no server has them."""
        partitions = self._gateway.limits.partitions
        return sorted(self.unlisted - {server.server_id for server in self.view.table.known_servers(partitions)})

    @property
    def still_listed(self) -> list[str]:
        """The ids that an operator has taken off the list, but that stay on it because it would be empty otherwise."""
        return [s.server_id for s in self.name_servers() if s.is_listed and s.server_id in self.unlisted]

    def why_not_listed(self, server: KnownServer) -> str | None:
        if server.is_listed:
            return None
        if server.status != "talking":
            return f"it is {server.status}"
        if server.server_id in self.unlisted:
            return f"unlisted by the KV entry {UNLISTED}/{server.server_id}"
        if server.address:
            return "it is stopping, or not complete yet"
        causes = "has just started, or does not find the job's commits (data.tables)"
        return f"it advertises no address (remoting.advertised_address), {causes}"

    def listed_addresses(self) -> list[str]:
        """Return the addresses of the listed name servers, in an order that all servers share."""
        return sorted({server.address for server in self.name_servers() if server.is_listed})

    def live(self, groups: Iterable[BrokerGroup]) -> Iterator[Broker]:
        """Yield the live processes of groups, on demand; settings, holds and time are read once, before the first."""
        settings, held = self.settings(), dict(self.view.table.held)
        last_heartbeats, observed_ms = self._gateway.last_heartbeats, self._gateway.observed_ms
        recent_events = self._recent_events
        for group in groups:
            if not group.live_brokers:
                continue
            folded = self.view.committed_group(group.broker_name).live_brokers
            drained = self._drain_of(group)
            ids = {addr: broker_id for broker_id, addr in sorted(group.broker_addrs.items(), reverse=True)}
            for live_key in sorted(group.live_brokers):
                key, live = LeaseKey(group.broker_name, live_key), group.live_brokers[live_key]
                since_ms = recent_events.came_ms(key)
                yield Broker(
                    key,
                    ids.get(live_key.broker_addr),
                    live.timeout_ms,
                    settings.effective_timeout_ms(live.timeout_ms),
                    last_heartbeats.age_ms(key, observed_ms),
                    tuple(sorted(live.holders)),
                    held.get(key),
                    since_ms=since_ms,
                    is_older=since_ms is None and live_key in folded and recent_events.is_read,
                    contradictions=live.contradictions,
                    drained=drained,
                )

    async def ended(self) -> Iterator[Broker]:
        """Return the processes that were removed within the last day and have not returned, the newest first.

        The result can be very long, is computed on demand, and can be read once: consume it in steps.
        """
        await self._recent_events.begin(self.view.next_offsets)
        await self._recent_events.drop_old()
        return self._ended(list(self._recent_events.ended.items()))

    def _ended(self, ended: list[tuple[LeaseKey, RouteChange]]) -> Iterator[Broker]:
        settings, table = self.settings(), self.view.table
        for key, change in reversed(ended):
            group = table.group(key.broker_name)
            if key.live_key in group.live_brokers:
                continue  # it has just returned, but the fold has not committed that yet
            registration = group.registrations.get(key.live_key)
            asked_ms = registration.timeout_ms if registration else None
            broker_id = registration.broker_id if registration and change.broker_id is None else change.broker_id
            expires_ms = settings.effective_timeout_ms(asked_ms)
            # Another cluster may use the same broker name, and even the same address.
            addr = None if broker_id is None else group.broker_addrs.get(broker_id)
            replaced_by = addr if addr and LiveKey(key.live_key.cluster, addr) in group.live_brokers else None
            drained = self._drain_of(group)
            yield Broker(key, broker_id, asked_ms, expires_ms, None, (), None, change, replaced_by, drained=drained)

    @property
    def draining(self) -> int:
        """The number of broker names for which there is a record of a drain."""
        return len(self.view.table.kv.get(DRAINED_BROKERS, ()))

    async def read_drains(self) -> None:
        """Read the records of drains that ``live`` and ``ended`` show.

        A thread reads them, because a record, and the topics with which it is compared, can be megabytes.
        """
        entries, known = self.view.table.kv.get(DRAINED_BROKERS, {}), self._drains
        of_name = {name: (value, self.view.table.group(name).topics) for name, value in entries.items()}
        new = {name: of for name, of in of_name.items() if name not in known or not all(map(is_, known[name], of))}
        read = await asyncio.to_thread(lambda: {name: (*of, _drain(*of)) for name, of in new.items()}) if new else {}
        self._drains = {name: read.get(name) or known[name] for name in of_name}

    def _drain_of(self, group: BrokerGroup) -> Drain | None:
        found = self._drains.get(group.broker_name)
        return found[2] if found is not None else None


def _drain(value: str, topics: Mapping[str, QueueData]) -> Drain:
    record = decode_drain(value)
    if record is None:
        return Drain(None, None, 0, 0)
    return Drain(record.at, record.by, len(record.perms), record.writable_again(topics))
