"""Changes a server's view and what depends on it: caches, the memory of registrations, and notifications."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from namesrv_stream.processor.name_server import NameServer, OptionChanges
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange, lease_key
from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerRegistered,
    BrokerUnregistered,
    KvDeleted,
    KvPut,
    SettingsChanged,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.liveness_settings import fold_settings_of
from namesrv_stream.route.model import BrokerLive, Holder, LeaseKey, Registration
from namesrv_stream.route.reducer import CommitRows
from namesrv_stream.route.steps import finish
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view.view_layers import Pending
from namesrv_stream.server.net.response_cache import ResponseCache
from namesrv_stream.server.start.identity import Identity

#: Rows that are examined in one step.
_ROWS_AT_ONCE: Final = 500


class ServedView:
    """Changes a server's view. Nothing else may change it.

    Attributes:
        on_wanted: Called after a change of the view with a registration that the fold does not know, and that is not in
            the view any more. It may change the view.
    """

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
        self.on_wanted: Callable[[BrokerRegistered], None] = lambda registered: None
        server.view.on_group_changed = on_group_changed
        server.view.watch(responses.changed, later)
        server.refresh_views()

    def live(self, key: LeaseKey) -> BrokerLive | None:
        return self._server.table.group(key.broker_name).live_brokers.get(key.live_key)

    def timeout_ms(self, registration: Registration) -> int:
        """Return the timeout of a broker with this registration, in milliseconds."""
        return fold_settings_of(self._server.table.settings).effective_timeout_ms(registration.timeout_ms)

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
        """Record that a broker's connection is closed, so that this server receives no heartbeats of the broker now."""
        self._server.memory.closed[key] = connection
        self._responses.changed(key.broker_name, ())

    def drop(self, pending: Pending) -> None:
        """Remove an event that will never be in the log. Nothing else would ever remove it from the view."""
        self._server.view.drop(pending)
        event = pending.event
        if isinstance(event, BrokerRegistered) and self.live(event.lease_key) is None:
            # No row reports it if the broker registered and disconnected before its registration was in the log.
            self._server.memory.forget(event.lease_key)
        self._follow(event)

    def settle(self, pending: Pending, position: tuple[int, int]) -> bool:
        """Record an event's position in the log. Return whether its commit has arrived, so that ``sweep`` is due."""
        pending.position = position
        return pending.is_covered(self._server.view.next_offsets)

    def sweep(self) -> None:
        """Remove from the view the accepted events that the committed rows already include."""
        finish(self._commit(CommitRows(()), {}, self._pending(self._server.memory.wanted)))

    def committed(self, changes: Sequence[RouteChange], next_offsets: Mapping[int, int]) -> None:
        """Apply the rows and offsets of one commit of the job, or of a slice of it."""
        finish(self.committing(CommitRows(changes), next_offsets))

    def committing(self, rows: CommitRows, next_offsets: Mapping[int, int]) -> Iterator[None]:
        """Apply the rows and offsets of one commit, or of a slice of it, in steps."""
        memory, server_id = self._server.memory, self._identity.server_id
        expired: list[tuple[LeaseKey, Holder]] = []
        holders: dict[LeaseKey, Holder | None] = {}
        wanted, is_setting = _wanted_keys(rows.besides_queues, server_id), False
        pending = self._pending(wanted)  # before this commit's rows change what is known about closed connections
        for number, change in enumerate(rows.besides_queues, 1):
            if change.kind == ChangeKind.SETTING:
                is_setting = True
            elif change.kind == ChangeKind.BROKER_LIVE and change.gone:
                memory.forget(lease_key(change))
            elif change.kind == ChangeKind.HOLDER and change.server_id == server_id:
                key = lease_key(change)
                live = self._server.view.committed_group(key.broker_name).live_brokers.get(key.live_key)
                held = holders[key] if key in holders else live.holders.get(server_id) if live else None
                if change.cause == Cause.EXPIRED and held is not None:
                    expired.append((key, held))
                holders[key] = None if change.gone else Holder(change.server_epoch or 0, change.connection_id or 0)
            if number % _ROWS_AT_ONCE == 0:
                yield
        memory.wanted |= wanted
        yield from self._commit(rows, next_offsets, pending)
        if is_setting:
            memory.settled.clear()
        for key, holder in expired:
            yield
            if holder.server_epoch == self._identity.server_epoch and not self.is_held(key, holder):
                self._on_expired(holder.connection_id, key)

    def _pending(self, keys: Iterable[LeaseKey]) -> list[BrokerRegistered]:
        """Return the registrations of some brokers that are in the view, but not committed, and still count."""
        shown = [self._server.view.pending_registration(key) for key in keys if self.live(key) is not None]
        return [
            registered
            for registered in shown
            if registered is not None
            and registered.origin[:2] == self._identity
            and registered.origin.holder != self._server.memory.closed.get(registered.lease_key)
        ]

    def _commit(
        self, rows: CommitRows, next_offsets: Mapping[int, int], wanted: Iterable[BrokerRegistered]
    ) -> Iterator[None]:
        """Apply rows in steps. Pass on the ``wanted`` registrations whose brokers are not in the view any more.

        Otherwise these brokers would be missing until they register again.
        """
        memory = self._server.memory
        yield from self._server.view.committing(rows, next_offsets)
        self._refresh_views()
        # The next registration of a broker that is not in the view is logged in full anyway.
        memory.wanted = {key for key in memory.wanted if self.live(key) is not None}
        for registered in wanted:
            if self.live(registered.lease_key) is None:
                self.on_wanted(registered)

    def is_held(self, key: LeaseKey, holder: Holder) -> bool:
        """Return whether this server receives the broker's heartbeats over exactly that connection."""
        live = self.live(key)
        return live is not None and live.holders.get(self._identity.server_id) == holder

    def reloaded(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Replace the committed rows, because the tables were reopened."""
        self._server.view.reload(table, next_offsets)
        self._refresh_views()
        memory = self._server.memory
        memory.settled.clear()  # valid only for group objects that no longer exist
        for key in [k for k in {*memory.full_due_ms, *memory.wanted, *memory.closed} if self.live(k) is None]:
            memory.forget(key)  # removed by rows that this server never received

    def reconfigure(self, changes: OptionChanges) -> None:
        self._server.reconfigure(changes)
        self._responses.clear()

    def _follow(self, event: AcceptedEvent) -> None:
        """Update what depends on an event that was applied or removed: memory of registrations, address views."""
        if isinstance(event, SettingsChanged):
            self._server.memory.settled.clear()  # an unchanged registration may change the view now
        elif isinstance(event, KvPut | KvDeleted):
            self._refresh_views()
        elif isinstance(event, BrokerUnregistered) and self.live(event.lease_key) is None:
            # No row reports it if the broker registered and unregistered while Kafka was unavailable.
            self._server.memory.forget(event.lease_key)

    def _refresh_views(self) -> None:
        if self._server.refresh_views():
            self._responses.clear()


def _wanted_keys(changes: Iterable[RouteChange], server_id: str) -> set[LeaseKey]:
    """Return the brokers whose registrations the fold wants from a server, except for those that it removes later."""
    wanted = set[LeaseKey]()
    for change in changes:
        if change.kind == ChangeKind.REGISTRATION_WANTED and change.server_id == server_id:
            wanted.add(lease_key(change))
        elif change.kind == ChangeKind.BROKER_LIVE and change.gone:
            wanted.discard(lease_key(change))
    return wanted
