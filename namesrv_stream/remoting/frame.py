"""Frames: what a TCP stream is cut into, and how a command becomes one and comes out of one.

::

    total (4) | serialize type (1) | header length (3) | header | body

All big-endian. ``total`` counts what follows it. Source: rocketmq 5.3.3, RemotingCommand.encode and NettyDecoder.
"""

from struct import Struct
from typing import Final, TypeAlias

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
#: Room is made for so many times what has come of a partial frame, so that it is copied twice at most.
_GROWTH: Final = 2
#: More room is not told of: a peer's turn of reading is over when it has brought some hundred kilobytes.
_MOST_ROOM: Final = 256 * 1024
_PREFIX: Final = Struct(">i")
_PREFIX_AND_HEADER_WORD: Final = Struct(">iI")


#: A long one that came in parts is a ``bytearray``, which nobody else holds: a copy would take as long as to read it.
Frame: TypeAlias = bytes | bytearray


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
        self._prefix = b""  # of the partial frame, as far as it has come
        self._partial = bytearray()  # what has come behind it, with room for more
        self._filled = self._total = 0  # bytes of that: those that have come, and all
        self._error: RemotingError | None = None
        self._frames_before_error: list[Frame] = []

    @property
    def pending_bytes(self) -> int:
        """Bytes held for a frame that is not complete: at most twice what has come of it."""
        return len(self._prefix) + len(self._partial)

    @property
    def frames_before_error(self) -> list[Frame]:
        """Frames that were complete in the data whose ``feed`` raised: sound, and not handed out yet."""
        return self._frames_before_error

    def feed(self, data: bytes) -> list[Frame]:
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
        frames: list[Frame] = []
        try:
            self._cut(data, self._complete_partial(data, frames) if self._prefix else 0, frames)
        except RemotingError as error:
            self._error = error
            self._frames_before_error = frames
            self._prefix, self._partial = b"", bytearray()
            raise
        return frames

    def room(self, least: int = 1) -> memoryview:
        """Where the next bytes of a partial frame may be put, instead of being fed; then ``filled`` is to be told.

        Args:
            least: Bytes that there is to be room for; the frame has so many to come.
        """
        if len(self._partial) - self._filled < least:
            grown = bytearray(min(self._total, max(self._filled + least, _GROWTH * self._filled)))
            grown[: self._filled] = memoryview(self._partial)[: self._filled]
            self._partial = grown
        return memoryview(self._partial)[self._filled : self._filled + max(least, _MOST_ROOM)]

    def filled(self, size: int) -> Frame | None:
        """So many bytes were put where there was ``room``; the frame, if it is complete now."""
        self._filled += size
        if self._filled < self._total:
            return None
        frame, self._partial, self._prefix = self._partial, bytearray(), b""
        return frame

    def _complete_partial(self, data: bytes, frames: list[Frame]) -> int:
        """Move bytes to the partial frame until it is complete; how many bytes of ``data`` that took."""
        missing = _PREFIX_BYTES - len(self._prefix)
        if missing:
            self._prefix += data[:missing]
            if len(self._prefix) < _PREFIX_BYTES:
                return len(data)
            self._begin(self._prefix)
        return self._fill(data, missing, frames)

    def _cut(self, data: bytes, position: int, frames: list[Frame]) -> None:
        """Cut ``data`` from ``position`` on, where a frame begins; what is left becomes the partial frame."""
        size = len(data)
        unpack_from = _PREFIX.unpack_from
        while size - position >= _PREFIX_BYTES:
            begin = position + _PREFIX_BYTES
            end = begin + self._checked(unpack_from(data, position)[0])
            if end > size:
                self._prefix = data[position:begin]
                self._begin(self._prefix)
                self._fill(data, begin, frames)
                return
            frames.append(data[begin:end])
            position = end
        if position < size:
            self._prefix = data[position:]

    def _begin(self, prefix: bytes) -> None:
        self._total = self._checked(_PREFIX.unpack(prefix)[0])
        self._filled = 0

    def _fill(self, data: bytes, position: int, frames: list[Frame]) -> int:
        """Move bytes from ``position`` on to the partial frame; where they end."""
        end = min(position + self._total - self._filled, len(data))
        size = end - position
        with memoryview(data) as view:
            self.room(size)[:size] = view[position:end]
        frame = self.filled(size)
        if frame is not None:
            frames.append(frame)
        return end

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


def decode_frame(frame: Frame) -> RemotingCommand:
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
    with memoryview(frame) as view:
        header, body = bytes(view[_HEADER_WORD_BYTES:body_at]), bytes(view[body_at:]) or None
    if serialize_type == SerializeType.JSON:
        return header_json.decode_header(header, body)
    if serialize_type == SerializeType.ROCKETMQ:
        return header_rocketmq.decode_header(header, body)
    raise HeaderDecodeError(serialize_type, "no such serialize type")
