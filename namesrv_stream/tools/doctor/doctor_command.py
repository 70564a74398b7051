"""``doctor``: checks an installation, and says what to do about each problem."""

import logging
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.text import Text

from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError, KafkaUnreachable
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import Configuration, configured, part_state, running_parts
from namesrv_stream.text_table import JsonOption
from namesrv_stream.tools.doctor.finding import Finding, Grade, fault, note
from namesrv_stream.tools.tool_options import HttpOption, OldHttpOption, emit_json, named_http_servers

if TYPE_CHECKING:
    from namesrv_stream.kafka.inspection import InspectedLog

# Functions import Kafka and Delta when they run, because these take a second and other commands do not need them.

_STYLES: Final = {Grade.FINE: "green", Grade.NOTE: "cyan", Grade.WARNING: "yellow", Grade.FAULT: "bold red"}
_AREA_WIDTH: Final = 18


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(configured(doctor))


def doctor(
    configuration: Configuration, http: HttpOption = None, servers: OldHttpOption = None, as_json: JsonOption = False
) -> int:
    """Check the installation and say what to fix.

    It checks Java, ports, Kafka and its topics, clocks, tables and versions.
    """
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
    line.append(f"{finding.area:<{_AREA_WIDTH}} {printable(finding.text)}", style="default")
    if finding.remedy:
        line.append(f"\n{'':<5}{'':<{_AREA_WIDTH}} -> {printable(finding.remedy)}", style="default")
    return line


def _summary(found: list[Finding]) -> str:
    faults = sum(f.grade is Grade.FAULT for f in found)
    warnings = sum(f.grade is Grade.WARNING for f in found)
    if not faults and not warnings:
        return "no faults, no warnings"
    return f"{faults} {'fault' if faults == 1 else 'faults'}, {warnings} {'warning' if warnings == 1 else 'warnings'}"


def examine(settings: Settings, urls: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Run all checks and yield their findings; blocks, for some seconds if Kafka or a server does not answer.

    The checks change nothing, except for a file that one writes to an object store and removes.

    Args:
        urls: Servers to check, ``http://host:port``; if empty, the one of this data directory.
    """
    from namesrv_stream.tools.doctor import log_and_tables, machine, registered_brokers, running

    yield machine.packages()
    yield machine.native_lane(settings)
    yield from machine.environment(settings)
    yield from machine.java_and_jars(settings)
    yield from machine.files(settings)
    yield machine.memory(settings, machine.memory_limit_bytes())
    yield machine.open_files(settings)
    yield from machine.disk(settings)
    yield machine.clock_sync()
    yield from running.processes(settings)
    yield from running.ports(settings)
    yield from running.exposure(settings)
    yield from log_and_tables.object_store(settings)
    rows = log_and_tables.read_route_tables(settings)
    log = yield from _log(settings)
    yield from log_and_tables.route_tables(settings, rows, log)
    yield from registered_brokers.contradictions(rows)
    yield from registered_brokers.drains(rows, SystemClock().now_ms())
    yield from log_and_tables.history_tables(settings, rows, SystemClock().now_ms())
    yield from running.servers(settings, urls)


def _log(settings: Settings) -> Generator[Finding, None, "InspectedLog | None"]:
    """Check Kafka; returns the inspected log, None if Kafka did not answer."""
    from namesrv_stream.kafka.inspection import inspect_log
    from namesrv_stream.tools.doctor import event_log

    if settings.is_kafka_embedded and "kafka" not in running_parts(settings.data.run_dir):
        yield note(
            "Kafka", "the embedded Kafka does not run: start it with `namesrv-stream up` or `namesrv-stream kafka`"
        )
        return None
    try:
        log = inspect_log(settings)
    except KafkaUnreachable as error:
        yield fault("Kafka", error.name, error.remedy)
        return None
    except ConfigError as error:
        yield fault("Kafka", f"{error.key}: {error.reason}", f"correct {error.source}")
        return None
    yield from event_log.topics(settings, log)
    yield from event_log.kafka_clock(log, SystemClock().now_ms(), part_state(settings.data.run_dir, "job"))
    return log
