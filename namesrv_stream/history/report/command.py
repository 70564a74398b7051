"""``namesrv-stream report``."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import orjson
import typer

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.history.command import asked_span
from namesrv_stream.instants import COMMAND_LINE, instant
from namesrv_stream.settings.command_line import Configuration, configured
from namesrv_stream.text_table import WideOption

if TYPE_CHECKING:
    from namesrv_stream.history.answer import Answer

_ROWS_FOR_PEOPLE: Final = 10


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(configured(report))


def report(
    configuration: Configuration,
    since: Annotated[
        str, typer.Option("--since", help="How far to look back, as 30d, or an instant.", metavar="WHEN")
    ] = "30d",
    until: Annotated[str, typer.Option("--until", help="An instant, or how long ago as -2h.", metavar="WHEN")] = "now",
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only this cluster.", metavar="CLUSTER")] = None,
    slo: Annotated[
        str, typer.Option("--slo", help="For how much of its time a broker is to be up, per cent.", metavar="PERCENT")
    ] = "99.9",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write it as one self-contained page.", metavar="FILE.html")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON, for scripts.")] = False,
    wide: WideOption = False,
) -> None:
    """Report the availability of brokers against an objective.

    Error budget, outages, flapping, missed heartbeats, delays.
    """
    if cluster == "":
        raise ConfigError(COMMAND_LINE, "--cluster", "is empty")
    # Spared to the other commands: Arrow and Delta take a second to import.
    from namesrv_stream.history.first_figures import no_figures_text
    from namesrv_stream.history.report.by_piece import by_piece
    from namesrv_stream.history.report.figures import Asked, figures
    from namesrv_stream.history.report.objective import parse_objective
    from namesrv_stream.history.report.tables import answer_of

    now_ms = SystemClock().now_ms()
    since_ms, until_ms = asked_span(since, until, now_ms)
    asked = Asked(since_ms, until_ms, parse_objective(slo), cluster)
    settings = configuration.load().settings
    found = figures(settings, asked)
    pieces = by_piece(found)
    notes = []
    if since_ms < found.asked.since_ms:
        notes.append(f"the history begins at {instant(found.asked.since_ms)}: the report begins there, too")
    if found.known_heartbeats is None and found.sessions:
        first_ms = max(found.asked.since_ms, min(session.up_ms for session in found.sessions))
        notes.append(no_figures_text(settings, first_ms, found.until_ms))
    answer = answer_of(found, pieces, notes)
    if html is not None:
        from namesrv_stream.history.report.page import page

        _write(html, page(found, answer, pieces, now_ms))
    _print(answer, html, as_json=as_json, wide=wide)


def _write(path: Path, text: str) -> None:
    """Write the page.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(COMMAND_LINE, "--html", f"{path} cannot be written: {error.strerror}") from None


def _print(answer: "Answer", html: Path | None, *, as_json: bool, wide: bool) -> None:
    from namesrv_stream.history import answer as forms

    if as_json:
        found = forms.as_json(answer)
        sys.stdout.write(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode() + "\n")
    else:
        forms.print_text(_short(answer), wide=wide)
        if html is not None:
            print(f"written to {html}")
    sys.stdout.flush()


def _short(answer: "Answer") -> "Answer":
    """The first rows of what people should see at once; the page and JSON have the rest."""
    sections = []
    for section in answer.sections:
        if section.rows and section.name != "pieces":
            rows = section.rows[:_ROWS_FOR_PEOPLE]
            of = "" if len(rows) == len(section.rows) else f": {len(rows)} of {len(section.rows):,}"
            sections.append(replace(section, rows=rows, title=f"{section.title}{of}"))
    return replace(answer, sections=sections)
