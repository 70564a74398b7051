"""Changes a server's view and what depends on it: caches, logged registrations, and notifications."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from namesrv_stream.processor.name_server import NameServer, OptionChanges
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange, lease_key
from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerRegistered,
    BrokerUnregistered,
    KvDeleted,
    KvPut,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.liveness_settings import fold_settings_of
from namesrv_stream.route.model import BrokerLive, Holder, LeaseKey
from namesrv_stream.route.reducer import CommitRows
from namesrv_stream.route.steps import finish
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view.view_layers import Pending
from namesrv_stream.server.net.response_cache import ResponseCache
from namesrv_stream.server.start.identity import Identity

#: Rows that are examined in one step.
_ROWS_AT_ONCE: Final = 500


class ServedView:
    """Changes a server's view. Nothing else may change it."""

    def __init__(
        self,
        server: NameServer,
        responses: ResponseCache,
        identity: Identity,
        *,
        later: Callable[[Iterator[None]], None] = finish,
        on_expired: Callable[[int, LeaseKey], None] = lambda connection_id, key: None,
        on_group_changed: Callable[[BrokerGroup, BrokerGroup], None] | None = None,
    ) -> None:
        """The callbacks run during a change of the view or directly after it. They must not change the view.

        Args:
            later: Runs steps that may follow a change of the view (``RouteTable.later``).
            on_expired: Called with the connection over which this server received an expired broker's heartbeats.
            on_group_changed: Called with a group before and after a change of its broker addresses.
        """
        self._server = server
        self._responses = responses
        self._identity = identity
        self._on_expired = on_expired
        server.view.on_group_changed = on_group_changed
        server.view.watch(responses.changed, later)
        server.refresh_views()

    def live(self, key: LeaseKey) -> BrokerLive | None:
        return self._server.table.group(key.broker_name).live_brokers.get(key.live_key)

    def timeout_ms(self, live: BrokerLive) -> int:
        """Return a broker's timeout in milliseconds."""
        return fold_settings_of(self._server.table.settings).effective_timeout_ms(live.timeout_ms)

    def next_offset(self, partition: int) -> int:
        """Return the first offset of a partition that the committed rows do not cover."""
        return self._server.view.next_offsets.get(partition, 0)

    def has_own_start(self, partitions: int) -> bool:
        """Return whether the committed rows cover the log, in every partition, up to the start of this server."""
        server_id, epoch = self._identity
        servers = self._server.table.servers
        return all(servers.get((p, server_id), (0, ""))[0] == epoch for p in range(partitions))

    def accept(self, event: AcceptedEvent) -> list[Pending]:
        """Apply an event immediately. Return its pending entries, one for every partition it goes to."""
        pendings = self._server.view.accept(event)
        self._follow(event)
        return pendings

    def closed(self, key: LeaseKey, connection: Holder) -> None:
        """Forget that a broker's registration is in the log, because the connection over which it came is closed."""
        logged = self._server.logged.get(key)
        if logged is not None and logged.holder == connection:
            del self._server.logged[key]
            self._responses.changed(key.broker_name, ())

    def drop(self, pending: Pending) -> None:
        """Remove an event that will never be in the log. Nothing else would ever remove it from the view."""
        self._server.view.drop(pending)
        event = pending.event
        if isinstance(event, BrokerRegistered):
            # No row reports it if the broker registered and disconnected before its registration was in the log.
            self._forget(event.lease_key)
        self._follow(event)

    def settle(self, pending: Pending, position: tuple[int, int]) -> bool:
        """Record an event's position in the log. Return whether its commit has arrived, so that ``sweep`` is due."""
        pending.position = position
        return pending.is_covered(self._server.view.next_offsets)

    def sweep(self) -> None:
        """Remove from the view the accepted events that the committed rows already include."""
        self._server.view.commit((), {})
        self._refresh_views()

    def committed(self, changes: Sequence[RouteChange], next_offsets: Mapping[int, int]) -> None:
        """Apply the rows and offsets of one commit of the job, or of a slice of it."""
        finish(self.committing(CommitRows(changes), next_offsets))

    def committing(self, rows: CommitRows, next_offsets: Mapping[int, int]) -> Iterator[None]:
        """Apply the rows and offsets of one commit, or of a slice of it, in steps."""
        server, server_id = self._server, self._identity.server_id
        gone: list[LeaseKey] = []
        expired: list[tuple[LeaseKey, Holder]] = []
        holders: dict[LeaseKey, Holder | None] = {}
        for number, change in enumerate(rows.besides_queues, 1):
            if change.kind == ChangeKind.REGISTRATION_WANTED and change.server_id == server_id:
                server.logged.pop(lease_key(change), None)
            elif change.kind == ChangeKind.BROKER_LIVE and change.gone:
                gone.append(lease_key(change))
            elif change.kind == ChangeKind.HOLDER and change.server_id == server_id:
                key = lease_key(change)
                live = server.view.committed_group(key.broker_name).live_brokers.get(key.live_key)
                held = holders[key] if key in holders else live.holders.get(server_id) if live else None
                if change.cause == Cause.EXPIRED and held is not None:
                    expired.append((key, held))
                holders[key] = None if change.gone else Holder(change.server_epoch or 0, change.connection_id or 0)
            if number % _ROWS_AT_ONCE == 0:
                yield
        yield from server.view.committing(rows, next_offsets)
        self._refresh_views()
        for key in gone:
            self._forget(key)
            yield
        for key, holder in expired:
            yield
            if holder.server_epoch == self._identity.server_epoch and not self.is_held(key, holder):
                self._on_expired(holder.connection_id, key)

    def is_held(self, key: LeaseKey, holder: Holder) -> bool:
        """Return whether this server receives the broker's heartbeats over exactly that connection."""
        live = self.live(key)
        return live is not None and live.holders.get(self._identity.server_id) == holder

    def reloaded(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Replace the committed rows, because the tables were reopened."""
        self._server.view.reload(table, next_offsets)
        self._refresh_views()
        for key in list(self._server.logged):
            self._forget(key)  # rows that this server never received may have removed the broker

    def reconfigure(self, changes: OptionChanges) -> None:
        self._server.reconfigure(changes)
        self._responses.clear()

    def _follow(self, event: AcceptedEvent) -> None:
        """Update what depends on an event that was applied or removed: logged registrations, address views."""
        if isinstance(event, KvPut | KvDeleted):
            self._refresh_views()
        elif isinstance(event, BrokerUnregistered):
            # No row reports it if the broker registered and unregistered while Kafka was unavailable.
            self._forget(event.lease_key)

    def _forget(self, key: LeaseKey) -> None:
        """Forget the registration of a broker that is not in the view any more."""
        if self.live(key) is None:
            self._server.logged.pop(key, None)

    def _refresh_views(self) -> None:
        if self._server.refresh_views():
            self._responses.clear()
