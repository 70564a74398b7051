"""Converts the bytes of a connection to frames: an optional PROXY preamble, then TLS or plain, then frames."""

import asyncio
import re
from collections.abc import Callable
from typing import Final, cast

from namesrv_stream.addresses import parts_of, plain_host
from namesrv_stream.errors import RemotingError, TlsBroken
from namesrv_stream.remoting.frame import FrameBuffer
from namesrv_stream.remoting.proxy_protocol import read_preamble
from namesrv_stream.server.tls import ServerTls, TlsTransport

#: First byte of a TLS handshake record; a frame begins with 0.
_TLS_HANDSHAKE: Final = 0x16
_HEADER_WORD_BYTES: Final = 4


class Inbound:
    """The protocol layers of one connection. ``take`` returns the frames that ``add`` has received.

    Attributes:
        transport: Transport for answers; a ``TlsTransport`` once the peer has begun a TLS handshake.
        proxied_for: Address of the peer behind a proxy, "itself" if the proxy is the peer; "" without a preamble.
    """

    def __init__(self, transport: asyncio.Transport, tls: ServerTls, max_frame_bytes: int) -> None:
        """Accept frames of up to ``max_frame_bytes``, including the length prefix."""
        self.transport = transport
        self.proxied_for = ""
        self._tls = tls
        self._preamble = b""  # its bytes so far
        self._records: TlsTransport | None = None
        self._buffer = FrameBuffer(max_frame_bytes)
        self._receive: Callable[[bytes], None] = self._receive_preamble
        self._error: RemotingError | None = None

    def add(self, data: bytes) -> None:
        """Add bytes from the peer."""
        try:
            self._receive(data)
        except RemotingError as error:
            # Without its traceback and context, whose frames would keep the received bytes.
            self._error = error.with_traceback(None)
            error.__context__ = None
            self._receive = _ignore

    def take(self) -> bytes | None:
        """Return the next frame without its prefix; None if no complete frame is there.

        Raises:
            RemotingError: The bytes after all valid frames break the protocol.
        """
        frame = self._buffer.take()
        if frame is None and self._error is not None:
            raise self._error  # the caller closes the connection; ``end`` then drops the error with its traceback
        return frame

    @property
    def is_plain(self) -> bool:
        """Whether the peer sends frames without TLS."""
        return self._receive == self._buffer.add

    @property
    def proxied_host(self) -> str:
        """The host of the peer behind a proxy; "" if there is none."""
        return plain_host(parts_of(self.proxied_for)[0])

    @property
    def held_bytes(self) -> int:
        """Received bytes that are kept: of frames that were not taken yet, and of an incomplete frame, preamble or
        TLS record."""
        records = 0 if self._records is None else self._records.held_bytes
        return len(self._preamble) + records + self._buffer.pending_bytes

    @property
    def has_frames(self) -> bool:
        """Whether there may be complete frames, or an error; False if ``take`` has returned None since ``add``."""
        return self._buffer.has_frames or self._error is not None

    def next_code(self) -> int:
        """Return the request code of the next frame; -1 if it is unknown before the frame is decoded."""
        return code_of(self._buffer.head(_HEAD_BYTES))

    def end(self) -> None:
        """Drop everything, because the connection is closed."""
        self._receive, self._preamble, self._records, self._error = _ignore, b"", None, None
        self._buffer.clear()

    def _receive_preamble(self, data: bytes) -> None:
        data, self._preamble = self._preamble + data, b""
        if not self.proxied_for:
            preamble = read_preamble(data)
            if preamble is None:
                self._preamble = data
                return
            if preamble.size:
                self.proxied_for = preamble.source or "itself"
                data = data[preamble.size :]
        if data:
            self._receive_first(data)

    def _receive_first(self, data: bytes) -> None:
        """Choose TLS or plain by the first byte after the preamble."""
        if data[0] == _TLS_HANDSHAKE:
            self._records = self._tls.accept(self.transport)
            self.transport = cast(asyncio.Transport, self._records)
            self._receive = self._receive_records
        else:
            self._tls.refuse_plain()
            self._receive = self._buffer.add
        self._receive(data)

    def _receive_records(self, data: bytes) -> None:
        assert self._records is not None
        was_established = self._records.is_established
        try:
            self._buffer.add(self._records.received(data))
        except TlsBroken as error:
            self._buffer.add(error.content)
            raise
        finally:
            if self._records.is_established and not was_established:
                self._tls.established()


def _ignore(data: bytes) -> None:
    """Take the place of ``_receive`` after an error, or when the connection is closed."""


#: Bytes of a frame that contain its request code, if the header is written as RocketMQ does.
_HEAD_BYTES: Final = 32
_CODE: Final = re.compile(rb'\{"code":([0-9]{1,9}),')


def code_of(head: bytes) -> int:
    """Return the request code from the first bytes of a frame; -1 if the header is written in an unusual way."""
    if head[:1] == b"\x01" and len(head) >= _HEADER_WORD_BYTES + 2:  # the binary header begins with the code
        return int.from_bytes(head[_HEADER_WORD_BYTES : _HEADER_WORD_BYTES + 2], "big")
    found = _CODE.match(head, _HEADER_WORD_BYTES)
    return int(found[1]) if found else -1
