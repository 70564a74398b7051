"""From the bytes of a connection to frames: perhaps behind a PROXY preamble, and within TLS or plain."""

import asyncio
from collections.abc import Callable
from typing import Final

from namesrv_stream.errors import TlsBroken
from namesrv_stream.remoting.frame import Frame, FrameBuffer
from namesrv_stream.server.opening import Opening
from namesrv_stream.server.tls import ServerTls, TlsTransport

#: First byte of a TLS handshake record; that of a frame is 0.
_TLS_HANDSHAKE: Final = 0x16


class Incoming:
    """The frames in what one peer sends.

    Attributes:
        transport: What answers are written to: TLS, once the peer has begun with that.
        feed: The frames that bytes bring, without their prefixes. Raises a RemotingError where they break the protocol.
        is_plain: Whether the peer has begun with frames, so that there is nothing else around them.

    Args:
        transport: The connection's.
        tls: The server's.
        max_frame_bytes: Largest frame accepted, its prefix counted.
    """

    def __init__(self, transport: asyncio.Transport, tls: ServerTls, max_frame_bytes: int) -> None:
        self.transport = transport
        self.feed: Callable[[bytes], list[Frame]] = self._feed_first
        self.is_plain = False
        self._tls = tls
        self._opening = Opening()
        self._buffer = FrameBuffer(max_frame_bytes)
        self._records: TlsTransport | None = None
        self._sound: list[Frame] = []

    @property
    def proxied_for(self) -> str:
        """Who is behind the proxy; "" where there is none."""
        return self._opening.proxied_for

    @property
    def held_bytes(self) -> int:
        """Of a frame, a preamble or a TLS record that is not complete."""
        below = self._opening if self._records is None else self._records
        return below.held_bytes + self._buffer.pending_bytes

    @property
    def frames_before_error(self) -> list[Frame]:
        """The sound frames before that by which ``feed`` failed."""
        return self._sound or self._buffer.frames_before_error

    def room(self) -> memoryview:
        """Where a plain peer's next bytes may be put that belong to a frame of which some have come."""
        return self._buffer.room()

    def filled(self, size: int) -> list[Frame]:
        """So many were put there; the frame, if they completed it."""
        frame = self._buffer.filled(size)
        return [] if frame is None else [frame]

    def _feed_first(self, data: bytes) -> list[Frame]:
        """As long as the connection has not got beyond its first bytes."""
        data = self._opening.feed(data)
        if not data:
            return []
        if data[0] == _TLS_HANDSHAKE:
            self.transport = self._records = self._tls.accept(self.transport)
            self.feed = self._feed_records
        else:
            self._tls.refuse_plain()
            self.feed = self._buffer.feed
            self.is_plain = True
        return self.feed(data)

    def _feed_records(self, data: bytes) -> list[Frame]:
        """The frames that TLS records hold."""
        assert self._records is not None
        was_established = self._records.is_established
        try:
            return self._buffer.feed(self._records.received(data))
        except TlsBroken as error:
            self._sound = self._buffer.feed(error.sound)
            raise
        finally:
            if self._records.is_established and not was_established:
                self._tls.established()
