"""Frames, of which a TCP stream consists, and their conversion to and from commands.

::

    total (4) | serialize type (1) | header length (3) | header | body

All numbers are big-endian. ``total`` counts the bytes after itself.
Source: rocketmq 5.3.3, RemotingCommand.encode and NettyDecoder.
"""

import struct
from collections.abc import Iterator
from dataclasses import replace
from struct import Struct
from typing import Final, NamedTuple

from namesrv_stream.errors import ForeignProtocol, FrameTooLarge, HeaderDecodeError, RemotingError
from namesrv_stream.remoting.command import RemotingCommand, SerializeType
from namesrv_stream.remoting.header_codecs import (
    decode_binary_header,
    decode_json_header,
    encode_binary_header,
    encode_json_header,
)

# NettyDecoder's default, `com.rocketmq.remoting.frameMaxLength`. Netty includes the prefix in the length.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024

# Differs from RocketMQ: Java accepts headers of 16 MiB. Real headers contain names and short texts; a header of
# millions of ext fields would block the server's loop for seconds.
MAX_HEADER_BYTES: Final = 512 * 1024

_PREFIX_BYTES: Final = 4
_HEADER_WORD_BYTES: Final = 4
#: The first bytes of an HTTP server or client, and of a TLS alert or handshake.
_OTHER_PROTOCOLS: Final = {
    **dict.fromkeys((b"HTTP", b"GET ", b"HEAD", b"POST", b"PUT "), "HTTP"),
    **dict.fromkeys((b"\x15\x03", b"\x16\x03"), "TLS"),
}
_PREFIX: Final = Struct(">i")
_PREFIX_AND_HEADER_WORD: Final = Struct(">iI")


class FrameBuffer:
    """Cuts a byte stream into frames, one at a time, so that complete frames can wait here without a copy of each.

    Memory grows with the received bytes, not with the announced length. Time is linear for any sizes of the chunks.
    After an error, the stream cannot be resynchronized, and every further ``take`` raises the error again.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        """Create a buffer for a stream, from its first byte on.

        Args:
            max_frame_bytes: Size of the largest accepted frame, including its 4-byte prefix.
        """
        self._max_frame_bytes = max_frame_bytes
        self._data, self._at = b"", 0  # received bytes, and where the next frame begins
        self._partial = bytearray()  # the start of an incomplete frame, while ``_data`` is empty
        self._needed = _PREFIX_BYTES  # bytes that complete the partial frame or its prefix

    @property
    def pending_bytes(self) -> int:
        """Number of buffered bytes: of an incomplete frame, and of frames that were not taken yet."""
        return len(self._partial) + len(self._data) - self._at

    @property
    def has_frames(self) -> bool:
        """Whether there may be complete frames; False if ``take`` has returned None since the last ``add``."""
        return self._at < len(self._data)

    def head(self, size: int) -> bytes:
        """Return the first bytes of the next frame, without its length prefix; b"" if it is not complete."""
        begin = self._at + _PREFIX_BYTES
        return self._data[begin : begin + size]

    def add(self, data: bytes) -> None:
        """Add any number of bytes from the peer."""
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return
            data, self._partial = bytes(self._partial), bytearray()
        elif self._at < len(self._data):
            data = self._data[self._at :] + data
        self._data, self._at = data, 0

    def take(self) -> bytes | None:
        """Return the next frame, without its 4-byte length prefix; None if no complete frame is buffered.

        Raises:
            FrameTooLarge: A prefix is negative or exceeds the limit.
            HeaderDecodeError: A prefix announces fewer bytes than the 4 of serialize type and header length.
        """
        data, begin = self._data, self._at
        left = len(data) - begin
        if left >= _PREFIX_BYTES:
            (total,) = _PREFIX.unpack_from(data, begin)
            if not _HEADER_WORD_BYTES <= total <= self._max_frame_bytes - _PREFIX_BYTES:
                self._data, self._at = data[begin : begin + _PREFIX_BYTES], 0
                raise self._error(total)
            end = begin + _PREFIX_BYTES + total
            if end < len(data):
                self._at = end
                return data[begin + _PREFIX_BYTES : end]
            if end == len(data):
                self._data, self._at = b"", 0
                return data[begin + _PREFIX_BYTES :]
            self._needed = end - begin
        elif not left:
            return None
        else:
            self._needed = _PREFIX_BYTES
        self._partial += data[begin:]
        self._data, self._at = b"", 0
        return None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes, and yield the frames that they complete. Raises as ``take`` does, after the frames before."""
        self.add(data)
        while (frame := self.take()) is not None:
            yield frame

    def clear(self) -> None:
        """Discard everything at the end of the stream."""
        self._data, self._at, self._partial = b"", 0, bytearray()

    def _error(self, total: int) -> RemotingError:
        if total < 0:
            return FrameTooLarge(total, self._max_frame_bytes)
        start = total.to_bytes(_PREFIX_BYTES, "big")
        protocol = next((name for first, name in _OTHER_PROTOCOLS.items() if start.startswith(first)), None)
        if protocol is not None and total > self._max_frame_bytes:
            return ForeignProtocol(protocol)
        if total < _HEADER_WORD_BYTES:
            return HeaderDecodeError(None, f"a frame of {total} bytes has no header word")
        return FrameTooLarge(total + _PREFIX_BYTES, self._max_frame_bytes)


