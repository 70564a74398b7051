"""Routes of topics in the past: the route at a time, and how it changed.

The reducer builds a route table from the rows that were valid at that time. The code of live queries then computes the
route from it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from namesrv_stream.history.answer import Extent, Window
from namesrv_stream.history.database import Past
from namesrv_stream.instants import COMMAND_LINE, instant, parse_past_instant
from namesrv_stream.processor.route_body import RouteAnswers, RouteRequest, encode_topic_route
from namesrv_stream.route import reducer
from namesrv_stream.route.address_views import VIEWS_NAMESPACE, AddressView, AddressViews
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.model import PERM_READ, PERM_WRITE
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import TopicRoute
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory

_NO_QUEUES: Final[Mapping[str, int]] = {"read_queues": 0, "write_queues": 0, "perm": 0, "flag": 0}
Offer = Mapping[str, Any]


def set_topic(past: Past, topic: str, window: Window) -> bool:
    """Register the tables that ``topic_changes``, ``topic_intervals`` and ``topic_outages`` read; blocks.

    Args:
        window: The period. Changes after its start and up to its end are included.

    Returns:
        Whether the history contains the topic at or before the end of the period.
    """
    offers = past.query("topic_offers", topic=topic, **asdict(window))
    past.register("topic_offers", offers)
    past.register("topic_changes", past.query("topic_changes", since_ms=window.since_ms))
    past.register("topic_intervals", past.query("topic_intervals"))
    return bool(offers.num_rows)


def describe(change: Mapping[str, Any]) -> str:
    """Return a row of ``topic_offers.sql`` as text, such as ``+broker-a 8/8 RW-`` or ``broker-a perm RW- → R--``."""
    name, before, after = change["broker_name"], change["offer_before"] or {}, change["offer"] or {}
    served, serves = before.get("broker_addrs") is not None, after.get("broker_addrs") is not None
    if served and not serves:
        return f"-{name}"
    if serves and not served:
        return f"+{name} {queues_text(after['queues'])}"
    if not before or not after:
        return f"{name} without brokers: {'known' if after else 'forgotten'}"
    return f"{name} " + ", ".join(_differences(before, after))


def _differences(before: Offer, after: Offer) -> Iterator[str]:
    old, new = before["queues"] or _NO_QUEUES, after["queues"] or _NO_QUEUES
    counts, new_counts = (f"{queues['read_queues']}/{queues['write_queues']}" for queues in (old, new))
    old_addrs, new_addrs = dict(before["broker_addrs"] or ()), dict(after["broker_addrs"] or ())
    for text, was, now in (
        ("queues", counts, new_counts),
        ("perm", perm_text(old["perm"]), perm_text(new["perm"])),
        ("sysFlag", old["flag"], new["flag"]),
        *((f"id {i}", old_addrs.get(i, "none"), new_addrs.get(i, "none")) for i in sorted({*old_addrs, *new_addrs})),
        *((name.replace("_", " "), before[name], after[name]) for name in ("cluster", "zone", "acting_master")),
    ):
        if was != now:
            yield f"{text} {was} → {now}"
    if before["filter_servers"] != after["filter_servers"]:
        yield "filter servers"
    if before["mapping"] != after["mapping"]:
        yield "logical queues"


def queues_text(queues: Mapping[str, int]) -> str:
    """Return read and write queues and the permission as text: ``8/8 RW-``."""
    return f"{queues['read_queues']}/{queues['write_queues']} {perm_text(queues['perm'])}"


def perm_text(perm: int) -> str:
    """Return a permission as text: ``RW-``. Source: rocketmq 5.3.3, PermName.perm2String."""
    return ("R" if perm & PERM_READ else "-") + ("W" if perm & PERM_WRITE else "-") + ("X" if perm & 1 else "-")


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
        last_change: The newest change that affected the route.
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
        """Return ``body`` with additional fields: the time, the last change, the extent of the history, and notes.

        A route may have megabytes, so it is not decoded again, and each step holds the interpreter's lock only briefly.
        """
        more = {
            "asOf": self.at_ms,
            "lastChange": {name: getattr(self.last_change, name) for name in _LAST_CHANGE},
            "history": asdict(self.extent),
            "notes": self.notes(),
        }
        return self.body().removesuffix(b"}") + b"," + orjson.dumps(more).removeprefix(b"{")

    def notes(self) -> list[str]:
        """Return notes about what the history does not contain up to that time."""
        return self.extent.notes(self.at_ms)

    def lines(self) -> list[str]:
        """Return the time, the last change and the notes as lines for people, without the route itself."""
        last = self.last_change
        detail = f": {last.detail}" if last.detail else ""
        where = f"partition {last.partition} offset {last.offset}"
        return [
            f"as of {instant(self.at_ms, with_ms=True)}; {self.extent.reach()}",
            f"last change: {instant(last.at_ms, with_ms=True)} {last.cause} {last.broker_name or ''}{detail} ({where})",
            *(f"warning: {note}" for note in self.notes()),
        ]


def route_as_of(
    past: Past, topic: str, at_ms: int, options: RouteOptions | None = None, address_view: str | None = None
) -> PastRoute:
    """Return the route that a client got at a time; blocks.

    Args:
        at_ms: Log time, epoch milliseconds. Changes at exactly this time are included.
        options: Options of the server.
        address_view: Name of the address view of the client, as the view was at that time; None for no view.

    Raises:
        NotInHistory: No broker served the topic then, the view did not exist, or the history does not cover that time;
            the text says which.
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
    view = None if address_view is None else _view_as_of(past, address_view, at_ms)
    answers = _answers(table_of(rows), options)
    route = answers.route(RouteRequest(topic, with_order=options.with_order, address_view=view))
    if route is None and view is not None and answers.route(RouteRequest(topic)) is not None:
        raise NotInHistory(f"no route for topic {topic} in view {view.name} as of {then}: it left out all addresses")
    if route is None:
        why = f"{last.broker_name} {last.cause} at {instant(last.at_ms, with_ms=True)}"
        why += f": {last.detail}" if last.detail else ""
        where = f"partition {last.partition} offset {last.offset}"
        raise NotInHistory(f"no route for topic {topic} as of {then}; the last change was: {why} ({where})")
    return PastRoute(topic, at_ms, route, last, past.extent)


