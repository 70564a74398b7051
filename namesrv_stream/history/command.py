"""``namesrv-stream history``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.history.plot_file import check_plot_file
from namesrv_stream.history.window import Window
from namesrv_stream.instants import COMMAND_LINE, check_past, instant, parse_instant, parse_since
from namesrv_stream.settings.command_line import Configuration, configured
from namesrv_stream.text_table import WideOption

if TYPE_CHECKING:
    from namesrv_stream.history.answer import Answer


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(configured(history))


def history(
    configuration: Configuration,
    broker: Annotated[
        str | None, typer.Argument(help="A broker name: its sessions and changes.", metavar="BROKER")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="How the route of a topic changed.", metavar="TOPIC")
    ] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only this cluster.", metavar="CLUSTER")] = None,
    since: Annotated[
        str, typer.Option("--since", help="How far to look back, as 7d, or an instant.", metavar="WHEN")
    ] = "7d",
    until: Annotated[str, typer.Option("--until", help="An instant, or how long ago as -2h.", metavar="WHEN")] = "now",
    flaps: Annotated[bool, typer.Option("--flaps", help="How often brokers went and came back.")] = False,
    outages: Annotated[bool, typer.Option("--outages", help="When brokers, or all of them, were gone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the first table as CSV.")] = False,
    raw_csv: Annotated[
        bool, typer.Option("--raw-csv", help="As --csv, but without an apostrophe before a text like a formula.")
    ] = False,
    wide: WideOption = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write a plot to FILE.png.", metavar="FILE.png")] = None,
) -> None:
    """Query the history: sessions, routes, outages, availability.

    Without arguments: the availability of every broker.
    """
    as_csv = as_csv or raw_csv
    _check_flags(broker, topic, cluster, flaps=flaps, outages=outages, as_json=as_json, as_csv=as_csv)
    if plot is not None:
        check_plot_file(plot)
    # Spared to the other commands: Arrow and Delta take a second to import.
    from namesrv_stream.history.asking import Question, ask

    window = Window(*asked_span(since, until, SystemClock().now_ms()))
    question = Question(window, broker, topic, cluster, flaps=flaps, outages=outages, plot=plot)
    answer = ask(configuration.load().settings, question)
    _print(answer, as_json=as_json, as_csv=as_csv, raw_csv=raw_csv, wide=wide)
    if plot is not None:
        print(f"written to {plot}", file=sys.stderr if as_json or as_csv else sys.stdout)


def asked_span(since: str, until: str, now_ms: int) -> tuple[int, int]:
    """Begin and end of the time asked about, epoch milliseconds.

    Raises:
        ConfigError: One is no instant or lies in the future, or the end is not after the begin.
    """
    since_ms, until_ms = parse_since("--since", since, now_ms), parse_instant("--until", until, now_ms)
    check_past("--since", since_ms, now_ms)
    check_past("--until", until_ms, now_ms)
    if since_ms >= until_ms:
        raise ConfigError(
            COMMAND_LINE, "--since", f"{instant(since_ms)} does not lie before --until, {instant(until_ms)}"
        )
    return since_ms, until_ms


def _check_flags(
    broker: str | None,
    topic: str | None,
    cluster: str | None,
    *,
    flaps: bool,
    outages: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Refuse what cannot be asked, or not together.

    Raises:
        ConfigError: It is that.
    """
    for name, value in (("BROKER", broker), ("--topic", topic), ("--cluster", cluster)):
        if value == "":
            raise ConfigError(COMMAND_LINE, name, "is empty")
    for one, other in (
        (broker and "BROKER", topic and "--topic"),
        (broker and "BROKER", cluster and "--cluster"),
        (topic and "--topic", cluster and "--cluster"),
        (broker and "BROKER", (flaps and "--flaps") or (outages and "--outages")),
        (topic and "--topic", flaps and "--flaps"),
        (flaps and "--flaps", outages and "--outages"),
        (as_json and "--json", as_csv and "--csv"),
    ):
        if one and other:
            reason = f"cannot be combined with {other}"
            if one == "BROKER" and other in ("--flaps", "--outages"):
                reason += f": ask `history {other}` for all brokers, or `history {broker}` for this one"
            raise ConfigError(COMMAND_LINE, str(one), reason)


def _print(answer: "Answer", *, as_json: bool, as_csv: bool, raw_csv: bool, wide: bool) -> None:
    from namesrv_stream.history import answer as forms

    if as_json:
        found = forms.as_json(answer)
        sys.stdout.write(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode() + "\n")
    elif as_csv:
        sys.stdout.write(forms.as_csv(answer.sections[0], raw=raw_csv))
        for note in answer.notes:
            print(f"note: {note}", file=sys.stderr)
    else:
        forms.print_text(answer, wide=wide)
    sys.stdout.flush()
