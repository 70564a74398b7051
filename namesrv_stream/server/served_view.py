"""The server's view with all that depends on it: whatever changes it forgets the answers that this makes wrong."""

from collections.abc import Iterable, Mapping

from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.processor.prepared import PreparedAnswers
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.events import BrokerEvent
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.model import BrokerLive, LiveKey
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view import Pending


class ServedView:
    """The only way in which a server's view is changed."""

    def __init__(self, server: NameServer, prepared: PreparedAnswers, server_id: str) -> None:
        self._server = server
        self._prepared = prepared
        self._server_id = server_id

    def live(self, key: LeaseKey) -> BrokerLive | None:
        return self._server.table.group(key.broker_name).lives.get(key.live_key)

    def accept(self, event: BrokerEvent) -> Pending:
        """Apply an event at once; returns its ticket."""
        pending, touched = self._server.view.accept(event)
        self._invalidate(touched)
        return pending

    def drop(self, pending: Pending) -> None:
        """Take back an event that will never be in the log: nothing else would ever end it."""
        self._invalidate(self._server.view.drop(pending))

    def settle(self, pending: Pending, position: tuple[int, int]) -> bool:
        """The event is in the log; True if its commit was here before, so that ``sweep`` is due."""
        pending.position = position
        return pending.is_covered(self._server.view.next_offsets)

    def sweep(self) -> None:
        """Forget accepted events that the committed rows include."""
        self._invalidate(self._server.view.commit((), {}))

    def committed(self, changes: list[RouteChange], next_offsets: Mapping[int, int]) -> None:
        """Rows and offsets of one commit of the job."""
        memory = self._server.memory
        for change in changes:
            if change.kind == ChangeKind.REGISTRATION_WANTED and change.server_id == self._server_id:
                memory.wanted.add(_lease_key(change))
            elif change.kind == ChangeKind.BROKER_LIVE and change.gone:
                memory.forget(_lease_key(change))
        self._invalidate(self._server.view.commit(changes, next_offsets))

    def reloaded(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """The tables were opened anew."""
        self._server.view.reload(table, next_offsets)
        self._server.answers.clear()
        self._prepared.clear()
        memory = self._server.memory
        memory.settled.clear()  # valid by the identity of groups that are no more
        for key in [k for k in memory.full_due_ms if self.live(k) is None]:
            memory.forget(key)  # gone in rows that nobody told us

    def _invalidate(self, topics: Iterable[str]) -> None:
        if topics:
            self._server.answers.invalidate(topics)
            self._prepared.invalidate(topics)


def _lease_key(change: RouteChange) -> LeaseKey:
    return LeaseKey(change.broker_name or "", LiveKey(change.cluster or "", change.broker_addr or ""))
