"""Responses to requests that were answered before.

A processor says on what its answer depends beside the request: the route of a topic, or the group of a broker name. The
cache keeps such responses by the request's template, and drops them when that changes: ``changed`` is the only point of
invalidation, called by the route table before anybody can ask. The least recently used responses make room for others.

Without the cache a heartbeat takes 11 µs and a route query 10 µs of decoding, rules and encoding; with it 1 µs.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from namesrv_stream.processor.name_server import Answer, Dependency
from namesrv_stream.remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.request_template import (
    ResponseTemplate,
    cut_opaque,
    is_canonical,
    response_template,
    template_of,
)
from namesrv_stream.route.events import BrokerHeartbeat

_MAX_BYTES: Final = 32 << 20
#: About what an entry takes beside its bytes.
_ENTRY_BYTES: Final = 500
#: Heartbeats and route queries are shorter.
_MAX_REQUEST_BYTES: Final = 2 * 1024
_ROUTE_QUERY: Final = b'{"code":105,'


class RouteCache(Protocol):
    """Responses to route queries."""

    def find(self, frame: bytes) -> bytes | None:
        """The response to a request frame (with and without length prefix, respectively)."""

    def know(self, frame: bytes, topic: str, response: ResponseTemplate) -> None:
        """Keep the response to a frame that has a template."""

    def forget(self, topics: Collection[str] | None) -> None:
        """Drop the responses about these topics; None: about all."""


class CachedResponse(NamedTuple):
    """The response to a request.

    Attributes:
        code: Request code.
        heartbeat: The event that is accepted with it; None for none.
    """

    frame: bytes
    code: int
    heartbeat: BrokerHeartbeat | None


class AnsweredRequest(NamedTuple):
    """A request that was answered.

    Attributes:
        frame: Of the request, without length prefix.
        encoded: The frame of the answer's response.
    """

    frame: bytes
    request: RemotingCommand
    answer: Answer
    encoded: bytes


class _Entry(NamedTuple):
    frame_bytes: int  # of the request, so that its opaque has as many digits
    head: bytes
    tail: bytes
    code: int
    heartbeat: BrokerHeartbeat | None
    depends_on: Dependency

    @property
    def size(self) -> int:
        return _ENTRY_BYTES + self.frame_bytes + len(self.head) + len(self.tail)


class ResponseCache:
    """Belongs to one event loop.

    Args:
        routes: Keeps the responses to route queries instead; None for none.
        max_bytes: Of what is kept here.
    """

    def __init__(self, routes: RouteCache | None = None, max_bytes: int = _MAX_BYTES) -> None:
        self._routes = routes
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._keys_of: defaultdict[Dependency, set[bytes]] = defaultdict(set)

    def find(self, frame: bytes, scope: bytes) -> CachedResponse | None:
        """The response to a request frame without length prefix.

        Args:
            scope: ``scope_of`` the connection.
        """
        if len(frame) > _MAX_REQUEST_BYTES:
            return None
        is_route = is_route_query(frame)
        if is_route and self._routes is not None:
            found = self._routes.find(frame)
            return None if found is None else CachedResponse(found, RequestCode.GET_ROUTEINFO_BY_TOPIC, None)
        template, opaque = cut_opaque(frame)
        key = template if is_route else scope + template
        entry = self._entries.get(key)
        if entry is None or len(frame) != entry.frame_bytes or not is_canonical(opaque):
            return None
        self._entries.move_to_end(key)
        return CachedResponse(entry.head + opaque + entry.tail, entry.code, entry.heartbeat)

    def keep(self, answered: AnsweredRequest, scope: bytes) -> None:
        """Keep the response to a frame, if all requests of its template have the same answer and effect."""
        frame, request, answer, encoded = answered
        depends_on, response, accepted = answer.depends_on, answer.response, answer.accepted
        if (
            depends_on is None
            or len(frame) > _MAX_REQUEST_BYTES
            or request.is_oneway
            or response.code != ResponseCode.SUCCESS
            or response.serialize_type is not SerializeType.JSON
            or (depends_on.kind == "topic" and not is_route_query(frame))
        ):
            return
        cut = template_of(frame, request)
        if cut is None:
            return
        parts = response_template(encoded)
        if depends_on.kind == "topic" and self._routes is not None:
            self._routes.know(frame, depends_on.name, parts)
            return
        key = cut.template if depends_on.kind == "topic" else scope + cut.template
        heartbeat = accepted[0].logged if accepted else None
        assert heartbeat is None or isinstance(heartbeat, BrokerHeartbeat)
        head = parts.lengths(len(cut.opaque)) + parts.head
        self._put(key, _Entry(len(frame), head, parts.tail, request.code, heartbeat, depends_on))

    def changed(self, broker_name: str | None, topics: Collection[str] | None) -> None:
        """Drop what is not right any more.

        Args:
            broker_name: Its group is another one; None: any may be.
            topics: Their routes are others; None: any may be.
        """
        if self._routes is not None and (topics is None or topics):
            self._routes.forget(topics)
        if broker_name is None:
            self._entries.clear()
            self._keys_of.clear()
            self._bytes = 0
            return
        self._drop(Dependency("broker", broker_name))
        if topics is None:
            topics = [depends_on.name for depends_on in self._keys_of if depends_on.kind == "topic"]
        for topic in topics:
            self._drop(Dependency("topic", topic))

    def clear(self) -> None:
        """Drop all: the server answers by other options."""
        self.changed(None, None)

    def _put(self, key: bytes, entry: _Entry) -> None:
        self._remove(key)
        self._entries[key] = entry
        self._keys_of[entry.depends_on].add(key)
        self._bytes += entry.size
        while self._bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))

    def _drop(self, depends_on: Dependency) -> None:
        for key in self._keys_of.get(depends_on, set()).copy():
            self._remove(key)

    def _remove(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._bytes -= entry.size
        keys = self._keys_of[entry.depends_on]
        keys.discard(key)
        if not keys:
            del self._keys_of[entry.depends_on]


def is_route_query(frame: bytes) -> bool:
    """Whether a frame begins as RocketMQ's clients write route queries."""
    return frame.startswith(_ROUTE_QUERY, 4)


def scope_of(connection_id: int) -> bytes:
    """What distinguishes the answers that depend on a connection: their events name it, and its peer may ask this."""
    return b"connection" + connection_id.to_bytes(8, "big")
