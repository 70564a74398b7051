"""Flags that several commands for operators have."""

from typing import Annotated

import typer

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings.command_line import Configuration

JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")]
WaitOption = Annotated[float, typer.Option("--wait", help="Seconds to wait until the tables have it.", min=0)]
ByOption = Annotated[
    str | None, typer.Option("--by", help="Who changes it. Default: you, as user@host.", metavar="NAME")
]
HttpOption = Annotated[
    str | None,
    typer.Option(
        "--http", help="HTTP addresses of servers. Default: the installation's server.", metavar="'http://HOST:PORT;…'"
    ),
]
#: Before ``--http`` there was this.
OldHttpOption = Annotated[str | None, typer.Option("--servers", "-n", hidden=True)]


def named_http_servers(http: str | None, old: str | None) -> tuple[str, ...]:
    """The servers that ``--http`` names, or its old spelling; none where neither is given.

    Raises:
        ConfigError: One of them is not an HTTP address, or both are given.
    """
    from namesrv_stream.client.server_states import parse_http_addrs

    if http is None and old is None:
        return ()
    if http is not None and old is not None:
        raise ConfigError("command line", "-n", "cannot be combined with --http")
    if old is not None and "://" not in old:
        raise ConfigError("command line", "-n", "this command asks servers over HTTP: --http 'http://HOST:PORT;…'")
    return parse_http_addrs(http or old or "", "--http" if http is not None else "-n")


def http_servers(http: str | None, old: str | None, configuration: Configuration) -> tuple[str, ...]:
    """The same; without them the installation's server.

    Raises:
        ConfigError: One of them is not an HTTP address, or the configuration is wrong.
    """
    return named_http_servers(http, old) or (configuration.http_server(),)
