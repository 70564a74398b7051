"""The KV table in the log: at the start and every ten minutes, as RocketMQ's operators look for it."""

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Final

from namesrv_stream.logs import safe

logger = logging.getLogger(__name__)

#: Entries printed at a time.
_MAX_ENTRIES: Final = 1_000


def log_kv_table(kv: Mapping[str, Mapping[str, str]], max_entries: int = _MAX_ENTRIES) -> None:
    """Log a line with the table's size, then a line for each of the first entries; long values are cut."""
    size = sum(len(entries) for entries in kv.values())
    logger.info("kv table namespaces=%d entries=%d", len(kv), size)
    entries = ((namespace, key, value) for namespace in sorted(kv) for key, value in sorted(kv[namespace].items()))
    for namespace, key, value in islice(entries, max_entries):
        logger.info("kv namespace=%s key=%s chars=%d value=%s", safe(namespace), safe(key), len(value), safe(value))
    if size > max_entries:
        logger.info("kv table has %d more entries, not printed", size - max_entries)
