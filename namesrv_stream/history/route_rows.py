"""Rows of ``route_history`` and ``route_changes`` as the reducer takes them."""

from typing import Any, Final

import polars as pl

from namesrv_stream.route.changes import RouteChange

_NESTED: Final = ("broker_addrs", "clusters", "filter_servers")
#: Polars keeps the interpreter while it makes so many rows; servers read on a thread beside their event loop.
_AT_ONCE: Final = 64


def route_rows(frame: pl.DataFrame) -> list[RouteChange]:
    """The rows, in their order, of a frame with at least the columns of ``RouteChange``."""
    frame = frame.select(RouteChange._fields)
    nested = [RouteChange._fields.index(name) for name in _NESTED if frame[name].null_count() < frame.height]
    return [RouteChange._make(_with_tuples(row, nested)) for row in frame.iter_rows(buffer_size=_AT_ONCE)]


def _with_tuples(row: tuple[Any, ...], nested: list[int]) -> tuple[Any, ...]:
    if all(row[at] is None for at in nested):
        return row
    values = list(row)
    for at in nested:
        value = values[at]
        if value is not None:
            values[at] = tuple(value.items()) if isinstance(value, dict) else tuple(value)
    return tuple(values)
