"""Caches responses, so that a repeated request needs neither decoding, rules nor encoding.

A processor states on what its answer depends besides the request: the route of a topic, or the group of a broker name.
The cache stores responses by the request's template (its bytes without the ``opaque``), and drops them when their
dependency changes. Only ``changed`` invalidates; it runs before any request can see the change.

Without the cache, a heartbeat takes 11 µs and a route query 10 µs; with it, either takes 1 µs.
"""

from collections.abc import Collection
from typing import Final

from namesrv_stream.processor.name_server import Answer
from namesrv_stream.remoting.command import RemotingCommand, ResponseCode, SerializeType
from namesrv_stream.remoting.frame import has_template, response_template
from namesrv_stream.route.events import BrokerHeartbeat
from namesrv_stream.server.native.known_answers import ROUTE_READ, Effect, KnownAnswers
from namesrv_stream.server.native.lane import NativeLane

#: Longer requests are not cached; heartbeats and route queries are shorter.
_MAX_REQUEST_BYTES: Final = 2 * 1024
_ROUTE_QUERY: Final = b'{"code":105,'


class ResponseCache:
    """The cached responses of one server. Used by one event loop.

    ``routes`` stores the responses to route queries; it is the lane, if there is one. Clients share a response only if
    their address views have the same number. Every other response is for one connection, because of its events and the
    peer's permissions.
    """

    def __init__(self, routes: NativeLane | KnownAnswers | None = None) -> None:
        self._routes = KnownAnswers() if routes is None else routes
        self._of_brokers = KnownAnswers()

    def find(self, frame: bytes, connection_id: int, view: int = 0) -> tuple[bytes, Effect] | None:
        """Return the response to a request frame without length prefix, and the request's effect.

        ``view`` is the number of the client's address view.
        """
        if len(frame) > _MAX_REQUEST_BYTES:
            return None
        if is_route_query(frame):
            found = self._routes.find(frame, view)
            return None if found is None else (found, ROUTE_READ)
        return self._of_brokers.match(frame, connection_id)

    def keep(
        self, frame: bytes, request: RemotingCommand, answer: Answer, encoded: bytes, connection_id: int, view: int = 0
    ) -> None:
        """Store the ``encoded`` response, if all requests of the frame's template have the same answer and effect."""
        depends_on, response, accepted = answer.depends_on, answer.response, answer.accepted
        if (
            depends_on is None
            or len(frame) > _MAX_REQUEST_BYTES
            or request.is_oneway
            or response.code != ResponseCode.SUCCESS
            or response.serialize_type is not SerializeType.JSON
            or (depends_on.kind == "topic" and not is_route_query(frame))
            or not has_template(frame, request)
        ):
            return
        parts = response_template(encoded)
        if depends_on.kind == "topic":
            self._routes.know(frame, depends_on.name, parts, view)
            return
        heartbeat = accepted[0].logged if accepted else None
        assert heartbeat is None or isinstance(heartbeat, BrokerHeartbeat)
        self._of_brokers.know(frame, depends_on.name, parts, connection_id, Effect(request.code, heartbeat))

    def changed(self, broker_name: str | None, topics: Collection[str] | None) -> None:
        """Drop the responses about a broker name's group, and those about the topics' routes; None stands for all."""
        if topics is None or topics:
            self._routes.forget(topics)
        self._of_brokers.forget(None if broker_name is None else (broker_name,))

    def clear(self) -> None:
        """Drop all responses."""
        self.changed(None, None)


def is_route_query(frame: bytes) -> bool:
    """Return whether a frame begins like a route query of RocketMQ's clients."""
    return frame.startswith(_ROUTE_QUERY, 4)
