"""Frames: the parts of a TCP stream, and their conversion to and from commands.

::

    total (4) | serialize type (1) | header length (3) | header | body

All numbers are big-endian. ``total`` counts the bytes after itself.
Source: rocketmq 5.3.3, RemotingCommand.encode and NettyDecoder.
"""

from struct import Struct
from typing import Final

from namesrv_stream.errors import FrameTooLarge, HeaderDecodeError, RemotingError
from namesrv_stream.remoting import header_json, header_rocketmq
from namesrv_stream.remoting.codes import SerializeType
from namesrv_stream.remoting.command import RemotingCommand

# NettyDecoder's default, `com.rocketmq.remoting.frameMaxLength`. Netty includes the prefix in the length.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024

# Differs from RocketMQ: Java accepts headers of 16 MiB. Real headers contain names and short texts; a header of
# millions of ext fields would block the server's loop for seconds.
MAX_HEADER_BYTES: Final = 512 * 1024

_PREFIX_BYTES: Final = 4
_HEADER_WORD_BYTES: Final = 4
_PREFIX: Final = Struct(">i")
_PREFIX_AND_HEADER_WORD: Final = Struct(">iI")


class FrameBuffer:
    """Cuts a byte stream into frames, and buffers at most one partial frame.

    Memory grows with the received bytes, not with the announced length. Time is linear for any sizes of the chunks.
    After an error, the stream cannot be resynchronized, and every further ``feed`` raises the error again.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        """Start at the beginning of a stream.

        Args:
            max_frame_bytes: Size of the largest accepted frame, including its 4-byte prefix.
        """
        self._max_frame_bytes = max_frame_bytes
        self._partial = bytearray()
        self._needed = _PREFIX_BYTES  # bytes that complete the partial frame or its prefix
        self._error: RemotingError | None = None
        self._frames_before_error: list[bytes] = []

    @property
    def pending_bytes(self) -> int:
        """Number of buffered bytes of an incomplete frame."""
        return len(self._partial)

    @property
    def frames_before_error(self) -> list[bytes]:
        """Complete, valid frames of the data for which ``feed`` raised; ``feed`` has not returned them."""
        return self._frames_before_error

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes from the peer and return the frames that they complete.

        Args:
            data: Any number of bytes.

        Returns:
            Frames in arrival order, each without its 4-byte length prefix.

        Raises:
            FrameTooLarge: A prefix is negative or exceeds the limit.
            HeaderDecodeError: A prefix announces less than a header word.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)  # otherwise its traceback would grow with each call
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
        """Discard the partial frame at the end of the stream."""
        self._partial = bytearray()

    def _cut(self, data: bytes, frames: list[bytes]) -> int:
        """Cut ``data`` into frames, and return where the first incomplete one begins."""
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
        """Return the length of a prefix if it is valid."""
        if total < 0:
            raise FrameTooLarge(total, self._max_frame_bytes)
        if total + _PREFIX_BYTES > self._max_frame_bytes:
            raise FrameTooLarge(total + _PREFIX_BYTES, self._max_frame_bytes)
        if total < _HEADER_WORD_BYTES:
            raise HeaderDecodeError(None, f"a frame of {total} bytes has no header word")
        return total


def encode_frame(command: RemotingCommand) -> bytes:
    """Return the frame of ``command``, including its length prefix.

    Raises:
        ValueError: A field does not fit its width in the header, or the header is too long.
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
        return header_json.decode_header(header, body)
    if serialize_type == SerializeType.ROCKETMQ:
        return header_rocketmq.decode_header(header, body)
    raise HeaderDecodeError(serialize_type, "no such serialize type")
