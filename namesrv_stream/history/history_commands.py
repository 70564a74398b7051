"""The commands ``history`` and ``route``, and mqadmin's ``topicRoute``."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import orjson
import typer

from namesrv_stream.client.commands import answer_text
from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.client.commands.query_commands import show_route
from namesrv_stream.client.commands.query_options import Target, emit, name_server_command
from namesrv_stream.client.commands.view_commands import show_route_in_view
from namesrv_stream.client.route import TopicRouteData, decode_topic_route
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.history.answer import Window
from namesrv_stream.instants import COMMAND_LINE, check_past, instant, parse_instant
from namesrv_stream.settings.installation import Configuration, configured
from namesrv_stream.text_table import JsonOption, WideOption, json_text

if TYPE_CHECKING:
    from namesrv_stream.history.answer import Answer


_EXCLUSIVE: Final = (
    *(("BROKER", "--topic"), ("BROKER", "--cluster"), ("--topic", "--cluster")),
    *(("BROKER", "--flaps"), ("BROKER", "--outages"), ("--topic", "--flaps")),
    *(("--flaps", "--outages"), ("--json", "--csv")),
)


def register(app: typer.Typer) -> None:
    """Add ``history`` to ``app``."""
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
        str, typer.Option("--since", help="How far to look back, for example 7d, or a time.", metavar="WHEN")
    ] = "7d",
    until: Annotated[
        str, typer.Option("--until", help="A time, or how long ago, for example -2h.", metavar="WHEN")
    ] = "now",
    flaps: Annotated[bool, typer.Option("--flaps", help="How often brokers went down and came back up.")] = False,
    outages: Annotated[bool, typer.Option("--outages", help="When brokers, or all of them, were down.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the first table as CSV.")] = False,
    raw_csv: Annotated[
        bool, typer.Option("--raw-csv", help="As --csv, but without an apostrophe before a text like a formula.")
    ] = False,
    wide: WideOption = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write a plot to FILE.html.", metavar="FILE.html")] = None,
) -> None:
    """Query the history: sessions, routes, outages, availability.

    Without arguments, it shows the availability of every broker.
    """
    as_csv = as_csv or raw_csv
    _check_flags(
        {
            "BROKER": broker,
            "--topic": topic,
            "--cluster": cluster,
            "--flaps": flaps,
            "--outages": outages,
            "--json": as_json,
            "--csv": as_csv,
        }
    )
    # Imported here, because Arrow and Delta take a second to import, and other commands do not need them.
    from namesrv_stream.history.drawing import check_plot_file
    from namesrv_stream.history.questions import Question, answer_question

    if plot is not None:
        check_plot_file(plot)
    window = parse_window(since, until, SystemClock().now_ms())
    question = Question(window, broker, topic, cluster, flaps=flaps, outages=outages, plot=plot)
    answer = answer_question(configuration.load().settings, question)
    _print(answer, as_json=as_json, as_csv=as_csv, raw_csv=raw_csv, wide=wide)
    if plot is not None:
        print(f"written to {plot}", file=sys.stderr if as_json or as_csv else sys.stdout)


def parse_window(since: str, until: str, now_ms: int) -> Window:
    """Return the period of a question.

    Raises:
        ConfigError: A time is invalid or in the future, or the end is not after the start.
    """
    since_ms, until_ms = parse_instant("--since", since, now_ms), parse_instant("--until", until, now_ms)
    check_past("--since", since_ms, now_ms)
    check_past("--until", until_ms, now_ms)
    if since_ms >= until_ms:
        reason = f"{instant(since_ms)} is not earlier than --until, {instant(until_ms)}"
        raise ConfigError(COMMAND_LINE, "--since", reason)
    return Window(since_ms, until_ms)


def _check_flags(given: Mapping[str, str | bool | None]) -> None:
    """Refuse empty values and flags that cannot be combined.

    Raises:
        ConfigError: A value is empty, or two of the flags cannot be combined.
    """
    for flag, value in given.items():
        if value == "":
            raise ConfigError(COMMAND_LINE, flag, "is empty")
    for one, other in _EXCLUSIVE:
        if given[one] and given[other]:
            reason = f"cannot be combined with {other}"
            if one == "BROKER" and other in ("--flaps", "--outages"):
                reason += f": use `history {other}` for all brokers, or `history {given[one]}` for this one"
            raise ConfigError(COMMAND_LINE, one, reason)


def _print(answer: "Answer", *, as_json: bool, as_csv: bool, raw_csv: bool, wide: bool) -> None:
    from namesrv_stream.history import answer as forms

    if as_json:
        forms.print_json(answer)
    elif as_csv:
        sys.stdout.write(forms.as_csv(answer.sections[0], raw=raw_csv))
        for note in answer.notes:
            print(f"note: {note}", file=sys.stderr)
    else:
        forms.print_text(answer, wide=wide)
    sys.stdout.flush()


AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        help="The route at that time, from the tables: '2026-11-20 03:12' (local), 03:12, -2h, ISO 8601, epoch ms.",
        metavar="WHEN",
    ),
]


ViewOption = Annotated[
    str | None,
    typer.Option("--view", help="The route as clients of this address view receive it.", metavar="VIEW"),
]


def register_route(app: typer.Typer, mqadmin_app: typer.Typer) -> None:
    """Add ``route`` to ``app``, and ``topicRoute`` to ``app`` and ``mqadmin_app``."""
    app.command()(name_server_command(route))
    app.command("topicRoute", hidden=True)(name_server_command(topic_route, is_of_mqadmin=True))
    mqadmin_app.command("topicRoute")(name_server_command(topic_route, is_of_mqadmin=True))


def route(
    target: Target,
    topic: Annotated[str | None, typer.Argument(help="The topic.", metavar="TOPIC", show_default=False)] = None,
    topic_option: Annotated[
        str | None, typer.Option("--topic", "-t", help="The topic, as an option (mqadmin style).", metavar="TOPIC")
    ] = None,
    as_of: AsOfOption = None,
    view: ViewOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show which brokers serve a topic, now or at another time."""
    _show(target, topic or topic_option, as_of, as_json, partial(answer_text.print_route, wide=wide), view)


