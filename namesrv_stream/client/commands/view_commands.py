"""The commands ``view``, and ``route --view``: address views, which are entries of the key-value table."""

from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlencode

import orjson
import typer

from namesrv_stream.client import admin, queries
from namesrv_stream.client.commands.admin_commands import report
from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.client.commands.query_options import TIMEOUT_MS, Target, emit, name_server_command
from namesrv_stream.client.name_servers import NameServers
from namesrv_stream.client.route import TopicRouteData, decode_topic_route
from namesrv_stream.client.server_states import BadAnswer, fetch
from namesrv_stream.errors import ConfigError, QueryNotFound
from namesrv_stream.route.address_views import VIEWS_NAMESPACE, AddressViews
from namesrv_stream.settings.checks import read_view_file
from namesrv_stream.text_table import JsonOption, TextColumn, json_text, print_table

ViewName = Annotated[str, typer.Argument(metavar="VIEW", show_default=False)]
DocumentFile = Annotated[Path, typer.Argument(help="The view, as JSON or TOML.", metavar="FILE", show_default=False)]

_COLUMNS = tuple(map(TextColumn, ("view", "listeners", "networks", "unmapped", "mappings")))


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    view = typer.Typer(help="Read and change address views.", no_args_is_help=True)
    for name, command in (("list", view_list), ("show", view_show), ("set", view_set), ("remove", view_remove)):
        view.command(name)(name_server_command(command))
    app.add_typer(view, name="view")


def view_list(target: Target, as_json: JsonOption = False) -> None:
    """List the address views."""

    async def ask(servers: NameServers) -> dict[str, str]:
        try:
            return await queries.kv_table(servers, VIEWS_NAMESPACE, TIMEOUT_MS)
        except QueryNotFound:
            return {}

    entries = target.ask(ask)
    views = AddressViews(entries)
    if as_json:
        emit(json_text({name: orjson.loads(entries[name]) for name in views.by_name}))
        for fault in views.faults.values():
            typer.echo(f"invalid: {printable(fault)}", err=True)
        return
    rows = [
        (
            view.name,
            " ".join(view.listeners) or "-",
            " ".join(map(str, view.networks)) or "-",
            "keep" if view.keeps_unmapped else "omit",
            str(len(orjson.loads(entries[view.name]).get("mappings", []))),
        )
        for view in views.by_name.values()
    ]
    if rows:
        print_table(_COLUMNS, rows)
    for fault in views.faults.values():
        emit(f"invalid: {printable(fault)}\n")
    if not entries:
        emit("there are no address views\n")


def view_show(target: Target, name: ViewName, as_json: JsonOption = False) -> None:
    """Print the document of an address view as JSON. A value that is not JSON is printed as stored."""
    value = target.ask(lambda servers: queries.kv_value(servers, VIEWS_NAMESPACE, name, TIMEOUT_MS))
    try:
        emit(json_text(orjson.loads(value)))
    except ValueError:
        # stored without the check of this product
        emit(json_text(value) if as_json else f"{printable(value)}\n")


def view_set(target: Target, name: ViewName, file: DocumentFile, as_json: JsonOption = False) -> None:
    """Create or replace an address view."""
    document = read_view_file(file, name, "FILE")
    addrs = target.ask(lambda servers: admin.put_kv(servers, VIEWS_NAMESPACE, name, document, TIMEOUT_MS))
    report(f"set address view {name}", addrs, as_json)


def view_remove(target: Target, name: ViewName, as_json: JsonOption = False) -> None:
    """Remove an address view."""
    addrs = target.ask(lambda servers: admin.delete_known_kv(servers, VIEWS_NAMESPACE, name, TIMEOUT_MS))
    report(f"removed address view {name}", addrs, as_json)


def show_route_in_view(
    target: Target, topic: str, view: str, *, as_json: bool, print_table: Callable[[TopicRouteData], None]
) -> None:
    """Print the current route as clients of an address view receive it.

    Queries the HTTP port, because RocketMQ's route request cannot name a view.
    """
    if target.is_named:
        reason = "needs the HTTP port of the installation: use it without -n and NAMESRV_ADDR"
        raise ConfigError("command line", "--view", reason)
    url, path = target.configuration.http_server(), f"/routes/{quote(topic, safe='')}?{urlencode({'view': view})}"
    answer = fetch(url, path, is_certificate_checked=False)
    if answer.status == HTTPStatus.NOT_FOUND:
        raise QueryNotFound(_detail(answer.body) or f"no route for topic {topic} in view {view}")
    if answer.status != HTTPStatus.OK:
        raise BadAnswer(url, path, str(answer.status))
    found = decode_topic_route(topic, answer.body)
    if as_json:
        emit(json_text(dict(found.raw)))
    else:
        print_table(found)


def _detail(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return ""
