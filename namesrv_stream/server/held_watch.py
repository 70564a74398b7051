"""Tells operators of held brokers and of changed settings, in the log."""

from collections.abc import Iterable

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.view import RouteView
from namesrv_stream.tables.change_log import log_commit, log_held


class HeldWatch:
    """Looks at a view each time after it has taken rows over; belongs to one event loop."""

    def __init__(self, view: RouteView) -> None:
        self._view = view

    def opened(self) -> None:
        """The tables were loaded."""
        log_held(self._view.table.held)

    def committed(self, changes: Iterable[RouteChange]) -> None:
        """The view has the rows of one more commit."""
        log_commit(changes)
