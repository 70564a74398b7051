"""Tells operators of held brokers, in the log and as a gauge a cluster, and of changed settings, in the log."""

from collections import Counter
from collections.abc import Iterable

from namesrv_stream.metrics import Metrics
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.view import RouteView
from namesrv_stream.snapshot import log_commit, log_held


class HeldWatch:
    """Looks at a view each time after it has taken rows over; belongs to one event loop."""

    def __init__(self, view: RouteView, metrics: Metrics) -> None:
        self._view = view
        self._metrics = metrics
        self._counted: set[str] = set()

    def opened(self) -> None:
        """The tables were loaded."""
        log_held(self._view.table.held)
        self._count()

    def committed(self, changes: Iterable[RouteChange]) -> None:
        """The view has the rows of one more commit."""
        if ChangeKind.GUARD in log_commit(changes):
            self._count()

    def _count(self) -> None:
        table = self._view.table
        held = Counter(key.live_key.cluster for key in table.held)
        # A cluster whose brokers were let go shows 0 for as long as it has any.
        values = {**dict.fromkeys(self._counted & table.clusters().keys(), 0), **held}
        self._metrics.set_by_cluster("namesrv_held_brokers", values)
        self._counted = set(values)
