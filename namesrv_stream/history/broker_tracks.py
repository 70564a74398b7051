"""Tracks of brokers: when each was up, and why it was not. For plots, and for the report."""

from collections.abc import Sequence

from namesrv_stream.history.columns import percent
from namesrv_stream.history.database import Row
from namesrv_stream.history.drawing import colours
from namesrv_stream.history.drawing.axes import time_labels
from namesrv_stream.history.drawing.pages import cut
from namesrv_stream.history.drawing.shapes import Bar, Track, Tracks, span
from namesrv_stream.history.extent import Window
from namesrv_stream.instants import duration, instant


def broker_tracks(brokers: Sequence[Row], outages: Sequence[Row], window: Window) -> Tracks:
    """A track for each broker.

    Args:
        brokers: Rows of ``brokers.sql``, in this order.
        outages: Rows of ``outages.sql``, of these and other brokers.
        window: The time.
    """
    bars = {row["replica"]: [span(window, row["begin_ms"], row["end_ms"], colours.UP)] for row in brokers}
    shown = [row for row in outages if row["scope"] == "broker" and row["replica"] in bars]
    for row in sorted(shown, key=lambda row: row["begin_ms"]):
        colour = colours.colour_of(row["cause"])
        bar = titled_span(window, row["begin_ms"], row["end_ms"], colour, row["cause"], is_pale=row["for_good"])
        bars[row["replica"]].append(bar)
    has_clusters = len({row["cluster"] for row in brokers}) > 1
    tracks = [_track(row, bars[row["replica"]], with_cluster=has_clusters) for row in brokers]
    return Tracks("up and down", tracks, time_labels(window), colours.down_legend(row["cause"] for row in shown))


def titled_span(
    window: Window, begin_ms: int, end_ms: int | None, colour: str, text: str, *, is_pale: bool = False
) -> Bar:
    """A bar that says since when and for how long something was so; an end of None is that of the window.

    Pale is what was intended: a broker that was unregistered and did not come back.
    """
    until_ms = window.until_ms if end_ms is None else end_ms
    title = f"{instant(begin_ms)}: {text}, {duration(until_ms - begin_ms)}"
    return span(window, begin_ms, until_ms, colour, title, is_pale=is_pale)


def _track(row: Row, bars: Sequence[Bar], *, with_cluster: bool) -> Track:
    names = [row["cluster"]] * with_cluster + [row["broker_name"], row["broker_addr"]]
    broker_id = [] if row["broker_id"] is None else [f"[{row['broker_id']}]"]
    earlier = [f"(+{len(row['earlier_addrs'])} before)"] if row["earlier_addrs"] else []
    label = cut(" ".join([*names, *broker_id, *earlier]))
    note = "" if row["availability"] is None else percent(row["availability"])
    down = f"down {duration(row['down_ms'])} in {row['interruptions']} interruptions"
    return Track(label, note, f"{label}: {down}", bars)
