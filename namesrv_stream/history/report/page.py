"""The report as one page that needs nothing else: no request leaves it, and nothing in it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from namesrv_stream import __version__
from namesrv_stream.client.mqadmin_tables import printable
from namesrv_stream.history.answer import Answer, Column, Section
from namesrv_stream.history.outages import Scope
from namesrv_stream.history.report.by_piece import Piece
from namesrv_stream.history.report.charts import Show, budget_chart, stacked
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.history.report.lanes import broker_lanes, cluster_lanes, heat_legend, lane_legend
from namesrv_stream.history.report.shapes import Chart, Lane, time_labels
from namesrv_stream.history.report.verdict import is_met, verdict
from namesrv_stream.history.sections import percent
from namesrv_stream.instants import duration, instant
from namesrv_stream.plurals import plural

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
_MOST_PIECES: Final = 200
_MOST_CLUSTER_LANES: Final = 25
_MOST_BROKER_LANES: Final = 25
#: A longer text is cut: names of brokers are short, unless somebody is up to no good.
_MOST_CHARS: Final = 160


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

    name: str
    title: str
    headers: Sequence[tuple[str, bool]]
    rows: Sequence[tuple[bool, Sequence[str]]]
    total: int


def page(figures: Figures, answer: Answer, pieces: Sequence[Piece], made_ms: int) -> str:
    """The page as HTML.

    Args:
        figures: What it says.
        answer: The same as tables.
        pieces: The same, piece by piece.
        made_ms: When it was made, epoch milliseconds.
    """
    environment = Environment(
        loader=PackageLoader("namesrv_stream.history.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_told,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja").render(
        version=__version__,
        asked=figures.asked,
        since=instant(figures.asked.since_ms),
        until=instant(figures.until_ms),
        made=instant(made_ms),
        reach=figures.extent.reach(),
        is_met=is_met(figures),
        verdict=verdict(figures),
        tiles=_tiles(figures),
        tables=_tables(answer),
        charts=_charts(figures, pieces),
        cluster_lanes=_shown(cluster_lanes(figures, pieces, _MOST_CLUSTER_LANES)),
        broker_lanes=_shown(broker_lanes(figures, _MOST_BROKER_LANES)),
        lane_legend=lane_legend(figures),
        heat_legend=heat_legend(str(figures.asked.objective)),
        labels=time_labels(figures.pieces),
        unit=figures.pieces.unit,
        commits_from=None if figures.commits_from_ms is None else instant(figures.commits_from_ms),
    )


def _tables(answer: Answer) -> Mapping[str, Table]:
    """By name; the outages apart, so that many brokers' do not hide those of all of a name or cluster."""
    sections = {section.name: section for section in answer.sections}
    outages = sections.pop("outages")
    single = [row for row in outages.rows if row["scope"] == Scope.BROKER]
    wide = [row for row in outages.rows if row["scope"] != Scope.BROKER]
    sections["outages"] = replace(outages, title="of brokers", rows=single)
    sections["wide"] = replace(outages, name="outages", title="of clusters and of broker names", rows=wide)
    return {name: table(section) for name, section in sections.items()}


def table(section: Section) -> Table:
    """Its first rows as texts; columns that say nothing of any of them are left out."""
    rows = section.rows[: MOST_ROWS.get(section.name, _MOST_PIECES)]
    shown = [c for c in section.columns if not c.is_for_scripts]
    columns = [c for c in shown if any(row[c.key] is not None and row[c.key] is not False for row in rows)]
    return Table(
        section.name,
        section.title,
        [(c.title, c.justify == "right") for c in columns],
        [(section.emphasis(row), [_cell(c, row) for c in columns]) for row in rows],
        len(section.rows),
    )


def _cell(column: Column, row: Mapping[str, Any]) -> str:
    value = row[column.key]
    return "" if value is None else _cut((column.show_short or column.show)(value))


def _told(value: Any) -> Any:
    """What the template puts out: control characters, such as those that turn the order of letters, do nothing."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"


def _shown(lanes: Sequence[Lane]) -> list[Lane]:
    return [replace(lane, label=_cut(lane.label), summary=_cut(lane.summary)) for lane in lanes]


def _charts(figures: Figures, pieces: Sequence[Piece]) -> Mapping[str, Chart]:
    objective, budget = figures.asked.objective, budget_chart(figures, pieces)
    budgets = [objective.budget_ms(p.known_ms) for p in pieces]
    times, counts = Show(is_duration=True), Show()
    unit = figures.pieces.unit
    down = [p.down_ms for p in pieces]
    missed = [{"": float(p.missed)} for p in pieces]
    return {
        "budget": replace(budget, legend=[(_cut(name), colour) for name, colour in budget.legend]),
        "down": stacked(
            f"down time each {unit}",
            pieces,
            figures.pieces,
            down,
            times,
            (f"{unit}ly budget" if unit != "day" else "daily budget", budgets),
        ),
        "ended": stacked(f"sessions that ended each {unit}", pieces, figures.pieces, [p.ended for p in pieces], counts),
        "missed": stacked(f"missed heartbeats each {unit}", pieces, figures.pieces, missed, counts),
    }


def _tiles(figures: Figures) -> list[Tile]:
    total, objective = figures.total, figures.asked.objective
    left = objective.left_share(total.known_ms, total.up_ms)
    left_ms = objective.left_ms(total.known_ms, total.up_ms)
    flapped = [f for f in figures.flapping.values() if f.has_flapped]
    now = sum(f.is_flapping for f in flapped)
    down = total.brokers - total.up - _left_for_good(figures)
    budget = f"{duration(left_ms)} of broker time" if left_ms >= 0 else f"{duration(-left_ms)} too much"
    tiles = [
        Tile("available", _text(total.share, percent), f"objective {objective}", not is_met(figures)),
        Tile("error budget left", "-" if left is None else f"{left * 100:,.0f}%", budget, left_ms < 0),
        Tile("brokers down now", f"{down:,}", f"of {total.brokers:,}", down > 0),
        Tile("interruptions", f"{total.interruptions:,}", f"{total.failures:,} unannounced"),
        Tile("MTTR", _text(total.mttr_ms, duration), "mean time until it was back"),
        Tile("MTBF", _text(total.mtbf_ms, duration), "mean up-time between interruptions"),
        Tile("flapped", f"{len(flapped):,}", f"{now:,} {plural(now, 'does', 'do')} so now", now > 0),
    ]
    heard = figures.known_heartbeats
    if heard is not None:
        missed = sum(h.missed for h in heard.of)
        count = sum(h.heartbeats for h in heard.of)
        of_all = missed / (missed + count) * 100 if missed + count else 0
        tiles.append(Tile("missed heartbeats", f"{missed:,}", f"{of_all:.3f}% of all, to {instant(heard.end_ms)}"))
    return tiles


def _left_for_good(figures: Figures) -> int:
    """How many said goodbye and did not come back: nobody waits for them."""
    return sum(not a.is_up and a.end_ms < figures.until_ms for a in figures.brokers)


def _text(value: float | None, show: Any) -> str:
    return "-" if value is None else str(show(value))
