"""When which broker process was up."""

import pyarrow as pa

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.extent import Window
from namesrv_stream.history.past import Past
from namesrv_stream.history.replicas import replica_numbers
from namesrv_stream.instants import instant


def sessions_between(
    past: Past, window: Window, *, cluster: str | None = None, broker_name: str | None = None
) -> pa.Table:
    """The rows of ``sessions.sql``, with the number of their replica; blocks.

    Args:
        past: Opened.
        window: The time; what begins or ends later is not known yet.
        cluster: Only of this cluster.
        broker_name: Only of this broker name.

    Raises:
        TableSchemaMismatch: The tables cannot be read.
    """
    only = {"cluster": cluster, "broker_name": broker_name}
    found = past.ask("sessions", since_ms=window.since_ms, until_ms=window.until_ms, **only)
    return with_replicas(found)


def with_replicas(sessions: pa.Table) -> pa.Table:
    """Rows of ``sessions.sql`` with one more column, ``replica``."""
    return sessions.append_column("replica", pa.array(replica_numbers(sessions.to_pylist()), pa.int64()))


def set_period(past: Past, window: Window, *, cluster: str | None = None, broker_name: str | None = None) -> None:
    """Read the sessions of a time, so that the questions about brokers can be asked of it; blocks.

    Raises:
        NotInHistory: There was no such cluster or broker, or no broker at all.
        TableSchemaMismatch: The tables cannot be read.
    """
    found = sessions_between(past, window, cluster=cluster, broker_name=broker_name)
    if not found.num_rows:
        what = (
            f"broker {broker_name}"
            if broker_name is not None
            else "broker"
            if cluster is None
            else f"cluster {cluster}"
        )
        raise NotInHistory(f"the history knows no {what}{known_from(past)}")
    past.set_period(found, window)


def known_from(past: Past) -> str:
    """Since when something would be known, for the end of a sentence."""
    begin_ms = past.extent.begin_ms
    return "" if begin_ms is None else f"; it begins at {instant(begin_ms)}"
