"""What the report cannot know, so that missing data is not mistaken for healthy brokers."""

from collections.abc import Iterator

from namesrv_stream.history.database import Row
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.text_table import counted, plural

_NOT_COUNTED = "heartbeats of this time are not in the tables: no figure counts them, nor those that were missed"
_NO_TABLE = "there is no table heartbeat_minutes: missed heartbeats and blind times are not known"
_BLIND = (
    "no heartbeat was received and no broker aged: name servers, Kafka or the job were stopped; brokers count as up"
)


def unobserved(figures: Figures) -> list[Row]:
    """One row for each thing that is not known.

    Returns:
        Rows with ``what``, ``begin_ms``, ``end_ms``, ``duration_ms`` (null where they are of no certain time) and
        ``meaning``: what it does to the figures.
    """
    return [
        {"what": what, "begin_ms": begin, "end_ms": end, "meaning": meaning}
        | {"duration_ms": None if begin is None or end is None else end - begin}
        for what, begin, end, meaning in _unobserved(figures)
    ]


def _unobserved(figures: Figures) -> Iterator[tuple[str, int | None, int | None, str]]:
    asked, known, extent = figures.asked.window, figures.known, figures.known.extent
    if extent.begin_ms is not None and asked.since_ms < extent.begin_ms:
        text = "the history begins later than was asked: this time is in no figure"
        yield "before the history", asked.since_ms, extent.begin_ms, text
    if extent.lost_until_ms is not None:
        text = "changes were removed before the history had them: who went and came back in between is not known"
        yield "lost changes", extent.stored_to_ms, extent.lost_until_ms, text
    if extent.lags(asked.until_ms):
        text = "the tables do not reach so far: this time is in no figure"
        yield "after the tables", extent.reaches_ms, asked.until_ms, text
    for row in figures.rows["unobserved"]:
        yield row["what"], row["begin_ms"], row["end_ms"], _meaning(row)
    if not known.has_heartbeats:
        yield "heartbeats", None, None, _NO_TABLE
    elif known.heard is None:
        yield "heartbeats", known.window.since_ms, known.window.until_ms, _NOT_COUNTED
    if gone := figures.rows["gone_before"][0]["brokers"]:
        text = f"{counted(gone, 'broker')} had gone before and did not come back"
        yield "gone before", None, known.window.since_ms, f"{text}: {plural(gone, 'it is', 'they are')} in no figure"


def _meaning(row: Row) -> str:
    if row["what"] == "state rebuilt":
        count = row["sessions"]
        begin = f"{counted(count, 'session')} {plural(count, 'begins or ends', 'begin or end')}"
        return f"{begin} here by what was found, not by what happened, which is not known"
    return _BLIND if row["what"] == "blind" else _NOT_COUNTED
