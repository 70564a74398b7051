"""The command ``route``, and mqadmin's ``topicRoute``: the current route from a name server, a past one from tables."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import orjson
import typer

from namesrv_stream.client.commands import tables
from namesrv_stream.client.commands.options import JsonOption, Target, asks, emit, json_text
from namesrv_stream.client.commands.query_commands import show_route
from namesrv_stream.client.commands.tables import printable
from namesrv_stream.client.route import TopicRouteData, decode_topic_route
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import COMMAND_LINE
from namesrv_stream.settings.installation import Configuration
from namesrv_stream.text_table import WideOption

AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        help="The route at that time, from the tables: '2026-11-20 03:12' (local), 03:12, -2h, ISO 8601, epoch ms.",
        metavar="WHEN",
    ),
]


def register(app: typer.Typer, mqadmin_app: typer.Typer) -> None:
    """Add the commands to the command line, and the one under mqadmin's name to mqadmin's group."""
    app.command()(asks(route))
    app.command("topicRoute", hidden=True)(asks(topic_route, is_of_mqadmin=True))
    mqadmin_app.command("topicRoute")(asks(topic_route, is_of_mqadmin=True))


def route(
    target: Target,
    topic: Annotated[str | None, typer.Argument(help="The topic.", metavar="TOPIC", show_default=False)] = None,
    topic_option: Annotated[
        str | None, typer.Option("--topic", "-t", help="The topic, as an option (mqadmin style).", metavar="TOPIC")
    ] = None,
    as_of: AsOfOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show which brokers serve a topic, now or at another time."""
    _show(target, topic or topic_option, as_of, as_json, partial(tables.print_route, wide=wide))


def topic_route(
    target: Target,
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", show_default=False)],
    as_list: Annotated[bool, typer.Option("--list", "-l", help="A table instead of JSON.")] = False,
    as_of: AsOfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which brokers serve a topic, as JSON or a table."""
    _show(target, topic, as_of, as_json or not as_list, lambda found: emit(tables.topic_route(found)))


def _show(
    target: Target, topic: str | None, as_of: str | None, as_json: bool, print_table: Callable[[TopicRouteData], None]
) -> None:
    if not topic:
        raise ConfigError(COMMAND_LINE, "TOPIC", "is missing")
    if as_of is None:
        show_route(target, topic, as_json=as_json, print_table=print_table)
    else:
        _show_past_route(target.configuration, topic, as_of, as_json, print_table)


def _show_past_route(
    configuration: Configuration, topic: str, as_of: str, as_json: bool, print_table: Callable[[TopicRouteData], None]
) -> None:
    # Imported here, because Arrow and Delta take a second to import, and the current route does not need them.
    from namesrv_stream.history.past_route import ask_route

    found = ask_route(configuration.load().settings, topic, as_of, SystemClock().now_ms(), flag="--as-of")
    if as_json:
        emit(json_text(orjson.loads(found.json_text())))
    else:
        print_table(decode_topic_route(topic, found.body()))
        emit("".join(f"{printable(line)}\n" for line in found.lines()))
