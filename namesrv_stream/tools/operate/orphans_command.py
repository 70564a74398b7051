"""``orphans``: routes that lead to no live broker, and topics and brokers that no client asks for."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Final

import typer

from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.client.server_states import ask_each, get
from namesrv_stream.instants import duration, instant
from namesrv_stream.logs import report_error
from namesrv_stream.route.why.orphans import OF_QUERIES, Orphan, OrphanKind, OrphanReport
from namesrv_stream.settings.installation import Configuration, configured
from namesrv_stream.text_table import JsonOption, counted
from namesrv_stream.tools.tool_options import HttpOption, emit_json, http_servers

_DAY_MS: Final = 86_400_000
#: Orphans of one kind in a text; ``--json`` has all.
_MOST_LINES: Final = 20
_TITLES: Final[Mapping[str, str]] = {
    OrphanKind.NOT_REGISTERED: "routed to a broker that no longer registers the topic",
    OrphanKind.HELD: "routed only to brokers that the guard holds",
    OrphanKind.STATIC_MAPPING: "static mapping of a topic that the broker does not have",
    OrphanKind.ORDER: "order configuration that names a broker without the topic",
    OrphanKind.TOPIC_NOT_ASKED: "no client asked for the topic",
    OrphanKind.BROKER_NOT_ASKED: "no client asked for any topic of the broker",
}


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(configured(orphans))


def orphans(
    configuration: Configuration,
    days: Annotated[
        int, typer.Option("--days", help="Topics asked for within this many days are not orphans.", min=1, max=3_650)
    ] = 7,
    http: HttpOption = None,
    as_json: JsonOption = False,
) -> int:
    """List unused topics and brokers, and dead routes.

    Name all servers with --http: clients choose one of them, so a topic counts as asked for if one server was asked.
    A server counts queries from its start. Exit code 0, or 3 if a server does not answer.
    """
    urls = http_servers(http, None, configuration)

    def report_of(url: str) -> Awaitable[OrphanReport]:
        return get(url, "/orphans", OrphanReport, is_certificate_checked=http is not None, days=days)

    reports, failures = asyncio.run(ask_each(urls, report_of))
    found = _merged(list(reports.values()))
    if as_json:
        servers = {
            url: {"server_id": report.server_id, "counted_since_ms": report.counted_since_ms}
            for url, report in reports.items()
        }
        reasons = {url: failure.reason for url, failure in failures.items()}
        emit_json({"days": days, "servers": servers, "orphans": list(map(asdict, found)), "failures": reasons})
    elif reports:
        print("\n".join(map(printable, _lines(reports, found, days))))
    for failure in failures.values():
        report_error(str(failure))
    return max((failure.exit_code for failure in failures.values()), default=0)


def _merged(reports: Sequence[OrphanReport]) -> list[Orphan]:
    """Return the orphans that any server reports; all servers must report those that depend on queries."""
    of_server = [frozenset(report.orphans) for report in reports]
    found = frozenset().union(*of_server)
    return sorted(
        (o for o in found if o.kind not in OF_QUERIES or all(o in each for each in of_server)),
        key=lambda o: (list(_TITLES).index(o.kind), o.topic, o.broker_name),
    )


def _lines(reports: Mapping[str, OrphanReport], found: Sequence[Orphan], days: int) -> Iterator[str]:
    for kind, title in _TITLES.items():
        of_kind = [orphan for orphan in found if orphan.kind == kind]
        if of_kind:
            yield f"{kind}: {title} ({len(of_kind):,})"
            yield from ("  " + " at ".join(filter(None, (o.topic, o.broker_name))) for o in of_kind[:_MOST_LINES])
            if len(of_kind) > _MOST_LINES:
                yield f"  and {len(of_kind) - _MOST_LINES:,} more; --json lists all"
    if not found:
        yield "no orphans"
    for url, report in reports.items():
        counted_ms = report.at_ms - report.counted_since_ms
        line = f"{url} has counted queries since {instant(report.counted_since_ms)} ({duration(counted_ms)})"
        short = counted_ms < days * _DAY_MS
        yield f"{line}, less than {counted(days, 'day')}: it does not know who asked before" if short else line