def topic_route(
    target: Target,
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", show_default=False)],
    as_list: Annotated[bool, typer.Option("--list", "-l", help="A table instead of JSON.")] = False,
    as_of: AsOfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which brokers serve a topic, as JSON or a table."""
    _show(target, topic, as_of, as_json or not as_list, lambda found: emit(answer_text.topic_route(found)))


def _show(
    target: Target,
    topic: str | None,
    as_of: str | None,
    as_json: bool,
    print_table: Callable[[TopicRouteData], None],
    view: str | None = None,
) -> None:
    if not topic:
        raise ConfigError(COMMAND_LINE, "TOPIC", "is missing")
    if as_of is not None:
        _show_past_route(target.configuration, topic, as_of, as_json, print_table, view)
    elif view is not None:
        show_route_in_view(target, topic, view, as_json=as_json, print_table=print_table)
    else:
        show_route(target, topic, as_json=as_json, print_table=print_table)


def _show_past_route(
    configuration: Configuration,
    topic: str,
    as_of: str,
    as_json: bool,
    print_table: Callable[[TopicRouteData], None],
    view: str | None,
) -> None:
    # Imported here, because Arrow and Delta take a second to import, and the current route does not need them.
    from namesrv_stream.history.past_route import read_past_route

    settings, now_ms = configuration.load().settings, SystemClock().now_ms()
    found = read_past_route(settings, topic, as_of, now_ms, flag="--as-of", address_view=view)
    if as_json:
        emit(json_text(orjson.loads(found.json_text())))
    else:
        print_table(decode_topic_route(topic, found.body()))
        emit("".join(f"{printable(line)}\n" for line in found.lines()))
