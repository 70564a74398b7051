"""The command ``namesrv-stream report``."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.history.answer import Window
from namesrv_stream.history.history_commands import parse_window
from namesrv_stream.instants import COMMAND_LINE, instant
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import Configuration, configured
from namesrv_stream.text_table import WideOption

if TYPE_CHECKING:
    from namesrv_stream.history.answer import Answer
    from namesrv_stream.history.report.figures import Figures

_ROWS_FOR_PEOPLE: Final = 10


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(configured(report))


def report(
    configuration: Configuration,
    since: Annotated[
        str, typer.Option("--since", help="How far to look back, for example 30d, or a time.", metavar="WHEN")
    ] = "30d",
    until: Annotated[
        str, typer.Option("--until", help="A time, or how long ago, for example -2h.", metavar="WHEN")
    ] = "now",
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only this cluster.", metavar="CLUSTER")] = None,
    slo: Annotated[str, typer.Option("--slo", help="Availability objective, in percent.", metavar="PERCENT")] = "99.9",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write it as one self-contained page.", metavar="FILE.html")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON, for scripts.")] = False,
    wide: WideOption = False,
) -> None:
    """Report the availability of brokers against an objective.

    The report has the error budget, outages, flapping, missed heartbeats and delays.
    """
    if cluster == "":
        raise ConfigError(COMMAND_LINE, "--cluster", "is empty")
    # Imported here, because Arrow and Delta take a second to import, and other commands do not need them.
    from namesrv_stream.history.drawing import write_page
    from namesrv_stream.history.report.figures import ReportRequest, figures
    from namesrv_stream.history.report.page import page
    from namesrv_stream.history.report.report_tables import answer_of

    now_ms = SystemClock().now_ms()
    window = parse_window(since, until, now_ms)
    request = ReportRequest(window, _objective(slo), cluster)
    settings = configuration.load().settings
    found = figures(settings, request)
    answer = answer_of(found, _notes(settings, window, found))
    if html is not None:
        write_page("--html", html, page(found, answer, now_ms))
    _print(answer, html, as_json=as_json, wide=wide)


def _objective(text: str) -> float:
    """Return an objective such as ``99.9`` or ``99.9%`` as a share, here 0.999.

    Raises:
        ConfigError: The text is not a number between 0 and 100.
    """
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0 < percent < 100:
        shown = text if len(text) <= 20 else f"{text[:20]}…"
        raise ConfigError(
            COMMAND_LINE, "--slo", f"must be a percentage between 0 and 100, for example 99.9, but is {shown!r}"
        )
    return percent / 100


def _notes(settings: Settings, requested: Window, found: "Figures") -> list[str]:
    """Return notes about the start of the report, and about missing heartbeat figures."""
    from namesrv_stream.history.answer import no_figures_text

    notes, window = [], found.known.window
    if requested.since_ms < window.since_ms:
        notes.append(f"the history begins at {instant(window.since_ms)}: the report begins there, too")
    if found.known.heartbeat_window is None:
        first_ms = min(row["begin_ms"] for row in found.rows["brokers"])
        notes.append(no_figures_text(settings, first_ms, window.until_ms))
    return notes


def _print(answer: "Answer", html: Path | None, *, as_json: bool, wide: bool) -> None:
    from namesrv_stream.history import answer as forms

    if as_json:
        forms.print_json(answer)
    else:
        forms.print_text(_short(answer), wide=wide)
        if html is not None:
            print(f"written to {html}")
    sys.stdout.flush()


def _short(answer: "Answer") -> "Answer":
    """Return the answer with the first rows of each table. The page and JSON have all rows."""
    sections = []
    for section in answer.sections:
        if section.rows and section.name != "pieces":
            rows = section.rows[:_ROWS_FOR_PEOPLE]
            of = "" if len(rows) == len(section.rows) else f": {len(rows)} of {len(section.rows):,}"
            sections.append(replace(section, rows=rows, title=f"{section.title}{of}"))
    return replace(answer, sections=sections)
