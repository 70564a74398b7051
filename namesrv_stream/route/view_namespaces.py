"""The KV namespaces of a server's view: committed entries, and on top of them what is pending."""

from collections.abc import Iterator, Mapping

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.overlay import Overlay, Pending
from namesrv_stream.route.reducer import apply_to_namespace
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view_rules import namespace_after

#: None for a namespace that nobody ever wrote to.
Entries = dict[str, str] | None


class NamespaceLayers:
    """Changes the namespaces of the table it is given; what is pending shows at once."""

    def __init__(self) -> None:
        self._layers: Overlay[str, Entries] = Overlay()

    def tickets(self) -> Iterator[Pending]:
        return self._layers.tickets()

    def committed(self, table: RouteTable) -> Mapping[str, dict[str, str]]:
        """All namespaces as the committed rows have them; copies."""
        namespaces = self._layers.beneath(table.kv).items()
        return {name: dict(entries) for name, entries in namespaces if entries is not None}

    def lay(self, table: RouteTable, pending: Pending, namespace: str) -> None:
        """Apply an accepted event."""
        entries = table.kv.get(namespace)
        self._layers.lay(namespace, entries, [pending])
        _show(table, namespace, namespace_after(entries, [pending.event]))

    def drop(self, table: RouteTable, pending: Pending, namespace: str) -> None:
        """Forget an event that will never be in the log."""
        if self._layers.remove(namespace, pending):
            self._rebuild(table, namespace)

    def take_over(self, row: RouteChange) -> bool:
        """Put a committed row beneath what is pending, for ``settle`` to show; False where nothing is."""
        namespace = row.namespace or ""
        if namespace not in self._layers:
            return False
        layer = self._layers[namespace]
        layer.committed = apply_to_namespace(layer.committed, row.gone, row.key, row.value)
        return True

    def settle(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Forget the events that the committed rows include, and show what is left."""
        self._layers.settle(next_offsets)
        for namespace in self._layers:
            self._rebuild(table, namespace)

    def reload(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Lay what is pending over another table."""
        for namespace in self._layers:
            self._layers[namespace].committed = table.kv.get(namespace)
        self.settle(table, next_offsets)

    def _rebuild(self, table: RouteTable, namespace: str) -> None:
        layer = self._layers.take(namespace)
        _show(table, namespace, namespace_after(layer.committed, layer.events))


def _show(table: RouteTable, namespace: str, entries: Entries) -> None:
    if entries is None:
        table.kv.pop(namespace, None)
    else:
        table.kv[namespace] = entries
