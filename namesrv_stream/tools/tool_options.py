"""Options that several commands have, and the output of their answers: JSON for scripts, tables for people."""

import getpass
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from namesrv_stream.errors import ConfigError
from namesrv_stream.logs import progress
from namesrv_stream.long_work import LongWork
from namesrv_stream.settings.installation import Configuration, duration_option
from namesrv_stream.text_table import json_text

WaitOption = Annotated[int, duration_option("--wait", help="How long to wait for the change in the tables.", bare="s")]
ByOption = Annotated[
    str | None, typer.Option("--by", help="Who makes the change. Default: you, as user@host.", metavar="NAME")
]
HttpOption = Annotated[
    str | None,
    typer.Option(
        "--http", help="HTTP addresses of servers. Default: the installation's server.", metavar="'http://HOST:PORT;…'"
    ),
]
#: The name of ``--http`` in earlier releases.
OldHttpOption = Annotated[str | None, typer.Option("--servers", "-n", hidden=True)]


def named_http_servers(http: str | None, old: str | None) -> tuple[str, ...]:
    """Return the servers that ``--http`` or its old spelling names; none if neither is given.

    Raises:
        ConfigError: One of them is not an HTTP address, or both are given.
    """
    from namesrv_stream.client.server_states import parse_http_addrs

    if http is None and old is None:
        return ()
    if http is not None and old is not None:
        raise ConfigError("command line", "-n", "cannot be combined with --http")
    if old is not None and "://" not in old:
        raise ConfigError("command line", "-n", "this command uses HTTP: --http 'http://HOST:PORT;…'")
    return parse_http_addrs(http or old or "", "--http" if http is not None else "-n")


def http_servers(http: str | None, old: str | None, configuration: Configuration) -> tuple[str, ...]:
    """Return the servers that the options name, or the installation's server.

    Raises:
        ConfigError: One of them is not an HTTP address, or the configuration is invalid.
    """
    return named_http_servers(http, old) or (configuration.http_server(),)


def current_operator() -> str:
    """Return ``user@host`` of this process, as the name of the operator."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def emit_json(value: Any) -> None:
    """Print JSON, indented, with sorted keys."""
    sys.stdout.write(json_text(value))


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal, or, for a pipe, as wide as the content, so that grep sees whole rows."""
    console = Console(file=sys.stdout, highlight=False)
    if console.is_terminal:
        console.print(table, crop=False)
        return
    console = Console(highlight=False, width=10_000, color_system=None)
    with console.capture() as capture:
        console.print(table, crop=False)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


@contextmanager
def shown_work(remedy: str) -> Iterator[tuple[Callable[[str], None], Callable[[int, int, int], None]]]:
    """Yield a function that prints a line, and one that shows how many records of a partition are done, of how many.

    Args:
        remedy: What an interruption leaves, and how to go on; printed after a Ctrl-C.
    """
    with LongWork("records") as work:

        def say(text: str) -> None:
            work.erase()
            progress(text)

        try:
            yield say, lambda partition, done, total: work.show(f"partition {partition}", done, total)
        except KeyboardInterrupt:
            say(f"interrupted: {remedy}")
            raise


class Source(StrEnum):
    """Where to read the log from; ``auto`` is Kafka as far back as it reaches, and the archive before that."""

    AUTO = "auto"
    KAFKA = "kafka"
    ARCHIVE = "archive"


SourceOption = Annotated[
    Source,
    typer.Option(
        "--source",
        help="Read Kafka, or the archive (broker_events) and then Kafka; auto: the archive for what Kafka has deleted.",
    ),
]
