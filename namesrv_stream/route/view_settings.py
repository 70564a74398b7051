"""The settings of a server's view, by partition: committed ones, and on top of them what is pending."""

from collections.abc import Iterable, Iterator, Mapping

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.overlay import Overlay, Pending
from namesrv_stream.route.reducer import apply_to_settings
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view_rules import Settings, settings_after


class SettingLayers:
    """Changes the settings of the table it is given; what is pending shows at once."""

    def __init__(self) -> None:
        self._layers: Overlay[int, Settings] = Overlay()

    def tickets(self) -> Iterator[Pending]:
        return self._layers.tickets()

    def committed(self, table: RouteTable, partition: int) -> Settings:
        """A partition's settings as the committed rows have them."""
        return self._layers[partition].committed if partition in self._layers else table.settings_of(partition)

    def lay(self, table: RouteTable, pending: Pending, partition: int) -> None:
        """Apply an accepted event."""
        settings = table.settings_of(partition)
        self._layers.lay(partition, settings, [pending])
        table.replace_settings(partition, settings_after(settings, [pending.event]))

    def drop(self, table: RouteTable, pending: Pending) -> None:
        """Forget an event that will never be in the log, in whichever partition it is pending."""
        for partition in self._layers:
            if self._layers.remove(partition, pending):
                self._rebuild(table, partition)

    def take_over(self, partition: int, rows: Iterable[RouteChange]) -> bool:
        """Put committed rows beneath what is pending, for ``settle`` to show; False where nothing is."""
        if partition not in self._layers:
            return False
        layer = self._layers[partition]
        layer.committed = apply_to_settings(layer.committed, rows)
        return True

    def settle(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Forget the events that the committed rows include, and show what is left."""
        self._layers.settle(next_offsets)
        for partition in self._layers:
            self._rebuild(table, partition)

    def reload(self, table: RouteTable, next_offsets: Mapping[int, int]) -> None:
        """Lay what is pending over another table."""
        for partition in self._layers:
            self._layers[partition].committed = table.settings_of(partition)
        self.settle(table, next_offsets)

    def _rebuild(self, table: RouteTable, partition: int) -> None:
        layer = self._layers.take(partition)
        table.replace_settings(partition, settings_after(layer.committed, layer.events))
