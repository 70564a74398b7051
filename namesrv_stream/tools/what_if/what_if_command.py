"""``what-if``: replays the log with other timeouts."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError, QueryNotFound
from namesrv_stream.instants import check_past, parse_duration_ms, parse_instant
from namesrv_stream.settings.installation import Configuration, configured
from namesrv_stream.tools.tool_options import Source, SourceOption, shown_work


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("what-if")(configured(what_if))


def what_if(
    configuration: Configuration,
    timeout: Annotated[str, typer.Option("--timeout", help="Timeouts to try.", metavar="60s,90s,…")],
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only this cluster.", metavar="CLUSTER")] = None,
    since: Annotated[
        str, typer.Option("--since", help="Start of the analysis: 24h (ago), or a time.", metavar="WHEN")
    ] = "24h",
    every_broker: Annotated[
        bool, typer.Option("--every-broker", help="Include brokers that request a timeout of their own.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write a plot of the silences and the timeouts.", metavar="FILE.html")
    ] = None,
    source: SourceOption = Source.AUTO,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")] = False,
) -> None:
    """Replay the log with other timeouts.

    It prints the false expiries and the detection time with every timeout, and a suggestion.
    """
    # Imported here because Delta and Kafka take a second, which other commands do not need.
    from namesrv_stream.history.drawing import check_plot_file
    from namesrv_stream.tools.replay.log_archive import log_opener
    from namesrv_stream.tools.what_if.log_analysis import analyse_log
    from namesrv_stream.tools.what_if.partition_analysis import Override
    from namesrv_stream.tools.what_if.what_if_report import cluster_reports, print_report

    now_ms = SystemClock().now_ms()
    since_ms = check_past("--since", parse_instant("--since", since, now_ms), now_ms)
    overrides = [Override(ms, of_every_broker=every_broker) for ms in parse_timeouts(timeout)]
    settings = configuration.load().settings
    if plot is not None:
        check_plot_file(plot)
    # A day of a thousand brokers takes minutes.
    with shown_work("nothing was changed; a later --since reads less") as (_, show):
        analysis = analyse_log(settings, overrides, since_ms, show, log_opener(source))
    reports = cluster_reports(analysis.partitions, analysis.limits)
    if cluster is not None:
        reports = [report for report in reports if report.cluster == cluster]
        if not reports:
            raise QueryNotFound(f"no broker of cluster {cluster} has a heartbeat in that time")
    print_report(analysis, reports, as_json=as_json)
    if plot is not None:
        from namesrv_stream.tools.what_if.what_if_plot import write_timeout_plot

        write_timeout_plot(reports, plot)
        print(f"written to {plot}", file=sys.stderr if as_json else sys.stdout)


def parse_timeouts(text: str) -> list[int]:
    """Return the timeouts in ``60s,90s``, each once, in milliseconds, ascending.

    Raises:
        ConfigError: One is not a duration, or too short or too long.
    """
    found = set()
    for part in text.split(","):
        try:
            found.add(parse_duration_ms(part, least_ms=1_000, most_ms=86_400_000))
        except ValueError as error:
            raise ConfigError("command line", "--timeout", str(error)) from None
    return sorted(found)
