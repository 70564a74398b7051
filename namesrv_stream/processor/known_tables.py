"""The topic tables of the brokers' last registrations, so that of the next one only the difference is read."""

from collections import OrderedDict
from typing import Final

from namesrv_stream.processor.topic_table import KnownTable
from namesrv_stream.route.lease import LeaseKey

_MAX_BYTES: Final = 64 << 20


class KnownTables:
    """Tables by broker process; of many, those that were used last."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._tables: OrderedDict[LeaseKey, KnownTable] = OrderedDict()
        self._bytes = 0

    def get(self, key: LeaseKey) -> KnownTable | None:
        return self._tables.get(key)

    def put(self, key: LeaseKey, table: KnownTable) -> None:
        """Remember a broker's newest table, and forget what was not used for longest where that is too much."""
        self.forget(key)
        self._tables[key] = table
        self._bytes += table.size
        while self._bytes > self._max_bytes:
            self.forget(next(iter(self._tables)))

    def forget(self, key: LeaseKey) -> None:
        """The broker process is gone."""
        table = self._tables.pop(key, None)
        if table is not None:
            self._bytes -= table.size
