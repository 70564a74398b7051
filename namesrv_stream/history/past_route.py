"""The route of a topic at a past time, for the command line and the HTTP port.

The reducer applies the rows that were valid at that time, and the same code as for a live query answers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import orjson

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.extent import Extent
from namesrv_stream.history.past import Past
from namesrv_stream.instants import COMMAND_LINE, instant, parse_past_instant
from namesrv_stream.processor.route_body import RouteAnswers, encode_topic_route
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.server_view.route_view import RouteView
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import TopicRoute
from namesrv_stream.settings import Settings

_LAST_CHANGE: Final = ("at_ms", "cause", "detail", "broker_name", "partition", "offset")


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """Options of a server that affect routes. The history does not record them, so the current values are used.

    Attributes:
        support_acting_master: Whether a slave replaces its group's missing master.
        with_order: Whether the route of an ordered topic contains its order of queues.
    """

    support_acting_master: bool = False
    with_order: bool = False


@dataclass(frozen=True, slots=True)
class PastRoute:
    """A route at a past time.

    Attributes:
        at_ms: The time, epoch milliseconds.
        last_change: The newest row on which it depends.
        extent: The time that the history covers.
    """

    topic: str
    at_ms: int
    route: TopicRoute
    last_change: RouteChange
    extent: Extent

    def body(self) -> bytes:
        """Return TopicRouteData as JSON, in the form for the HTTP port and new clients."""
        return encode_topic_route(self.route, strict=True)

    def json_text(self) -> bytes:
        """Return the same with the time, its last change and the time that the history covers.

        Routes may have megabytes, so the steps hold the interpreter's lock only briefly.
        """
        more = {
            "asOf": self.at_ms,
            "lastChange": {name: getattr(self.last_change, name) for name in _LAST_CHANGE},
            "history": asdict(self.extent),
            "notes": self.notes(),
        }
        return self.body().removesuffix(b"}") + b"," + orjson.dumps(more).removeprefix(b"{")

    def notes(self) -> list[str]:
        """Return notes about the completeness of the history."""
        return self.extent.notes(self.at_ms)

    def lines(self) -> list[str]:
        """Return the same for people, without the route itself."""
        last = self.last_change
        detail = f": {last.detail}" if last.detail else ""
        where = f"partition {last.partition} offset {last.offset}"
        return [
            f"as of {instant(self.at_ms, with_ms=True)}; {self.extent.reach()}",
            f"last change: {instant(last.at_ms, with_ms=True)} {last.cause} {last.broker_name or ''}{detail} ({where})",
            *(f"warning: {note}" for note in self.notes()),
        ]


def route_as_of(past: Past, topic: str, at_ms: int, options: RouteOptions | None = None) -> PastRoute:
    """Return the route that a client got at a time; blocks.

    Args:
        past: The opened tables.
        topic: Any topic.
        at_ms: Log time, epoch milliseconds. Changes at exactly this time are included.
        options: Options of the server.

    Raises:
        NotInHistory: No broker served the topic then, or the history does not cover that time; the text says which.
        TableSchemaMismatch: The tables cannot be read.
    """
    past.check_covers(at_ms)
    options = options or RouteOptions()
    rows = past.changes("route_as_of", topic=topic, at_ms=at_ms)
    if not options.with_order:
        rows = [row for row in rows if row.kind != ChangeKind.KV]
    then = instant(at_ms, with_ms=True)
    last = max(_relevant(rows), key=lambda row: (row.at_ms, *row[:3]), default=None)
    if last is None:
        raise NotInHistory(f"no route for topic {topic} as of {then}: {_when_known(past, topic)}")
    route = _answers(table_of(rows), options).route(topic, with_order=options.with_order)
    if route is None:
        why = f"{last.cause} of {last.broker_name} at {instant(last.at_ms, with_ms=True)}"
        why += f": {last.detail}" if last.detail else ""
        where = f"partition {last.partition} offset {last.offset}"
        raise NotInHistory(f"no route for topic {topic} as of {then}; the last change was {why} ({where})")
    return PastRoute(topic, at_ms, route, last, past.extent)


def route_body(table: RouteTable, topic: str, options: RouteOptions) -> bytes | None:
    """Return the route in the form of the HTTP port; None if there is none."""
    return _answers(table, options).route_body(topic, strict=True, with_order=options.with_order)


def _answers(table: RouteTable, options: RouteOptions) -> RouteAnswers:
    return RouteAnswers(RouteView(table, {}, partitions=1), support_acting_master=options.support_acting_master)


def table_of(rows: Iterable[RouteChange]) -> RouteTable:
    """Return the route table of rows."""
    table = RouteTable()
    reducer.apply(table, rows)
    return table


def _relevant(rows: Sequence[RouteChange]) -> Iterable[RouteChange]:
    """Yield the rows that changed the topic's route, without rows of brokers that do not serve the topic."""
    offering = {r.broker_name for r in rows if r.kind == ChangeKind.QUEUE_DATA and not r.gone}
    for row in rows:
        if row.kind in (ChangeKind.QUEUE_DATA, ChangeKind.TOPIC_MAPPING, ChangeKind.KV) or (
            row.broker_name in offering and (row.kind == ChangeKind.BROKER_DATA or row.filter_servers)
        ):
            yield row


def _when_known(past: Past, topic: str) -> str:
    first_ms = past.ask("topic_first", topic=topic)["at_ms"][0].as_py()
    if first_ms is None:
        return "the history knows no such topic"
    return f"the history knows it from {instant(first_ms, with_ms=True)} on"


def ask_route(
    settings: Settings, topic: str, as_of: str, now_ms: int, *, flag: str, source: str = COMMAND_LINE
) -> PastRoute:
    """Return the route of a topic at a time given as text; blocks.

    Args:
        settings: The settings.
        topic: Any topic.
        as_of: The time, in a form that ``instants.parse_past_instant`` accepts.
        now_ms: Current time, epoch milliseconds.
        flag: Name of the flag or parameter, for errors.
        source: Where the flag was given, for errors.

    Raises:
        ConfigError: The time is invalid or in the future.
        NotInHistory: There was no route then, or the history does not cover that time; the text says which.
        TableSchemaMismatch: A table is damaged or has an unexpected schema.
    """
    at_ms = parse_past_instant(flag, as_of, now_ms, source=source)
    name_server = settings.name_server
    options = RouteOptions(
        support_acting_master=name_server.support_acting_master, with_order=name_server.order_message_enable
    )
    return route_as_of(Past(settings), topic, at_ms, options)
