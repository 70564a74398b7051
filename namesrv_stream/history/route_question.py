"""The question for a topic's route at an instant, as the command line and the HTTP port ask it."""

from dataclasses import dataclass
from typing import Any

import orjson

from namesrv_stream.history.extent import Extent
from namesrv_stream.history.past import Past
from namesrv_stream.history.past_route import PastRoute, RouteOptions, route_as_of
from namesrv_stream.instants import COMMAND_LINE, instant, parse_past_instant
from namesrv_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    """A route as it was, and how much the history knows."""

    route: PastRoute
    extent: Extent

    def as_json(self) -> dict[str, Any]:
        """TopicRouteData as name servers answer it, with the instant, its last change and what the history covers."""
        answer: dict[str, Any] = orjson.loads(self.json_text())
        return answer

    def json_text(self) -> bytes:
        """The same as text. No step of it takes the interpreter for long, though routes may have megabytes."""
        more = {
            "asOf": self.route.at_ms,
            "lastChange": self.route.last_change.as_json(),
            "history": self.extent.as_json(),
            "notes": self.notes(),
        }
        return self.route.body().removesuffix(b"}") + b"," + orjson.dumps(more).removeprefix(b"{")

    def notes(self) -> list[str]:
        """What readers of the route should know about the history."""
        return self.extent.notes(self.route.at_ms)

    def lines(self) -> list[str]:
        """The same for people, but for the route itself."""
        last = self.route.last_change
        detail = f": {last.detail}" if last.detail else ""
        where = f"partition {last.partition} offset {last.offset}"
        return [
            f"as of {instant(self.route.at_ms, with_ms=True)}; {self.extent.reach()}",
            f"last change: {instant(last.at_ms, with_ms=True)} {last.cause} {last.broker_name or ''}{detail} ({where})",
            *(f"warning: {note}" for note in self.notes()),
        ]


def ask_route(
    settings: Settings, topic: str, as_of: str, now_ms: int, *, flag: str, source: str = COMMAND_LINE
) -> RouteAnswer:
    """The route of a topic at an instant that somebody wrote; blocks.

    Args:
        settings: Ours.
        topic: Any topic.
        as_of: The instant, as ``instants.parse_past_instant`` takes it.
        now_ms: Epoch milliseconds.
        flag: What gave it, for errors.
        source: Where the flag was given, for errors.

    Raises:
        ConfigError: The instant is none, or lies in the future.
        NotInHistory: There was no route then, or the history does not cover it; the message says which.
        TableSchemaMismatch: A table is damaged, or not as this version of the code expects.
    """
    at_ms = parse_past_instant(flag, as_of, now_ms, source=source)
    name_server = settings.name_server
    options = RouteOptions(
        support_acting_master=name_server.support_acting_master, with_order=name_server.order_message_enable
    )
    past = Past(settings)
    return RouteAnswer(route_as_of(past, topic, at_ms, options), past.extent)
