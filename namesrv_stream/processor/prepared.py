"""The fast path of route queries: requests that differ in topic and ``opaque`` only are answered without being decoded.

A client asks with the same header again and again but for the topic and the correlation id. The frame without these two
is the key; what is kept is what such a request asks for, and the answer's header in two halves around the
opaque. It came from the general path, and is kept only if another topic and another number in these places decode to
the same request with that topic and that opaque, so the two paths cannot disagree.

What was answered so is known until any route changes: who asks for the same topic in the same form meanwhile gets the
same bytes but for the opaque.
"""

import struct
from dataclasses import replace
from typing import Final, NamedTuple

from namesrv_stream.errors import HeaderDecodeError
from namesrv_stream.processor.client import RouteQuery, route_query
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame, encode_frame

_OPAQUE: Final = b'"opaque":'
_OPAQUE_BYTES: Final = len(_OPAQUE)
_TOPIC: Final = b'"topic":"'
#: Forms of requests at which all are forgotten; a release of a client has one or two.
_MAX_FORMS: Final = 1_000
#: Of answers that are known, with what they are known by.
_MAX_KNOWN_BYTES: Final = 16 << 20
#: Larger numbers do not fit 32 bits: the general path judges them.
_MAX_OPAQUE: Final = b"2147483647"
_ZERO: Final = ord("0")
_LENGTHS: Final = struct.Struct(">II")


class _Form(NamedTuple):
    """How requests of one form are answered.

    Attributes:
        query: What they ask for, but for the topic.
        header_bytes: Of the answer's header, without the opaque's digits.
        head: Of that header, up to the opaque.
        tail: What follows it.
    """

    query: RouteQuery
    header_bytes: int
    head: bytes
    tail: bytes


class PreparedAnswers:
    """Answers of GET_ROUTEINFO_BY_TOPIC by the form of their request.

    Attributes:
        known_bytes: Of whole answers that are kept.
    """

    def __init__(self, server: NameServer) -> None:
        self._server = server
        self._forms: dict[bytes, _Form] = {}
        # The frame without its opaque → bytes of the frame, and the answer's around the opaque; of one version.
        self._known: dict[bytes, tuple[int, bytes, bytes]] = {}
        self.known_bytes = 0
        self._known_version = server.table.version

    def answer(self, frame: bytes) -> bytes | None:
        """The answer to a request frame (with and without length prefix, respectively); None for the general path."""
        at = frame.find(_OPAQUE) + _OPAQUE_BYTES
        end = frame.find(b",", at)
        key = frame[:at] + frame[end:]
        known = self._known.get(key)
        if known is not None and self._server.view.table.version is self._known_version:
            frame_bytes, head, tail = known
            opaque = frame[at:end]
            if len(frame) == frame_bytes and _is_canonical(opaque):
                return head + opaque + tail
        return self._of_form(frame, key)

    def _of_form(self, frame: bytes, known_by: bytes) -> bytes | None:
        cut = _cut(frame)
        if cut is None:
            return None
        key, written_topic, opaque = cut
        form = self._forms.get(key)
        if form is None or not _is_canonical(opaque):
            return None
        topic = written_topic.decode("ascii", "replace")
        if not _is_plain(topic):
            return None
        server, query = self._server, form.query
        body = server.answers.route_body(
            topic, strict=query.strict, with_order=server.options.order_message_enable, zone_name=query.zone_name
        )
        if body is None:
            return None
        header_bytes = form.header_bytes + len(opaque)
        head = _LENGTHS.pack(4 + header_bytes + len(body), header_bytes) + form.head
        tail = form.tail + body
        # The order of queues is a KV value, which changes without a new version.
        if not server.options.order_message_enable:
            self._know(known_by, len(frame), head, tail)
        return head + opaque + tail

    def _know(self, key: bytes, frame_bytes: int, head: bytes, tail: bytes) -> None:
        version = self._server.table.version
        if version is not self._known_version or self.known_bytes > _MAX_KNOWN_BYTES:
            self._known.clear()
            self.known_bytes, self._known_version = 0, version
        self._known[key] = (frame_bytes, head, tail)
        self.known_bytes += frame_bytes + len(head) + len(tail)

    def keep(self, frame: bytes, request: RemotingCommand, response: RemotingCommand) -> None:
        """Learn how requests of this form are answered, if it is of the plain kind."""
        if (
            request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC
            or request.serialize_type is not SerializeType.JSON
            or response.serialize_type is not SerializeType.JSON
            or response.code != ResponseCode.SUCCESS
            or request.is_oneway
            or request.body
        ):
            return
        cut, query = _cut(frame), route_query(request)
        if cut is None or not _differs_there_only(frame, *cut[1:], request):
            return
        if len(self._forms) >= _MAX_FORMS:
            self.clear()
        written = encode_frame(replace(response, opaque=0, body=None))[8:]
        at = written.find(_OPAQUE) + _OPAQUE_BYTES
        self._forms[cut[0]] = _Form(query, len(written) - 1, written[:at], written[at + 1 :])

    def clear(self) -> None:
        """Forget all: the server answers by other options."""
        self._forms.clear()
        self._known.clear()
        self.known_bytes = 0


def _cut(frame: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The frame without topic and opaque, and these two, where they stand in a header without a body behind it."""
    topic_at = frame.find(_TOPIC) + 9
    topic_end = frame.find(b'"', topic_at)
    opaque_at = frame.find(_OPAQUE) + 9
    opaque_end = frame.find(b",", opaque_at)
    if topic_at < 9 or opaque_at < 9 or int.from_bytes(frame[:4], "big") != len(frame) - 4:
        return None
    if topic_at <= topic_end < opaque_at <= opaque_end:
        key = frame[4:topic_at] + frame[topic_end:opaque_at] + frame[opaque_end:]
    elif opaque_at <= opaque_end < topic_at <= topic_end:
        key = frame[4:opaque_at] + frame[opaque_end:topic_at] + frame[topic_end:]
    else:
        return None
    return key, frame[topic_at:topic_end], frame[opaque_at:opaque_end]


def _differs_there_only(frame: bytes, written_topic: bytes, opaque: bytes, request: RemotingCommand) -> bool:
    """Whether topic and opaque are what stands there: in no comment, no other object, not overridden behind."""
    ext_fields = request.ext_fields or {}
    topic = ext_fields.get("topic")
    if topic != written_topic.decode("ascii", "replace") or not _is_plain(topic):
        return False
    if not _is_canonical(opaque) or str(request.opaque).encode() != opaque:
        return False
    other = replace(request, opaque=(request.opaque + 1) % 10, ext_fields={**ext_fields, "topic": topic + "-"})
    header = frame[4:].replace(_TOPIC + written_topic, _TOPIC + written_topic + b"-", 1)
    header = header.replace(_OPAQUE + opaque, _OPAQUE + str(other.opaque).encode(), 1)
    try:
        return decode_frame(len(header).to_bytes(4, "big") + header) == other
    except HeaderDecodeError:
        return False


def _is_plain(topic: str) -> bool:
    """Whether a name means itself between quotes."""
    return topic.isascii() and topic.isprintable() and "\\" not in topic


def _is_canonical(opaque: bytes) -> bool:
    """Whether the general path would write the number back as it stands."""
    return (
        opaque.isdigit()
        and (opaque[0] != _ZERO or len(opaque) == 1)
        and (len(opaque) < len(_MAX_OPAQUE) or (len(opaque) == len(_MAX_OPAQUE) and opaque <= _MAX_OPAQUE))
    )
