"""Conversion of the JSON of ``/changes`` to changes."""

from typing import Any

from namesrv_stream.route.changes import RouteChange


def row_of(fields: dict[str, Any]) -> RouteChange:
    """Convert the JSON of a row to the change that the fold made."""
    known = {"offset": 0, "seq": 0, "at_ms": 0, "cause": "", **fields}
    for name in ("clusters", "filter_servers"):
        if name in known:
            known[name] = tuple(known[name])
    if "broker_addrs" in known:
        known["broker_addrs"] = tuple((i, a) for i, a in known["broker_addrs"])
    return RouteChange(**known)
