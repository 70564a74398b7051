"""``status``: which brokers are alive and since when, which are late or down, and the health of all parts."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from namesrv_stream.client.server_states import ServerUnreachable
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.instants import instant
from namesrv_stream.logs import report_error, safe
from namesrv_stream.run_books import RunBook, with_run_book
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import Configuration, configured, late_history, running_parts
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.text_table import JsonOption, TextColumn, WideOption
from namesrv_stream.text_table import print_table as print_rows
from namesrv_stream.tools.operate.status import (
    ENDED,
    NEED_ATTENTION,
    BrokerProcess,
    Condition,
    Health,
    Part,
    Status,
    find_status,
)
from namesrv_stream.tools.tool_options import HttpOption, OldHttpOption, emit_json, http_servers, print_table

#: Rows of a table without ``--all``.
MOST_ROWS: Final = 40
_STYLES: Final = {
    **dict.fromkeys(("ok", Condition.ALIVE), "green"),
    **dict.fromkeys(("degraded", Condition.LATE, Condition.PROTECTED), "yellow"),
    **dict.fromkeys(("failed", "no answer", Condition.DOWN), "red"),
}
_NAMES: Final = (
    TextColumn("CLUSTER", is_text=True),
    TextColumn("BROKER"),
    TextColumn("ID", is_optional=True),
    TextColumn("ADDRESS"),
    TextColumn("STATE"),
)
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_INTERVAL_S: Final = 2.0


def print_status(status: Status, now_ms: int, *, everything: bool = False, wide: bool = False) -> None:
    """Print the parts of every server, the live brokers, and those that ended within the last day.

    Args:
        everything: Whether to show all brokers.
        wide: Whether tables may be wider than the terminal.
    """
    _print_parts(status, now_ms)
    if status.servers:
        live = [broker for broker in status.brokers if broker.condition not in ENDED]
        _print_counts(status.brokers)
        _print_live(_shown(live, everything), now_ms, wide=wide)
        _print_cut(live, everything)
        _print_ended([b for b in status.brokers if b.condition in ENDED], now_ms, everything=everything, wide=wide)
    for failure in status.failures.values():
        report_error(str(failure))


def _print_parts(status: Status, now_ms: int) -> None:
    if not status.servers:
        return
    has_many = len(status.servers) + len(status.failures) > 1
    table = Table(*(["SERVER"] if has_many else []), "PART", "STATE", "DETAIL", box=None, pad_edge=False)
    for url, health in status.servers.items():
        for part in health.parts:
            _add_part(table, [url] if has_many else [], part, _detail(part, health, now_ms))
    for url in status.failures:
        _add_part(table, [url], Part("server", "no answer"), "")
    if status.history is not None:
        to_ms, age = status.history_to_ms, ""
        if to_ms is not None:
            age = f"data up to {instant(to_ms)}, {duration(now_ms - to_ms)} ago"
        reason = with_run_book(status.history.reason, status.history.run_book)
        detail = "; ".join(filter(None, (age, reason)))
        _add_part(table, ["-"] if has_many else [], status.history, detail)
    print_table(table)


def _add_part(table: Table, head: list[str], part: Part, detail: str) -> None:
    cells = [*map(escape, head), escape(safe(part.name)), _styled(part.state), escape(safe(detail))]
    table.add_row(*cells)


def _detail(part: Part, health: Health, now_ms: int) -> str:
    if part.reason:
        return with_run_book(part.reason, part.run_book)
    if part.name == "tables":
        return f"version {health.version}, last commit {duration(health.age_ms)} ago"
    return "" if part.since_ms is None else f"for {duration(now_ms - part.since_ms)}"


def _print_counts(brokers: Sequence[BrokerProcess]) -> None:
    counts = Counter(broker.condition for broker in brokers)
    shown = [f"{counts[c]} {c}" for c in Condition if counts[c]]
    if drained := sum(broker.drained is not None and broker.condition not in ENDED for broker in brokers):
        shown.append(f"{drained} drained")
    print(f"\nBroker processes: {', '.join(shown) or 'none'}")


def _print_live(brokers: Sequence[BrokerProcess], now_ms: int, *, wide: bool) -> None:
    if not brokers:
        return
    rows = []
    for broker in brokers:
        age = "-" if broker.age_ms is None else duration(broker.age_ms)
        up = ">1d" if broker.is_older else "-"
        if broker.since_ms is not None:
            up = duration(now_ms - broker.since_ms)
        state = f"{broker.condition}, drained" if broker.drained else broker.condition
        rows.append([*_names(broker), state, f"{age} of {duration(broker.expires_after_ms)}", up])
    columns = [*_NAMES, TextColumn("HEARTBEAT"), TextColumn("UP", is_optional=True)]
    print_rows(columns, rows, wide=wide, styles=[_STYLES.get(broker.condition) for broker in brokers])


def _print_ended(brokers: Sequence[BrokerProcess], now_ms: int, *, everything: bool, wide: bool) -> None:
    if not brokers:
        return
    print("\nEnded within the last 24 hours")
    shown = brokers if everything else brokers[:MOST_ROWS]
    rows = []
    for broker in shown:
        ago = duration(now_ms - int((broker.ended or {}).get("at_ms", now_ms)))
        rows.append([*_names(broker), broker.condition, ago, safe(_cause(broker))])
    columns = [*_NAMES, TextColumn("AGO"), TextColumn("CAUSE", is_text=True)]
    print_rows(columns, rows, wide=wide, styles=[_STYLES.get(broker.condition) for broker in shown])
    if len(brokers) > len(shown):
        print(f"{len(brokers) - len(shown)} more ended before; --all shows them")


def _cause(broker: BrokerProcess) -> str:
    ended = broker.ended or {}
    cause = str(ended.get("cause"))
    if replaced_by := ended.get("replaced_by"):
        return f"replaced by {replaced_by}"
    return f"expired (timeout {duration(broker.expires_after_ms)})" if cause == "expired" else cause


def _shown(brokers: Sequence[BrokerProcess], everything: bool) -> Sequence[BrokerProcess]:
    """Return all brokers, or those that need attention and then others, up to the limit of rows."""
    if everything or len(brokers) <= MOST_ROWS:
        return brokers
    return sorted(brokers, key=lambda broker: broker.condition not in NEED_ATTENTION)[:MOST_ROWS]


def _print_cut(brokers: Sequence[BrokerProcess], everything: bool) -> None:
    if len(brokers) > MOST_ROWS and not everything:
        hidden = Counter(b.condition for b in brokers) - Counter(b.condition for b in _shown(brokers, everything))
        print(f"{', '.join(f'{n} more {condition}' for condition, n in hidden.items())}; --all shows them")


def _names(broker: BrokerProcess) -> list[str]:
    broker_id = "-" if broker.broker_id is None else str(broker.broker_id)
    return [safe(broker.cluster), safe(broker.broker_name), broker_id, safe(broker.broker_addr)]


def _styled(state: str) -> str:
    style = _STYLES.get(state)
    return f"[{style}]{escape(state)}[/]" if style else escape(state)


def duration(ms: int) -> str:
    """Return a duration in its two largest units, as ``2h5m``; below a minute in seconds, as ``2.1s``."""
    seconds = max(ms, 0) / 1000
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    for (size, unit), (smaller, small_unit) in pairwise(_UNITS):
        if seconds >= size:
            rest = int(seconds % size // smaller)
            return f"{int(seconds // size)}{unit}" + (f"{rest}{small_unit}" if rest else "")
    raise AssertionError(ms)


def to_json(status: Status) -> dict[str, Any]:
    """Return the status as JSON."""
    return {
        "needs_attention": status.needs_attention,
        "servers": {url: asdict(health) for url, health in status.servers.items()},
        "failures": {url: failure.reason for url, failure in status.failures.items()},
        "history": None
        if status.history is None
        else {"state": status.history.state, "reason": status.history.reason, "data_to_ms": status.history_to_ms},
        "brokers": [asdict(broker) | {"condition": broker.condition} for broker in status.brokers],
    }


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(configured(status))


def status(
    configuration: Configuration,
    http: HttpOption = None,
    servers: OldHttpOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh the output every two seconds.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show every broker, however many there are.")] = False,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> int:
    """Show the state of all parts and brokers.

    Exit code 0 if all is well; 1 if a part is degraded, or a broker is down, protected or late; 3 if no server
    answers.
    """
    if watch and as_json:
        raise ConfigError("command line", "--watch", "cannot be combined with --json")
    urls = http_servers(http, servers, configuration)
    # With servers on the command line, the tables are unknown and certificates must be valid.
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
        is_silent = all(isinstance(failure, ServerUnreachable) for failure in found.failures.values())
        if here is not None and is_silent and not found.servers:
            print(f"({_what_runs(here)})", file=sys.stderr)
        if not watch:
            return found.exit_code
        sys.stdout.flush()
        time.sleep(_INTERVAL_S)


def _what_runs(settings: Settings) -> str:
    running = running_parts(settings.data.run_dir)
    if "serve" in running:
        return f"the server of {settings.data.dir} runs, but does not answer: it is suspended or too busy"
    if running:
        return f"{settings.data.dir} has running parts ({', '.join(running)}), but no server"
    return f"nothing runs on {settings.data.dir}; name another installation with --data-dir, or servers with --http"


def _add_history(status: Status, settings: Settings) -> None:
    """Add the state of the history on this machine: whether its process runs, and how far its tables reach."""
    from namesrv_stream.tables.history_files import read_mark
    from namesrv_stream.tables.layout import HEARTBEAT_MINUTES

    if not settings.has_history or not status.servers:
        return
    try:
        mark = read_mark(tables_of(settings) / HEARTBEAT_MINUTES)
    except (NamesrvStreamError, OSError) as error:
        status.history = Part("history", "degraded", str(error), run_book=RunBook.HISTORY_BEHIND)
        return
    status.history_to_ms = (mark.newest_ms if mark else 0) or None
    status.history = Part("history", "ok", "" if status.history_to_ms else "no data yet")
    if reason := late_history(settings, status.history_to_ms or 0, SystemClock().now_ms()):
        status.history = Part("history", "degraded", reason, run_book=RunBook.HISTORY_BEHIND)
