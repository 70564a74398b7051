"""``doctor``: is this set-up all right, and what to do if not?"""

import logging
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from namesrv_stream.doctor.finding import Finding, Grade
from namesrv_stream.operate.options import JsonOption
from namesrv_stream.operate.output import emit_json
from namesrv_stream.settings import Settings
from namesrv_stream.settings.command_line import Configuration, ConfOption, DataDirOption, SetOption

_STYLES: Final = {Grade.FINE: "green", Grade.NOTE: "cyan", Grade.WARNING: "yellow", Grade.FAULT: "bold red"}
_AREA_WIDTH: Final = 18


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(doctor)


def doctor(
    conf: ConfOption = None,
    data_dir: DataDirOption = None,
    sets: SetOption = None,
    servers: Annotated[
        str | None,
        typer.Option("--servers", "-n", help="Servers to ask too: http://a:9880;http://b:9880.", metavar="URLS"),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Look the set-up over: Java, ports, Kafka and its topics, clocks, tables, versions; say what to do."""
    from namesrv_stream.client.server_states import parse_http_addrs
    from namesrv_stream.doctor.examination import examine

    urls = parse_http_addrs(servers) if servers else ()
    settings = _settings(conf, data_dir, sets)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what it says in its own words is among the findings
    found = []
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for finding in examine(settings, urls):
        found.append(finding)
        if not as_json:
            console.print(_line(finding))
    if as_json:
        emit_json([{"area": f.area, "grade": f.grade, "text": f.text, "remedy": f.remedy} for f in found])
    else:
        console.print(_sum(found))
    return int(any(f.grade is Grade.FAULT for f in found))


def _settings(conf: Path | None, data_dir: str | None, sets: list[str] | None) -> Settings:
    """Those asked for; without a file, those that ``up`` runs with on that directory, ports that it chose included."""
    from namesrv_stream.doctor.running import running

    asked = Configuration(conf, data_dir, sets or ()).load().settings
    effective = asked.data.run_dir / "effective.toml"
    if conf is None and effective.exists() and running(asked):
        return Configuration(effective, data_dir, sets or ()).load().settings
    return asked


def _line(finding: Finding) -> Text:
    line = Text(f"{finding.grade:<5}", style=_STYLES[finding.grade])
    line.append(f"{finding.area:<{_AREA_WIDTH}} {finding.text}", style="default")
    if finding.remedy:
        line.append(f"\n{'':<5}{'':<{_AREA_WIDTH}} -> {finding.remedy}", style="default")
    return line


def _sum(found: list[Finding]) -> str:
    faults = sum(f.grade is Grade.FAULT for f in found)
    warnings = sum(f.grade is Grade.WARNING for f in found)
    if not faults and not warnings:
        return "all is well"
    return f"{faults} to mend, {warnings} to look at"
