"""Checks of what brokers have registered, from the tables."""

from collections.abc import Iterator
from typing import Final

import pyarrow.compute as pc

from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.registration import some_of
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.why.findings import CATALOGUE, Why
from namesrv_stream.tables.change_rows import iter_changes
from namesrv_stream.tables.snapshot import TableRows
from namesrv_stream.tools.doctor.finding import Finding, warning

_AREA: Final = "DataVersion"


def contradictions(rows: TableRows | Finding) -> Iterator[Finding]:
    """Yield a warning about each broker whose topics contradict its DataVersion; nothing if there is none.

    Args:
        rows: The tables; a finding if they cannot be read.
    """
    if isinstance(rows, Finding):
        return
    table = RouteTable()
    is_process = pc.field("kind") == ChangeKind.BROKER_LIVE.value
    for part in (rows.state.live, rows.changes):
        apply(table, iter_changes(part.filter(is_process)))
    for name, group in sorted(table.groups.items()):
        for key, live in sorted(group.live_brokers.items()):
            if live.contradictions:
                what = f"other queues, permissions or mappings, but no new DataVersion: {some_of(live.contradictions)}"
                text = f"{name} at {key.broker_addr} reports {what}; the routes have the old ones"
                yield warning(_AREA, text, CATALOGUE[Why.CONTRADICTION].advice)
