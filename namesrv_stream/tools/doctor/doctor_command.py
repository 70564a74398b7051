"""``doctor``: checks an installation, and says what to do about each problem."""

import logging
import sys
from typing import Final

import typer
from rich.console import Console
from rich.text import Text

from namesrv_stream.settings.installation import Configuration, configured
from namesrv_stream.tools.doctor.finding import Finding, Grade
from namesrv_stream.tools.tool_options import HttpOption, JsonOption, OldHttpOption, emit_json, named_http_servers

_STYLES: Final = {Grade.FINE: "green", Grade.NOTE: "cyan", Grade.WARNING: "yellow", Grade.FAULT: "bold red"}
_AREA_WIDTH: Final = 18


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(configured(doctor))


def doctor(
    configuration: Configuration, http: HttpOption = None, servers: OldHttpOption = None, as_json: JsonOption = False
) -> int:
    """Check the installation and say what to fix.

    Java, ports, Kafka and its topics, clocks, tables, versions.
    """
    from namesrv_stream.tools.doctor.examination import examine

    urls = named_http_servers(http, servers)
    settings = configuration.load().settings
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # the findings contain its errors
    found = []
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for finding in examine(settings, urls):
        found.append(finding)
        if not as_json:
            console.print(_line(finding))
    if as_json:
        emit_json([{"area": f.area, "grade": f.grade, "text": f.text, "remedy": f.remedy} for f in found])
    else:
        console.print(_summary(found))
    return int(any(f.grade is Grade.FAULT for f in found))


def _line(finding: Finding) -> Text:
    line = Text(f"{finding.grade:<5}", style=_STYLES[finding.grade])
    line.append(f"{finding.area:<{_AREA_WIDTH}} {finding.text}", style="default")
    if finding.remedy:
        line.append(f"\n{'':<5}{'':<{_AREA_WIDTH}} -> {finding.remedy}", style="default")
    return line


def _summary(found: list[Finding]) -> str:
    faults = sum(f.grade is Grade.FAULT for f in found)
    warnings = sum(f.grade is Grade.WARNING for f in found)
    if not faults and not warnings:
        return "no faults, no warnings"
    return f"{faults} {'fault' if faults == 1 else 'faults'}, {warnings} {'warning' if warnings == 1 else 'warnings'}"
