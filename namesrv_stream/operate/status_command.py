"""``status``: who is alive and since when, who is close to its expiry, who ended today, and how the parts are."""

import asyncio
import sys
import time
from typing import Annotated, Final

import typer
from rich.console import Console

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.operate.options import HttpOption, JsonOption, OldHttpOption, http_servers
from namesrv_stream.operate.output import emit_json
from namesrv_stream.operate.status import Part, Status, find_status
from namesrv_stream.operate.status_text import as_json as to_json
from namesrv_stream.operate.status_text import print_status
from namesrv_stream.settings import Settings
from namesrv_stream.settings.command_line import Configuration
from namesrv_stream.settings.installation import running_parts
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.text_table import WideOption

_INTERVAL_S: Final = 2.0
#: The history job needs up to a minute or two after a start.
_HISTORY_LATE_MS: Final = 300_000


def status(
    configuration: Configuration,
    http: HttpOption = None,
    servers: OldHttpOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show every broker, however many there are.")] = False,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> int:
    """Show the state of all parts and brokers.

    Exit code 0 if all is well; 1 if a part is degraded, or a broker is down, protected or overdue; 3 if no server
    answers.
    """
    if watch and as_json:
        raise ConfigError("command line", "--watch", "cannot be combined with --json")
    urls = http_servers(http, servers, configuration)
    # Where servers are named, nothing is known of tables, and certificates must be right.
    here = configuration.load().settings if http is None and servers is None else None
    console = Console(file=sys.stdout)
    while True:
        found = asyncio.run(find_status(urls, is_certificate_checked=here is None))
        if here is not None:
            _add_history(found, here)
        if watch and console.is_terminal:
            console.clear()
        if as_json:
            emit_json(to_json(found))
        else:
            print_status(found, SystemClock().now_ms(), everything=everything, wide=wide)
        if here is not None and not found.servers:
            print(f"({_what_runs(here)})", file=sys.stderr)
        if not watch:
            return found.exit_code
        sys.stdout.flush()
        time.sleep(_INTERVAL_S)


def _what_runs(settings: Settings) -> str:
    running = ", ".join(running_parts(settings.data.run_dir))
    if running:
        return f"on {settings.data.dir} run: {running}, but no server"
    return f"nothing runs on {settings.data.dir}; name another installation with --data-dir, or servers with --http"


def _add_history(status: Status, settings: Settings) -> None:
    """What this machine knows of the history: whether its process runs beside ``up``, and how far its tables reach."""
    from namesrv_stream.tables.history_mark import read_mark
    from namesrv_stream.tables.schema.history_columns import HEARTBEAT_MINUTES

    if not settings.has_history or not status.servers:
        return
    try:
        mark = read_mark(tables_of(settings) / HEARTBEAT_MINUTES)
    except (NamesrvStreamError, OSError) as error:
        status.history = Part("history", "degraded", str(error))
        return
    parts = running_parts(settings.data.run_dir)
    if mark is not None and mark.at_ms:
        status.history_to_ms = max(mark.at_ms.values())
    if "history-job" in parts or "job" not in parts:  # the jobs may run elsewhere
        status.history = Part("history", "ok", "" if status.history_to_ms else "no data yet")
        return
    is_late = SystemClock().now_ms() - (status.history_to_ms or 0) > _HISTORY_LATE_MS
    status.history = Part("history", "degraded" if is_late else "ok", "its job has not written since the last start")
