"""Rows of ``route_changes`` as followers get them: JSON objects without the columns that a kind does not use."""

from typing import Final

import orjson

from namesrv_stream.route.changes import Difference, RouteChange

_ALWAYS: Final = frozenset({"partition", "offset", "seq", "at_ms", "kind", "gone", "cause"})


def encode_row(row: RouteChange) -> bytes:
    """A change with its place in the log, its time and its cause."""
    return orjson.dumps({k: v for k, v in zip(row._fields, row, strict=True) if v is not None or k in _ALWAYS})


def encode_state_row(partition: int, row: Difference) -> bytes:
    """What a key is, without when and why it became so."""
    columns = {k: v for k, v in row.columns.items() if v is not None}
    return orjson.dumps({"partition": partition, "kind": row.kind, "gone": False, **columns})
