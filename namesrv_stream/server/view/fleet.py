"""Every broker process, for people: who hears it, how old its last heartbeat is, and why it is gone if it is."""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.liveness_settings import FoldSettings, effective_texts
from namesrv_stream.route.model import Hold, LeaseKey
from namesrv_stream.route.server_view.route_view import RouteView
from namesrv_stream.server.gateway.gateway import Gateway
from namesrv_stream.server.view.recent_events import RecentEvents

State = Literal["alive", "held", "ended"]


class Broker(NamedTuple):
    """A broker process.

    Attributes:
        broker_id: None where another address has taken its place, or nobody knows.
        timeout_ms: As it asked; None for the default.
        expires_after_ms: The timeout that it is measured by, milliseconds of observed time.
        age_ms: For how long this server has not heard it, by the time for which it could listen; None where it has not
            heard it since its own start, and where the broker is gone.
        servers: That hear it.
        held: Why it is kept where it would be gone.
        ended: Why and when it went; None while it is live.
        replaced_by: Of one that went: the address that has its brokerId now; None where nobody has.
        since_ms: When it came up, epoch milliseconds; None where that was more than a day ago, where nobody has asked
            this server for the past yet, and where the broker is gone.
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

    @property
    def state(self) -> State:
        if self.ended is not None:
            return "ended"
        return "held" if self.held else "alive"


class Fleet:
    """Belongs to one event loop."""

    def __init__(self, view: RouteView, gateway: Gateway, recent_events: RecentEvents) -> None:
        self.view = view
        self._gateway = gateway
        self._recent_events = recent_events

    def settings(self) -> FoldSettings:
        """That hold now."""
        return FoldSettings().with_texts(effective_texts(self.view.table.settings))

    def live(self, groups: Iterable[BrokerGroup]) -> Iterator[Broker]:
        """The live processes of groups, each made as it is asked for, by the settings, holds and time of the first."""
        settings, held = self.settings(), dict(self.view.table.held)
        last_heartbeats, observed_ms = self._gateway.last_heartbeats, self._gateway.observed_ms
        for group in groups:
            ids = {addr: broker_id for broker_id, addr in sorted(group.broker_addrs.items(), reverse=True)}
            for live_key, live in sorted(group.lives.items()):
                key = LeaseKey(group.broker_name, live_key)
                yield Broker(
                    key,
                    ids.get(live_key.broker_addr),
                    live.timeout_ms,
                    settings.effective_timeout_ms(live.timeout_ms),
                    last_heartbeats.age_ms(key, observed_ms),
                    tuple(sorted(live.holders)),
                    held.get(key),
                    since_ms=self._recent_events.came_ms(key),
                )

    async def ended(self) -> Iterable[Broker]:
        """Those that went within the last day and have not come back, the newest first.

        Returns:
            To be gone through once, in steps: they may be very many. Each is made as it is at that moment.
        """
        await self._recent_events.begin(self.view.next_offsets)
        await self._recent_events.drop_old()
        return self._ended(list(self._recent_events.ended.items()))

    def _ended(self, ended: list[tuple[LeaseKey, RouteChange]]) -> Iterator[Broker]:
        settings, table = self.settings(), self.view.table
        for key, change in reversed(ended):
            group = table.groups.get(key.broker_name)
            if group is not None and key.live_key in group.lives:
                continue  # it has just come back, and the fold has not said so yet
            registration = group.registrations.get(key.live_key) if group else None
            asked_ms = registration.read().timeout_ms if registration else None
            broker_id = registration.broker_id if registration and change.broker_id is None else change.broker_id
            expires_ms = settings.effective_timeout_ms(asked_ms)
            replaced_by = group.broker_addrs.get(broker_id) if group and broker_id is not None else None
            yield Broker(key, broker_id, asked_ms, expires_ms, None, (), None, change, replaced_by)
