"""Templates of requests and responses that differ only in their opaque (the correlation id).

Peers repeat the same request with different correlation ids. Such requests share a template: their frame without the
digits of the opaque. Only frames with JSON headers have a template.
"""

import struct
from dataclasses import replace
from typing import Final, NamedTuple

from namesrv_stream.errors import RemotingError
from namesrv_stream.remoting.codes import SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame

_OPAQUE: Final = b'"opaque":'
_OPAQUE_BYTES: Final = len(_OPAQUE)
_WORD_BYTES: Final = 4
#: The largest signed 32-bit number.
_MAX_OPAQUE: Final = b"2147483647"
_ZERO: Final = ord("0")
_LENGTHS: Final = struct.Struct(">II")


class CutFrame(NamedTuple):
    """A frame without length prefix, split by ``cut_opaque``.

    Attributes:
        template: The frame without the digits of the opaque.
        opaque: The digits.
    """

    template: bytes
    opaque: bytes


def cut_opaque(frame: bytes) -> CutFrame:
    """Split a frame at the first text that looks like its opaque. ``template_of`` checks whether it is the opaque."""
    begin = frame.find(_OPAQUE) + _OPAQUE_BYTES
    end = frame.find(b",", begin)
    return CutFrame(frame[:begin] + frame[end:], frame[begin:end])


def is_canonical(opaque: bytes) -> bool:
    """Whether digits are the canonical form of a number of at most 31 bits."""
    return (
        opaque.isdigit()
        and (opaque[0] != _ZERO or len(opaque) == 1)
        and (len(opaque) < len(_MAX_OPAQUE) or (len(opaque) == len(_MAX_OPAQUE) and opaque <= _MAX_OPAQUE))
    )


def template_of(frame: bytes, request: RemotingCommand) -> CutFrame | None:
    """Split a frame, if all frames with its template and number of digits differ only in the opaque; otherwise None.

    The digits could be in a comment or in another object, or a later property could override them. Decoding the frame
    with another number in their place shows this.

    Args:
        frame: A frame without length prefix.
        request: The decoded frame.
    """
    template, opaque = cut = cut_opaque(frame)
    if request.serialize_type is not SerializeType.JSON or not is_canonical(opaque):
        return None
    if str(request.opaque).encode() != opaque:
        return None
    other = opaque[:-1] + b"%d" % ((opaque[-1] - _ZERO + 1) % 10)
    begin = frame.find(_OPAQUE) + _OPAQUE_BYTES
    try:
        decoded = decode_frame(template[:begin] + other + template[begin:])
    except RemotingError:
        return None
    return cut if decoded == replace(request, opaque=int(other)) else None


class ResponseTemplate(NamedTuple):
    """A response without its opaque.

    Attributes:
        header_bytes: Length of the header without the digits of the opaque.
        head: The header up to the opaque.
        tail: The rest of the header, and the body.
    """

    header_bytes: int
    head: bytes
    tail: bytes

    def lengths(self, digits: int) -> bytes:
        """Return the first 8 bytes of a frame whose opaque has ``digits`` digits: the lengths of frame and header."""
        header_bytes = self.header_bytes + digits
        body_bytes = len(self.head) + len(self.tail) - self.header_bytes
        return _LENGTHS.pack(_WORD_BYTES + header_bytes + body_bytes, header_bytes)


def response_template(frame: bytes) -> ResponseTemplate:
    """Return the template of a response.

    Args:
        frame: A frame with a JSON header, as ``encode_frame`` returns it.
    """
    _, header_bytes = _LENGTHS.unpack_from(frame)
    begin = frame.find(_OPAQUE, _LENGTHS.size) + _OPAQUE_BYTES
    end = frame.find(b",", begin)
    return ResponseTemplate(header_bytes - (end - begin), frame[_LENGTHS.size : begin], frame[end:])
