"""The fast path of route queries: requests that differ in ``opaque`` only have answers that differ in it only.

A client asks for the same topic again and again with the same header but for the correlation id. The frame without
that number is the key; the answer's frame is kept in two halves around it. What is kept came from the general path,
and a frame is kept only if ``"opaque":`` stands in it exactly once and another number there decodes to the same
request with that opaque, so the two paths cannot disagree.
"""

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from namesrv_stream.errors import HeaderDecodeError
from namesrv_stream.remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame, encode_frame

_OPAQUE: Final = b'"opaque":'
#: Bytes of keys and answers at which all are forgotten: routes of some 50,000 topics, asked for by one client release.
_MAX_BYTES: Final = 64 << 20
#: Larger numbers do not fit 32 bits: the general path judges them.
_MAX_OPAQUE: Final = b"2147483647"
_ZERO: Final = ord("0")
_LENGTHS: Final = struct.Struct(">II")


class PreparedAnswers:
    """Answers of GET_ROUTEINFO_BY_TOPIC by the bytes of their request."""

    def __init__(self) -> None:
        self._answers: dict[bytes, tuple[int, int, bytes, bytes]] = {}
        self._keys_of_topic: dict[str, list[bytes]] = {}
        self._bytes = 0

    def answer(self, frame: bytes) -> bytes | None:
        """The whole answer to a request frame (both without and with length prefix, respectively); None if unknown."""
        start = frame.find(_OPAQUE) + 9
        end = frame.find(b",", start)
        if start < 9 or int.from_bytes(frame[:4], "big") != len(frame) - 4:
            return None
        kept = self._answers.get(frame[4:start] + frame[end:])
        if kept is None:
            return None
        opaque = frame[start:end]
        if not _is_canonical(opaque):
            return None
        total, header, head, tail = kept
        digits = len(opaque)
        return _LENGTHS.pack(total + digits, header + digits) + head + opaque + tail

    def keep(self, frame: bytes, request: RemotingCommand, response: RemotingCommand) -> None:
        """Keep the answer to a route query, if it is of the plain kind."""
        if (
            request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC
            or request.serialize_type is not SerializeType.JSON
            or response.serialize_type is not SerializeType.JSON
            or response.code != ResponseCode.SUCCESS
            or request.is_oneway
            or request.body
            or request.opaque < 0
            or frame.count(_OPAQUE) != 1
        ):
            return
        digits = str(request.opaque).encode()
        start = frame.find(_OPAQUE) + 9
        end = frame.find(b",", start)
        if frame[start:end] != digits or not _is_canonical(digits) or not _is_opaque_at(frame, start, end, request):
            return
        written = encode_frame(response)
        at = written.find(_OPAQUE) + 9
        total, header = _LENGTHS.unpack_from(written)
        key = frame[4:start] + frame[end:]
        size = len(key) + len(written) - len(digits)
        if self._bytes + size > _MAX_BYTES:
            self.clear()
        self._bytes += size
        self._answers[key] = (total - len(digits), header - len(digits), written[8:at], written[at + len(digits) :])
        topic = (request.ext_fields or {}).get("topic", "")
        self._keys_of_topic.setdefault(topic, []).append(key)

    def invalidate(self, topics: Iterable[str]) -> None:
        """Forget the answers about ``topics``."""
        if not self._keys_of_topic:
            return
        for topic in topics:
            for key in self._keys_of_topic.pop(topic, ()):
                kept = self._answers.pop(key, None)
                if kept is not None:
                    self._bytes -= len(key) + kept[0] + 4

    def clear(self) -> None:
        self._bytes = 0
        self._answers.clear()
        self._keys_of_topic.clear()


def _is_opaque_at(frame: bytes, start: int, end: int, request: RemotingCommand) -> bool:
    """Whether the number there is the opaque, and not in a comment, an ext field, or overridden behind."""
    other = (request.opaque + 1) % 10
    header = frame[4:start] + str(other).encode() + frame[end:]
    try:
        return decode_frame(len(header).to_bytes(4, "big") + header) == replace(request, opaque=other)
    except HeaderDecodeError:
        return False


def _is_canonical(opaque: bytes) -> bool:
    """Whether the general path would write the number back as it stands."""
    return (
        opaque.isdigit()
        and (opaque[0] != _ZERO or len(opaque) == 1)
        and (len(opaque) < len(_MAX_OPAQUE) or (len(opaque) == len(_MAX_OPAQUE) and opaque <= _MAX_OPAQUE))
    )
