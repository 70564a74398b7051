"""The route of a topic at an instant: the reducer applies the rows valid then, and the code of a live query answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.past import Past
from namesrv_stream.history.reasons import Reason, position, reason_of
from namesrv_stream.instants import instant
from namesrv_stream.processor.route_answers import RouteAnswers
from namesrv_stream.processor.route_body import encode_topic_route
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.server_view.route_view import RouteView
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import TopicRoute


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """Options of a server that are no events, so that no history has them: today's count.

    Attributes:
        support_acting_master: Whether a slave stands in for its group's missing master.
        with_order: Whether an ordered topic's route has its order of queues.
    """

    support_acting_master: bool = False
    with_order: bool = False


@dataclass(frozen=True, slots=True)
class PastRoute:
    """A route as it was.

    Attributes:
        at_ms: The instant, epoch milliseconds.
        last_change: The newest change of it that had been by then.
    """

    topic: str
    at_ms: int
    route: TopicRoute
    last_change: Reason

    def body(self) -> bytes:
        """TopicRouteData as JSON, as the HTTP port and new clients get it."""
        return encode_topic_route(self.route, strict=True)


def route_as_of(past: Past, topic: str, at_ms: int, options: RouteOptions | None = None) -> PastRoute:
    """The route that a client got at an instant; blocks.

    Args:
        past: Opened.
        topic: Any topic.
        at_ms: Epoch milliseconds, log time; changes of that very millisecond are included.
        options: Of the server that answered.

    Raises:
        NotInHistory: No broker served the topic then, or the history does not cover it; the message says which.
        TableSchemaMismatch: The tables cannot be read.
    """
    past.check_covers(at_ms)
    options = options or RouteOptions()
    rows = past.changes("route_as_of", topic=topic, at_ms=at_ms)
    if not options.with_order:
        rows = [row for row in rows if row.kind != ChangeKind.KV]
    then = instant(at_ms, with_ms=True)
    last = max(_relevant(rows), key=position, default=None)
    if last is None:
        raise NotInHistory(f"no route for topic {topic} as of {then}: {_when_known(past, topic)}")
    route = _answers(table_of(rows), options).route(topic, with_order=options.with_order)
    if route is None:
        why = f"{last.cause} of {last.broker_name} at {instant(last.at_ms, with_ms=True)}"
        why += f": {last.detail}" if last.detail else ""
        where = f"partition {last.partition} offset {last.offset}"
        raise NotInHistory(f"no route for topic {topic} as of {then}; the last change was {why} ({where})")
    return PastRoute(topic, at_ms, route, reason_of(last))


def route_body(table: RouteTable, topic: str, options: RouteOptions) -> bytes | None:
    """The route as the HTTP port answers it; None where there is none."""
    return _answers(table, options).route_body(topic, strict=True, with_order=options.with_order)


def _answers(table: RouteTable, options: RouteOptions) -> RouteAnswers:
    return RouteAnswers(RouteView(table, {}, partitions=1), support_acting_master=options.support_acting_master)


def table_of(rows: Iterable[RouteChange]) -> RouteTable:
    """The table that rows make up."""
    table = RouteTable()
    reducer.apply(table, rows)
    return table


def _relevant(rows: Sequence[RouteChange]) -> Iterable[RouteChange]:
    """Those whose change was one of the topic's route: not of brokers at a time when they did not offer it."""
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
