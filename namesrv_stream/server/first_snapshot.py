"""What a server begins with: the tables, however long their store is away, or nothing while they are damaged."""

import asyncio
import logging
from typing import Final

from namesrv_stream.errors import StoreUnreachable, TableDamaged
from namesrv_stream.logs import progress
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.loader import Snapshot, load_snapshot
from namesrv_stream.tables.storage import Storage

_LOG = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


async def first_snapshot(tables: Storage, stop: asyncio.Event) -> Snapshot | None:
    """What the tables hold; waits for an object store that is away, for without it no route is known.

    Returns:
        An empty snapshot that names the damage where no version of a table can be read: the server takes registrations
        until the job has repaired the tables. None where the server was stopped meanwhile.

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects.
    """
    told = ""
    while not stop.is_set():
        try:
            snapshot = await asyncio.to_thread(load_snapshot, tables)
        except TableDamaged as error:
            snapshot = Snapshot(RouteTable(), {}, -1, damage=str(error))
        except StoreUnreachable as error:
            if str(error) != told:
                told = str(error)
                _LOG.error("waiting for the tables: %s", told)
                progress(f"waiting for the tables: {error.place} cannot be reached")
            await asyncio.sleep(_RETRY_S)
            continue
        if snapshot.damage:
            _LOG.error("tables damaged, serving version=%d: %s", snapshot.version, snapshot.damage)
            progress(f"tables damaged: {snapshot.damage}")
        return snapshot
    return None
