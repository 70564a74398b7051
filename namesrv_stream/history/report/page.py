"""The report as one HTML page, with a summary in a few sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from namesrv_stream import __version__
from namesrv_stream.history.answer import Answer, Column, Section
from namesrv_stream.history.answer_tables import percent
from namesrv_stream.history.drawing import cut, render
from namesrv_stream.history.report.charts import charts
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.history.report.report_tables import summary
from namesrv_stream.instants import duration, instant
from namesrv_stream.text_table import times

#: Section → the most rows on the page; JSON has all rows.
MOST_ROWS: Final[Mapping[str, int]] = {
    "clusters": 50,
    "brokers": 25,
    "endings": 20,
    "outages": 20,
    "flaps": 15,
    "missed": 15,
    "servers": 30,
    "unknown": 30,
}
_MAX_SEGMENTS: Final = 200


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure that is shown in large type."""

    label: str
    value: str
    note: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page. All cells are texts.

    Attributes:
        title: Title of the section.
        headers: (title, whether values are numbers) of each column.
        rows: (whether the row is highlighted, cells) of each row.
        total: Number of rows, including those that are not shown.
    """

    title: str
    headers: Sequence[tuple[str, bool]]
    rows: Sequence[tuple[bool, Sequence[str]]]
    total: int


def page(figures: Figures, answer: Answer, made_ms: int) -> str:
    """Return the page as HTML.

    Args:
        answer: The content as tables.
        made_ms: Time of creation, epoch milliseconds.
    """
    commits_from_ms = figures.known.commits_from_ms
    return render(
        "page.html.jinja",
        version=__version__,
        cluster=figures.request.cluster,
        since=instant(figures.known.window.since_ms),
        until=instant(figures.known.window.until_ms),
        made=instant(made_ms),
        reach=figures.known.extent.reach(),
        is_met=figures.total["met"],
        verdict=verdict(figures),
        tiles=_tiles(figures),
        tables=_tables(answer),
        charts=charts(figures),
        unit=figures.unit,
        behind_share=figures.rows["routes_behind"][0]["behind_share"],
        commits_from=None if commits_from_ms is None else instant(commits_from_ms),
    )


def _tables(answer: Answer) -> Mapping[str, Table]:
    """Return name → table. Outages of single brokers have their own table, so that they do not hide wider outages."""
    sections = {section.name: section for section in answer.sections}
    outages = sections.pop("outages")
    single = [row for row in outages.rows if row["scope"] == "broker"]
    wide = [row for row in outages.rows if row["scope"] != "broker"]
    sections["outages"] = replace(outages, title="of brokers", rows=single)
    sections["wide"] = replace(outages, title="of clusters and of broker names", rows=wide)
    return {name: table(section) for name, section in sections.items()}


def table(section: Section) -> Table:
    """Return the first rows of a section as a table of the page, without columns that have no values."""
    rows = section.rows[: MOST_ROWS.get(section.name, _MAX_SEGMENTS)]
    columns = replace(section, rows=rows).shown_columns()
    return Table(
        section.title,
        [(c.title, c.justify == "right") for c in columns],
        [(section.emphasis(row), [_cell(c, row) for c in columns]) for row in rows],
        len(section.rows),
    )


def _cell(column: Column, row: Mapping[str, Any]) -> str:
    value = row[column.key]
    return "" if value is None else cut((column.show_short or column.show)(value))


def _tiles(figures: Figures) -> list[Tile]:
    total = summary(figures)
    left, left_ms = total["budget_left"], total["budget_left_ms"]
    flapping = sum(row["flapping"] for row in figures.rows["flaps"])
    down = sum(not row["is_up"] and not row["for_good"] for row in figures.rows["brokers"])
    budget = f"{duration(left_ms)} of broker time" if left_ms >= 0 else f"{duration(-left_ms)} too much"
    tiles = [
        Tile(
            "available",
            _text(total["availability"], percent),
            f"objective {figures.request.objective_text}",
            not total["met"],
        ),
        Tile("error budget left", "-" if left is None else f"{left * 100:,.0f}%", budget, left_ms < 0),
        Tile("brokers down now", f"{down:,}", f"of {total['brokers']:,}", down > 0),
        Tile("interruptions", f"{total['interruptions']:,}", f"{total['failures']:,} unannounced"),
        Tile("MTTR", _text(total["mttr_ms"], duration), "mean time until a broker was back"),
        Tile("MTBF", _text(total["mtbf_ms"], duration), "mean up-time between interruptions"),
        Tile("flapped", f"{total['flapped']:,}", f"{flapping:,} flapping now", flapping > 0),
    ]
    if (heartbeat_window := figures.known.heartbeat_window) is not None:
        missed, count = total["missed"], total["heartbeats"]
        of_all = missed / (missed + count) * 100 if missed + count else 0
        tiles.append(
            Tile("missed heartbeats", f"{missed:,}", f"{of_all:.3f}% of all, to {instant(heartbeat_window.until_ms)}")
        )
    return tiles


def _text(value: float | None, show: Any) -> str:
    return "-" if value is None else str(show(value))


def verdict(figures: Figures) -> list[str]:
    """Return the summary as sentences, the most important first."""
    return [text for text in (_objective(figures), _clusters(figures), _cause(figures), _worst(figures)) if text]


def _objective(figures: Figures) -> str:
    total = figures.total
    left = total["budget_left"]
    if left is None:
        return ""
    rest = (
        f"{left * 100:.0f}% of the error budget is left"
        if left >= 0
        else f"{1 - left:,.1f} times the error budget was used"
    )
    met, share = "met" if total["met"] else "missed", percent(total["availability"])
    objective = figures.request.objective_text
    return f"The objective of {objective} was {met}: brokers were up for {share} of their time, {rest}."


def _clusters(figures: Figures) -> str:
    clusters = figures.rows["clusters"]
    if len(clusters) < 2:
        return ""
    missed = [row for row in clusters if not row["met"]]
    if not missed:
        return f"Each of the {len(clusters)} clusters met it."
    worst = min(missed, key=lambda row: row["availability"] or 0)
    return (
        f"{len(missed)} of {len(clusters)} clusters missed it, worst of all {worst['cluster']}"
        f" with {percent(worst['availability'] or 0)}."
    )


def _cause(figures: Figures) -> str:
    ends = figures.rows["session_ends"]
    if not any(row["down_ms"] for row in ends):
        return "No broker was down."
    first = ends[0]
    share, count = f"{first['down_share'] * 100:.0f}%", times(first["count"])
    return f"{share} of the down time had the cause “{first['cause']}” ({count})."


def _worst(figures: Figures) -> str:
    # An outage of a whole cluster is worse than one of a broker name, whatever their lengths.
    wide = [row for scope in ("cluster", "broker_name") for row in figures.rows["outages"] if row["scope"] == scope]
    if not wide:
        return ""
    longest = wide[0]
    what = "all brokers of cluster" if longest["scope"] == "cluster" else "all processes of broker"
    length, begin = duration(longest["duration_ms"]), instant(longest["begin_ms"])
    return f"Longest outage: {what} {longest['name']} were down for {length} from {begin}."
