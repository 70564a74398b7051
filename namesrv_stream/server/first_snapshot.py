"""What a server begins with: the tables, however long their store is away."""

import asyncio
import logging
from typing import Final

from namesrv_stream.errors import StoreUnreachable
from namesrv_stream.location import Location
from namesrv_stream.logs import progress
from namesrv_stream.snapshot import Snapshot, load_snapshot

_LOG = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


async def first_snapshot(tables_dir: Location, stop: asyncio.Event) -> Snapshot | None:
    """What the tables hold; waits for an object store that is away, for without it no route is known.

    Returns:
        None where the server was stopped meanwhile.

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects.
    """
    told = ""
    while not stop.is_set():
        try:
            return await asyncio.to_thread(load_snapshot, tables_dir)
        except StoreUnreachable as error:
            if str(error) != told:
                told = str(error)
                _LOG.error("waiting for the tables: %s", told)
                progress(f"waiting for the tables: {error.place} cannot be reached")
        await asyncio.sleep(_RETRY_S)
    return None
