"""The fast path of route queries: requests that differ in topic and ``opaque`` only are answered without being decoded.

A client asks with the same header again and again but for the topic and the correlation id. The frame without these two
is the key; what is kept is what such a request asks for, and the answer's header in two halves around the
opaque. It came from the general path, and is kept only if another topic and another number in these places decode to
the same request with that topic and that opaque, so the two paths cannot disagree.

What was answered so is known until that topic's route changes: who asks for it in the same form meanwhile gets the
same bytes but for the opaque.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from namesrv_stream.errors import HeaderDecodeError
from namesrv_stream.processor.client import RouteQuery, route_query
from namesrv_stream.processor.known_answers import AnswerParts, AnswersInMemory, KnownAnswers, is_canonical
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame, encode_frame

_OPAQUE: Final = b'"opaque":'
_OPAQUE_BYTES: Final = len(_OPAQUE)
_TOPIC: Final = b'"topic":"'
#: Forms of requests at which all are forgotten; a release of a client has one or two.
_MAX_FORMS: Final = 200


class _Form(NamedTuple):
    """How requests of one form are answered.

    Attributes:
        query: What they ask for, but for the topic.
        parts: Of an answer without a body.
    """

    query: RouteQuery
    parts: AnswerParts


class PreparedAnswers:
    """Answers of GET_ROUTEINFO_BY_TOPIC by the form of their request.

    Args:
        server: Whose they are.
        known: Keeps whole ones.
    """

    def __init__(self, server: NameServer, known: KnownAnswers | None = None) -> None:
        self._server = server
        self._known = known or AnswersInMemory()
        self._forms: dict[bytes, _Form] = {}
        server.view.watch_routes(self._known.forget)

    def answer(self, frame: bytes) -> bytes | None:
        """The answer to a request frame (with and without length prefix, respectively); None for the general path."""
        return self._known.find(frame) or self._of_form(frame)

    def _of_form(self, frame: bytes) -> bytes | None:
        cut = _cut(frame)
        if cut is None:
            return None
        key, written_topic, opaque = cut
        form = self._forms.get(key)
        if form is None or not is_canonical(opaque):
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
        header_bytes, head, tail = form.parts
        parts = AnswerParts(header_bytes, head, tail + body)
        # The order of queues is a KV value, which changes without a change of the route.
        if not server.options.order_message_enable:
            self._known.know(frame, topic, parts)
        return parts.frame(opaque)

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
        self._forms[cut[0]] = _Form(query, AnswerParts(len(written) - 1, written[:at], written[at + 1 :]))

    def clear(self) -> None:
        """Forget all: the server answers by other options."""
        self._forms.clear()
        self._known.forget(None)


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
    if not is_canonical(opaque) or str(request.opaque).encode() != opaque:
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
