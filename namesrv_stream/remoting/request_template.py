"""Requests, and responses, that differ in their opaque only.

Peers send the same request again and again under other correlation ids. Such requests share a template: their frame
without the digits of the opaque. Only frames with JSON headers have one.
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
#: Larger numbers do not fit 32 bits.
_MAX_OPAQUE: Final = b"2147483647"
_ZERO: Final = ord("0")
_LENGTHS: Final = struct.Struct(">II")


class CutFrame(NamedTuple):
    """A frame without length prefix, as ``cut_opaque`` divides it.

    Attributes:
        template: The frame without the digits.
        opaque: The digits.
    """

    template: bytes
    opaque: bytes


def cut_opaque(frame: bytes) -> CutFrame:
    """Cut a frame at what looks like its opaque; whether it is the opaque, ``template_of`` decides."""
    begin = frame.find(_OPAQUE) + _OPAQUE_BYTES
    end = frame.find(b",", begin)
    return CutFrame(frame[:begin] + frame[end:], frame[begin:end])


def is_canonical(opaque: bytes) -> bool:
    """Whether a number is written as an encoder would write it, and fits 31 bits."""
    return (
        opaque.isdigit()
        and (opaque[0] != _ZERO or len(opaque) == 1)
        and (len(opaque) < len(_MAX_OPAQUE) or (len(opaque) == len(_MAX_OPAQUE) and opaque <= _MAX_OPAQUE))
    )


def template_of(frame: bytes, request: RemotingCommand) -> CutFrame | None:
    """The cut of a frame, if every frame of that template with as many digits is the same request but for the opaque.

    The digits could stand in a comment or in another object, or be overridden by a later property. That is found out by
    decoding the frame with another number in their place.

    Args:
        frame: Without length prefix.
        request: What it decodes to.
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
        header_bytes: Length of its header, without the digits of the opaque.
        head: Its header up to the opaque.
        tail: What follows: the rest of the header, and the body.
    """

    header_bytes: int
    head: bytes
    tail: bytes

    def lengths(self, digits: int) -> bytes:
        """What a frame begins with whose opaque has so many digits: its length, and that of its header."""
        header_bytes = self.header_bytes + digits
        body_bytes = len(self.head) + len(self.tail) - self.header_bytes
        return _LENGTHS.pack(_WORD_BYTES + header_bytes + body_bytes, header_bytes)


def response_template(frame: bytes) -> ResponseTemplate:
    """The template of a response.

    Args:
        frame: As ``encode_frame`` returns it, with a JSON header.
    """
    _, header_bytes = _LENGTHS.unpack_from(frame)
    begin = frame.find(_OPAQUE, _LENGTHS.size) + _OPAQUE_BYTES
    end = frame.find(b",", begin)
    return ResponseTemplate(header_bytes - (end - begin), frame[_LENGTHS.size : begin], frame[end:])
