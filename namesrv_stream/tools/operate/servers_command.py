"""``servers``: the name servers that have written to the log, and which of them are on the list for clients."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import typer

from namesrv_stream.client.server_states import get
from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import COMMAND_LINE, instant
from namesrv_stream.logs import safe
from namesrv_stream.settings.installation import Configuration, configured
from namesrv_stream.text_table import JsonOption, TextColumn, WideOption
from namesrv_stream.text_table import print_table as print_rows
from namesrv_stream.tools.tool_options import HttpOption, emit_json, http_servers

_COLUMNS = (
    TextColumn("SERVER", is_text=True),
    TextColumn("ADDRESS"),
    TextColumn("STATUS"),
    TextColumn("STARTED", is_optional=True),
    TextColumn("LISTED", is_text=True),
)


@dataclass(frozen=True, slots=True)
class NameServer:
    """A name server in the answer of ``/servers``; ``server_epoch`` is its start, epoch milliseconds."""

    server_id: str
    server_epoch: int
    status: str
    address: str
    is_listed: bool
    why_not: str | None


@dataclass(frozen=True, slots=True)
class ServerList:
    """The answer of ``/servers``; ``addresses`` is what the server answers at ``/rocketmq/nsaddr``."""

    addresses: Sequence[str]
    source: str
    servers: Sequence[NameServer]
    unknown_unlisted: Sequence[str]
    still_listed: Sequence[str] = ()  # absent in the answer of an older server


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(configured(servers))


def servers(
    configuration: Configuration, http: HttpOption = None, wide: WideOption = False, as_json: JsonOption = False
) -> None:
    """List the name servers, and show which ones are listed."""
    url, *others = http_servers(http, None, configuration)
    if others:
        raise ConfigError(COMMAND_LINE, "--http", "expected one server, because all servers have the same list")
    found = asyncio.run(get(url, "/servers", ServerList, is_certificate_checked=http is not None))
    if as_json:
        emit_json(asdict(found))
    else:
        print_servers(found, wide=wide)


def print_servers(found: ServerList, *, wide: bool = False) -> None:
    """Print a line for every server, then the list that clients receive, and where it comes from."""
    rows = [
        [
            safe(server.server_id),
            safe(server.address) or "-",
            safe(server.status),
            instant(server.server_epoch),
            "yes" if server.is_listed else f"no: {safe(server.why_not or '')}",
        ]
        for server in found.servers
    ]
    print_rows(_COLUMNS, rows, wide=wide)
    for server_id in found.unknown_unlisted:
        print(f"no server has the id {safe(server_id)}, which is unlisted by a KV entry")
    for server_id in found.still_listed:
        print(f"{safe(server_id)} stays listed: its KV entry has no effect, because the list would be empty")
    print(f"\n/rocketmq/nsaddr answers {safe(';'.join(found.addresses))} (from {found.source})")
