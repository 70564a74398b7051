"""Caches responses, so that a repeated request needs neither decoding, rules nor encoding.

A processor states on what its answer depends besides the request: the route of a topic, or the group of a broker name.
The cache stores responses by the request's template (its bytes without the ``opaque``), and drops them when their
dependency changes. Only ``changed`` invalidates; it runs before any request can see the change. The least recently used
responses are evicted.

Without the cache a heartbeat takes 11 µs and a route query 10 µs; with it, they take 1 µs.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection
from typing import Final, NamedTuple

from namesrv_stream.processor.name_server import Answer, Dependency
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.frame import cut_opaque, is_canonical, response_template, template_of
from namesrv_stream.route.events import BrokerHeartbeat
from namesrv_stream.server.native.lane import NativeLane

_MAX_BYTES: Final = 32 << 20
#: Approximate overhead of an entry in addition to its bytes.
_ENTRY_BYTES: Final = 500
#: Longer requests are not cached; heartbeats and route queries are shorter.
_MAX_REQUEST_BYTES: Final = 2 * 1024
_ROUTE_QUERY: Final = b'{"code":105,'


class CachedResponse(NamedTuple):
    """The cached response to a request with this ``code``, and the event that the request causes, if any."""

    frame: bytes
    code: int
    heartbeat: BrokerHeartbeat | None


class _Entry(NamedTuple):
    frame_bytes: int  # of the request; equal sizes mean equally long opaques
    head: bytes
    tail: bytes
    code: int
    heartbeat: BrokerHeartbeat | None
    depends_on: Dependency

    @property
    def size(self) -> int:
        return _ENTRY_BYTES + self.frame_bytes + len(self.head) + len(self.tail)


class ResponseCache:
    """The cached responses of one server; ``lane``, if any, caches those to route queries. Used by one event loop."""

    def __init__(self, lane: NativeLane | None = None, max_bytes: int = _MAX_BYTES) -> None:
        self._lane = lane
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._keys_of: defaultdict[Dependency, set[bytes]] = defaultdict(set)

    def find(self, frame: bytes, scope: bytes, view: int = 0) -> CachedResponse | None:
        """Return the response to a request frame without length prefix.

        Args:
            frame: The request.
            scope: ``scope_of`` its connection.
            view: Number of the client's address view. Clients with different numbers share no response.
        """
        if len(frame) > _MAX_REQUEST_BYTES:
            return None
        is_route = is_route_query(frame)
        if is_route and self._lane is not None:
            found = self._lane.find(frame, view)
            return None if found is None else CachedResponse(found, RequestCode.GET_ROUTEINFO_BY_TOPIC, None)
        template, opaque = cut_opaque(frame)
        key = (_prefix(view) + template if view else template) if is_route else scope + template
        entry = self._entries.get(key)
        if entry is None or len(frame) != entry.frame_bytes or not is_canonical(opaque):
            return None
        self._entries.move_to_end(key)
        return CachedResponse(entry.head + opaque + entry.tail, entry.code, entry.heartbeat)

    def keep(
        self, frame: bytes, request: RemotingCommand, answer: Answer, encoded: bytes, scope: bytes, view: int = 0
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
        ):
            return
        cut = template_of(frame, request)
        if cut is None:
            return
        parts = response_template(encoded)
        if depends_on.kind == "topic" and self._lane is not None:
            self._lane.know(frame, depends_on.name, parts, view)
            return
        key = (_prefix(view) if depends_on.kind == "topic" else scope) + cut.template
        heartbeat = accepted[0].logged if accepted else None
        assert heartbeat is None or isinstance(heartbeat, BrokerHeartbeat)
        head = parts.lengths(len(cut.opaque)) + parts.head
        entry = _Entry(len(frame), head, parts.tail, request.code, heartbeat, depends_on)
        self._remove(key)
        self._entries[key] = entry
        self._keys_of[depends_on].add(key)
        self._bytes += entry.size
        while self._bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))

    def changed(self, broker_name: str | None, topics: Collection[str] | None) -> None:
        """Drop outdated responses: of the broker name's group and the topics' routes; None if any may have changed."""
        if self._lane is not None and (topics is None or topics):
            self._lane.forget(topics)
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
        """Drop all responses."""
        self.changed(None, None)

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
    """Return whether a frame begins like a route query of RocketMQ's clients."""
    return frame.startswith(_ROUTE_QUERY, 4)


def _prefix(view: int) -> bytes:
    """Return a key prefix for answers to clients of an address view."""
    return b"view" + view.to_bytes(8, "big") if view else b""


def scope_of(connection_id: int) -> bytes:
    """Return a key prefix for answers that depend on a connection, by their events and the peer's permissions."""
    return b"connection" + connection_id.to_bytes(8, "big")