def _view_as_of(past: Past, name: str, at_ms: int) -> AddressView:
    rows = past.changes("kv_as_of", namespace=VIEWS_NAMESPACE, key=name, at_ms=at_ms)
    view = AddressViews(table_of(rows).kv.get(VIEWS_NAMESPACE)).by_name.get(name)
    if view is None:
        raise NotInHistory(f"there was no address view {name} as of {instant(at_ms, with_ms=True)}")
    return view


def route_body(table: RouteTable, topic: str, options: RouteOptions) -> bytes | None:
    """Return the route in the form of the HTTP port; None if there is none."""
    return _answers(table, options).route_body(RouteRequest(topic, with_order=options.with_order))


def _answers(table: RouteTable, options: RouteOptions) -> RouteAnswers:
    return RouteAnswers(RouteView(table, {}, partitions=1), support_acting_master=options.support_acting_master)


def table_of(rows: Iterable[RouteChange]) -> RouteTable:
    """Build a route table from rows."""
    table = RouteTable()
    reducer.apply(table, rows)
    return table


def _relevant(rows: Sequence[RouteChange]) -> Iterable[RouteChange]:
    """Yield only the rows that affected the topic's route."""
    offering = {r.broker_name for r in rows if r.kind == ChangeKind.QUEUE_DATA and not r.gone}
    for row in rows:
        if row.kind in (ChangeKind.QUEUE_DATA, ChangeKind.TOPIC_MAPPING, ChangeKind.KV) or (
            row.broker_name in offering and (row.kind == ChangeKind.BROKER_DATA or row.filter_servers)
        ):
            yield row


def _when_known(past: Past, topic: str) -> str:
    first_ms = past.query("topic_first", topic=topic)["at_ms"][0].as_py()
    if first_ms is None:
        return "the history does not contain this topic"
    return f"the history contains it from {instant(first_ms, with_ms=True)} on"


def read_past_route(
    settings: Settings,
    topic: str,
    as_of: str,
    now_ms: int,
    *,
    flag: str,
    source: str = COMMAND_LINE,
    address_view: str | None = None,
) -> PastRoute:
    """Return the route of a topic at a time given as text; blocks.

    Args:
        as_of: The time, in a form that ``instants.parse_past_instant`` accepts.
        flag: Name of the flag or parameter, for errors.
        source: Where the flag was given, for errors.
        address_view: Name of the address view of the client; None for no view.

    Raises:
        ConfigError: The time is invalid or in the future.
        NotInHistory: There was no route then, or the history does not cover that time; the text says which.
        TableSchemaMismatch: A table is damaged or has an unexpected schema.
        StoreUnreachable: The object store does not answer.
    """
    at_ms = parse_past_instant(flag, as_of, now_ms, source=source)
    name_server = settings.name_server
    options = RouteOptions(
        support_acting_master=name_server.support_acting_master, with_order=name_server.order_message_enable
    )
    return route_as_of(Past(settings), topic, at_ms, options, address_view)
