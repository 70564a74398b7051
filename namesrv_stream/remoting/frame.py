"""Frames: what a TCP stream is cut into, and how a command becomes one and comes out of one.

::

    total (4) | serialize type (1) | header length (3) | header | body

All big-endian. ``total`` counts what follows it. Source: rocketmq 5.3.3, RemotingCommand.encode and NettyDecoder.
"""

from struct import Struct
from typing import Final

from namesrv_stream.errors import FrameTooLarge, HeaderDecodeError, RemotingError
from namesrv_stream.remoting import header_json, header_rocketmq
from namesrv_stream.remoting.codes import SerializeType
from namesrv_stream.remoting.command import RemotingCommand

# NettyDecoder's default, `com.rocketmq.remoting.frameMaxLength`; Netty counts the prefix in.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024

# Differs from RocketMQ: it takes 16 MiB of header. Names and values are texts of people, and are logged; a header of
# millions of ext fields would keep the server's loop for seconds.
MAX_HEADER_BYTES: Final = 512 * 1024

_PREFIX_BYTES: Final = 4
_HEADER_WORD_BYTES: Final = 4
_PREFIX: Final = Struct(">i")
_PREFIX_AND_HEADER_WORD: Final = Struct(">iI")


class FrameBuffer:
    """Cuts a byte stream into frames; holds at most one partial frame.

    Memory follows what has arrived, never what a prefix announces, and time is linear however the stream is cut.
    After an error the stream cannot be resynchronised: every further ``feed`` raises it again.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        """Start at the beginning of a stream.

        Args:
            max_frame_bytes: Largest frame accepted, its 4-byte prefix counted.
        """
        self._max_frame_bytes = max_frame_bytes
        self._partial = bytearray()
        self._needed = _PREFIX_BYTES  # bytes of the partial frame with which it can be cut, or its length be read
        self._error: RemotingError | None = None
        self._frames_before_error: list[bytes] = []

    @property
    def pending_bytes(self) -> int:
        """Bytes held for a frame that is not complete."""
        return len(self._partial)

    @property
    def frames_before_error(self) -> list[bytes]:
        """Frames that were complete in the data whose ``feed`` raised: sound, and not handed out yet."""
        return self._frames_before_error

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes from the peer and return the frames they complete.

        Args:
            data: Any number of bytes, cut anywhere.

        Returns:
            Frames in arrival order, each without its 4-byte length prefix.

        Raises:
            FrameTooLarge: A prefix is negative or exceeds the limit.
            HeaderDecodeError: A prefix announces less than a header word.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)  # else each of these calls would leave a link in it
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return []
            data = bytes(self._partial)
            self._partial.clear()
        frames: list[bytes] = []
        try:
            rest = self._cut(data, frames)
        except RemotingError as error:
            self._error = error
            self._frames_before_error = frames
            raise
        if rest < len(data):
            self._partial += data[rest:]
        return frames

    def clear(self) -> None:
        """Give up the partial frame: the stream has ended."""
        self._partial = bytearray()

    def _cut(self, data: bytes, frames: list[bytes]) -> int:
        """Cut ``data`` into frames; where the first one begins that is not complete."""
        begin, size = 0, len(data)
        while size - begin >= _PREFIX_BYTES:
            end = begin + _PREFIX_BYTES + self._checked(_PREFIX.unpack_from(data, begin)[0])
            if end > size:
                self._needed = end - begin
                return begin
            frames.append(data[begin + _PREFIX_BYTES : end])
            begin = end
        self._needed = _PREFIX_BYTES
        return begin

    def _checked(self, total: int) -> int:
        """What a prefix says, if it may."""
        if total < 0:
            raise FrameTooLarge(total, self._max_frame_bytes)
        if total + _PREFIX_BYTES > self._max_frame_bytes:
            raise FrameTooLarge(total + _PREFIX_BYTES, self._max_frame_bytes)
        if total < _HEADER_WORD_BYTES:
            raise HeaderDecodeError(None, f"a frame of {total} bytes has no header word")
        return total


def encode_frame(command: RemotingCommand) -> bytes:
    """The frame of ``command``, length prefix included.

    Raises:
        ValueError: A field does not fit the width that the header has for it.
    """
    if command.serialize_type is SerializeType.JSON:
        header = header_json.encode_header(command)
    else:
        header = header_rocketmq.encode_header(command)
    if len(header) > MAX_HEADER_BYTES:
        raise ValueError(f"a header of {len(header)} bytes exceeds {MAX_HEADER_BYTES}")
    body = command.body or b""
    total = _HEADER_WORD_BYTES + len(header) + len(body)
    return _PREFIX_AND_HEADER_WORD.pack(total, command.serialize_type << 24 | len(header)) + header + body


def decode_frame(frame: bytes) -> RemotingCommand:
    """The command in ``frame``.

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
        return header_json.decode_header(header, body)
    if serialize_type == SerializeType.ROCKETMQ:
        return header_rocketmq.decode_header(header, body)
    raise HeaderDecodeError(serialize_type, "no such serialize type")
