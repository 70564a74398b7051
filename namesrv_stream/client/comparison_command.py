"""``compare``: do these name servers know the same? One can be the Java NameServer that is to be replaced."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from namesrv_stream.client.address_server import is_address_server
from namesrv_stream.client.command_line import TIMEOUT_MS, JsonOption, Target, asks, emit, json_text
from namesrv_stream.client.comparison import Comparison, compare
from namesrv_stream.client.name_servers import NameServers, parse_name_servers
from namesrv_stream.errors import ConfigError
from namesrv_stream.logs import safe

_ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
_NOUNS = {"cluster": "cluster", "broker": "broker", "topic": "topic", "kv": "KV namespace"}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("compare")(asks(compare_servers))


def compare_servers(
    target: Target,
    namespaces: Annotated[
        list[str] | None,
        typer.Option("--namespace", help="Of KV entries to compare, beside RocketMQ's own.", metavar="NAME"),
    ] = None,
    patience_s: Annotated[
        float, typer.Option("--patience", help="Seconds for what differs to settle.", min=0, max=3600)
    ] = 5.0,
    as_json: JsonOption = False,
) -> None:
    """Compare the content of name servers of any make.

    Compares clusters, brokers, routes and KV entries of name servers of this product and of RocketMQ.
    """

    async def ask(servers: NameServers) -> Comparison:
        return await compare(addrs, target.credentials, target.tls, names, TIMEOUT_MS, patience_s)

    names = dict.fromkeys([_ORDER_NAMESPACE, *(namespaces or ())])
    addrs = _addrs(target)
    found = target.ask(ask)
    if as_json:
        rows = [
            {"kind": d.key.kind, "name": d.key.name, "fact": d.fact, "values": dict(d.values)}
            for d in found.differences
        ]
        emit(json_text({"compared": found.compared, "differences": rows}))
    else:
        _print(addrs, found)
    if found.differences:
        raise typer.Exit(1)


def _addrs(target: Target) -> tuple[str, ...]:
    if is_address_server(target.name_servers):
        raise ConfigError("command line", "-n", "expected the name servers themselves, host:port;host:port")
    addrs = parse_name_servers(target.name_servers)
    if len(addrs) < 2:
        raise ConfigError("command line", "-n", "expected two name servers at least, host:port;host:port")
    return addrs


def _print(addrs: tuple[str, ...], found: Comparison) -> None:
    what = ", ".join(_count(n, _NOUNS[kind]) for kind, n in found.compared.items())
    if not found.differences:
        emit(f"equal: {what}\n")
        return
    table = Table("what", "name", "fact", *map(escape, addrs), box=None, pad_edge=False)
    for difference in found.differences:
        values = [difference.values[addr] for addr in addrs]
        cells = [difference.key.kind, difference.key.name, difference.fact, *("-" if v is None else v for v in values)]
        table.add_row(*(escape(safe(cell)) for cell in cells))
    console = Console(highlight=False, width=10_000)
    with console.capture() as capture:
        console.print(table, crop=False)
    emit("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
    emit(f"\n{_count(len(found.differences), 'difference')} in {what}\n")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
