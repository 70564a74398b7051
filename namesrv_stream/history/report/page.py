"""The report as one page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from namesrv_stream import __version__
from namesrv_stream.history.answer import Answer, Column, Section
from namesrv_stream.history.columns import percent
from namesrv_stream.history.drawing.pages import cut, render
from namesrv_stream.history.report.charts import charts
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.history.report.tables import summary
from namesrv_stream.history.report.verdict import verdict
from namesrv_stream.instants import duration, instant
from namesrv_stream.text_table import plural

#: Section → how many of its rows the page has; JSON has all.
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
_MOST_SEGMENTS: Final = 200


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure that is shown large."""

    label: str
    value: str
    note: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A section as the page shows it: texts only.

    Attributes:
        headers: Title of each column, and whether it is of numbers.
        rows: Whether it is to stand out, and its cells.
        total: How many rows there are, shown or not.
    """

    title: str
    headers: Sequence[tuple[str, bool]]
    rows: Sequence[tuple[bool, Sequence[str]]]
    total: int


def page(figures: Figures, answer: Answer, made_ms: int) -> str:
    """The page as HTML.

    Args:
        figures: What it says.
        answer: The same as tables.
        made_ms: When it was made, epoch milliseconds.
    """
    commits_from_ms = figures.known.commits_from_ms
    return render(
        "report/page.html.jinja",
        version=__version__,
        cluster=figures.asked.cluster,
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
        commits_from=None if commits_from_ms is None else instant(commits_from_ms),
    )


def _tables(answer: Answer) -> Mapping[str, Table]:
    """By name; the outages apart, so that many brokers' do not hide those of all of a name or cluster."""
    sections = {section.name: section for section in answer.sections}
    outages = sections.pop("outages")
    single = [row for row in outages.rows if row["scope"] == "broker"]
    wide = [row for row in outages.rows if row["scope"] != "broker"]
    sections["outages"] = replace(outages, title="of brokers", rows=single)
    sections["wide"] = replace(outages, title="of clusters and of broker names", rows=wide)
    return {name: table(section) for name, section in sections.items()}


def table(section: Section) -> Table:
    """Its first rows as texts; columns that say nothing of any of them are left out."""
    rows = section.rows[: MOST_ROWS.get(section.name, _MOST_SEGMENTS)]
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
            f"objective {figures.asked.objective_text}",
            not total["met"],
        ),
        Tile("error budget left", "-" if left is None else f"{left * 100:,.0f}%", budget, left_ms < 0),
        Tile("brokers down now", f"{down:,}", f"of {total['brokers']:,}", down > 0),
        Tile("interruptions", f"{total['interruptions']:,}", f"{total['failures']:,} unannounced"),
        Tile("MTTR", _text(total["mttr_ms"], duration), "mean time until it was back"),
        Tile("MTBF", _text(total["mtbf_ms"], duration), "mean up-time between interruptions"),
        Tile("flapped", f"{total['flapped']:,}", f"{flapping:,} {plural(flapping, 'does', 'do')} so now", flapping > 0),
    ]
    if (heard := figures.known.heard) is not None:
        missed, count = total["missed"], total["heartbeats"]
        of_all = missed / (missed + count) * 100 if missed + count else 0
        tiles.append(Tile("missed heartbeats", f"{missed:,}", f"{of_all:.3f}% of all, to {instant(heard.until_ms)}"))
    return tiles


def _text(value: float | None, show: Any) -> str:
    return "-" if value is None else str(show(value))