def encode_frame(command: RemotingCommand) -> bytes:
    """Return the frame of ``command``, including its length prefix.

    Raises:
        ValueError: A field does not fit its width in the header, or the header is too long.
    """
    if command.serialize_type is SerializeType.JSON:
        header = encode_json_header(command)
    else:
        header = encode_binary_header(command)
    if len(header) > MAX_HEADER_BYTES:
        raise ValueError(f"a header of {len(header)} bytes exceeds {MAX_HEADER_BYTES}")
    body = command.body or b""
    total = _HEADER_WORD_BYTES + len(header) + len(body)
    return _PREFIX_AND_HEADER_WORD.pack(total, command.serialize_type << 24 | len(header)) + header + body


def decode_frame(frame: bytes) -> RemotingCommand:
    """Return the command of ``frame``.

    Args:
        frame: A frame without its length prefix, as ``FrameBuffer.feed`` returns it.

    Raises:
        HeaderDecodeError: The frame is too short for its header, or the header is too long or cannot be decoded.
    """
    if len(frame) < _HEADER_WORD_BYTES:
        raise HeaderDecodeError(None, f"a frame of {len(frame)} bytes has no header word")
    serialize_type = frame[0]
    body_at = _HEADER_WORD_BYTES + int.from_bytes(frame[1:_HEADER_WORD_BYTES], "big")
    if body_at > len(frame):
        raise HeaderDecodeError(serialize_type, f"the header ends {body_at - len(frame)} bytes after its frame")
    if body_at > _HEADER_WORD_BYTES + MAX_HEADER_BYTES:
        raise HeaderDecodeError(serialize_type, f"its {body_at - _HEADER_WORD_BYTES} bytes exceed {MAX_HEADER_BYTES}")
    header, body = frame[_HEADER_WORD_BYTES:body_at], frame[body_at:] or None
    if serialize_type == SerializeType.JSON:
        return decode_json_header(header, body)
    if serialize_type == SerializeType.ROCKETMQ:
        return decode_binary_header(header, body)
    raise HeaderDecodeError(serialize_type, "no such serialize type")


_OPAQUE: Final = b'"opaque":'
#: The largest signed 32-bit number.
_MAX_OPAQUE: Final = b"2147483647"
_ZERO: Final = ord("0")
_LENGTHS: Final = struct.Struct(">II")


def cut_opaque(frame: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a frame with a JSON header into the bytes before the digits of its opaque, the digits, and the rest.

    The first text that looks like the opaque is used; ``has_template`` checks whether it really is the opaque.
    """
    before, _, rest = frame.partition(_OPAQUE)
    opaque, _, after = rest.partition(b",")
    return before, opaque, after


def is_canonical(opaque: bytes) -> bool:
    """Whether a text is a non-negative number of at most 31 bits in canonical form: digits without a leading zero."""
    return (
        opaque.isdigit()
        and (opaque[0] != _ZERO or len(opaque) == 1)
        and (len(opaque) < len(_MAX_OPAQUE) or (len(opaque) == len(_MAX_OPAQUE) and opaque <= _MAX_OPAQUE))
    )


def has_template(frame: bytes, request: RemotingCommand) -> bool:
    """Whether the number that ``cut_opaque`` finds is the opaque, so that replacing it changes nothing but the opaque.

    The digits could be in a comment or in another object, or a later property could override them. Decoding the frame
    with another number in their place shows this.

    Args:
        frame: A frame without length prefix.
        request: The decoded frame.
    """
    before, opaque, after = cut_opaque(frame)
    if request.serialize_type is not SerializeType.JSON or not is_canonical(opaque):
        return False
    if str(request.opaque).encode() != opaque:
        return False
    other = opaque[:-1] + b"%d" % ((opaque[-1] - _ZERO + 1) % 10)
    try:
        decoded = decode_frame(before + _OPAQUE + other + b"," + after)
    except RemotingError:
        return False
    return decoded == replace(request, opaque=int(other))


class ResponseTemplate(NamedTuple):
    """An encoded response without its opaque, from which responses to equal requests are made.

    Attributes:
        header_bytes: Length of the header without the digits of the opaque.
        head: The header up to the opaque.
        tail: The rest of the header, and the body.
    """

    header_bytes: int
    head: bytes
    tail: bytes

    def frame(self, opaque: bytes) -> bytes:
        """Return the response, with length prefix, to a request with this opaque."""
        header_bytes, head, tail = self
        digits = len(opaque)
        lengths = _LENGTHS.pack(_HEADER_WORD_BYTES + len(head) + digits + len(tail), header_bytes + digits)
        return b"".join((lengths, head, opaque, tail))


def response_template(frame: bytes) -> ResponseTemplate:
    """Return the template of a response.

    Args:
        frame: A frame with a JSON header, as ``encode_frame`` returns it.
    """
    _, header_bytes = _LENGTHS.unpack_from(frame)
    before, opaque, after = cut_opaque(frame[_LENGTHS.size :])
    return ResponseTemplate(header_bytes - len(opaque), before + _OPAQUE, b"," + after)
