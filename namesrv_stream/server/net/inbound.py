"""Converts the bytes of a connection to frames: an optional PROXY preamble, then TLS or plain, then frames."""

import asyncio
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final, cast

from namesrv_stream.errors import TlsBroken
from namesrv_stream.remoting.frame import FrameBuffer
from namesrv_stream.remoting.proxy_protocol import read_preamble
from namesrv_stream.server.tls import ServerTls, TlsTransport

#: First byte of a TLS handshake record; a frame begins with 0.
_TLS_HANDSHAKE: Final = 0x16


class Inbound:
    """The protocol layers of one connection.

    Attributes:
        transport: Transport for answers; a ``TlsTransport`` once the peer has begun a TLS handshake.
        feed: Takes bytes and returns the frames that they complete, without prefixes. Raises a RemotingError if the
            bytes break the protocol.
        proxied_for: Address of the peer behind a proxy, "itself" if the proxy is the peer; "" without a preamble.
    """

    def __init__(self, transport: asyncio.Transport, tls: ServerTls, max_frame_bytes: int) -> None:
        """Accept frames of up to ``max_frame_bytes``, including the length prefix."""
        self.transport = transport
        self.feed: Callable[[bytes], list[bytes]] = self._feed_preamble
        self.proxied_for = ""
        self._tls = tls
        self._preamble = b""  # its bytes so far
        self._records: TlsTransport | None = None
        self._buffer = FrameBuffer(max_frame_bytes)
        self._sound: list[bytes] = []

    @property
    def is_plain(self) -> bool:
        """Whether the peer sends frames without TLS."""
        return self.feed == self._buffer.feed

    @property
    def proxied_host(self) -> str:
        """The host of the peer behind a proxy; "" if there is none."""
        return host_of(self.proxied_for.rpartition(":")[0].strip("[]"))

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete frame, preamble or TLS record."""
        records = 0 if self._records is None else self._records.held_bytes
        return len(self._preamble) + records + self._buffer.pending_bytes

    @property
    def frames_before_error(self) -> list[bytes]:
        """The valid frames before the one at which ``feed`` failed."""
        return self._sound or self._buffer.frames_before_error

    def end(self) -> None:
        """Drop incomplete bytes of a closed connection."""
        self._preamble = b""
        self._buffer.clear()

    def _feed_preamble(self, data: bytes) -> list[bytes]:
        data, self._preamble = self._preamble + data, b""
        if not self.proxied_for:
            preamble = read_preamble(data)
            if preamble is None:
                self._preamble = data
                return []
            if preamble.size:
                self.proxied_for = preamble.source or "itself"
                data = data[preamble.size :]
        return self._feed_first(data) if data else []

    def _feed_first(self, data: bytes) -> list[bytes]:
        """Choose TLS or plain by the first byte after the preamble."""
        if data[0] == _TLS_HANDSHAKE:
            self._records = self._tls.accept(self.transport)
            self.transport = cast(asyncio.Transport, self._records)
            self.feed = self._feed_records
        else:
            self._tls.refuse_plain()
            self.feed = self._buffer.feed
        return self.feed(data)

    def _feed_records(self, data: bytes) -> list[bytes]:
        assert self._records is not None
        was_established = self._records.is_established
        try:
            return self._buffer.feed(self._records.received(data))
        except TlsBroken as error:
            self._sound = self._buffer.feed(error.content)
            raise
        finally:
            if self._records.is_established and not was_established:
                self._tls.established()


def host_of(address: str) -> str:
    """Return an address; an IPv4-mapped IPv6 address, as dual-stack sockets show it, becomes plain IPv4."""
    try:
        host = ip_address(address)
    except ValueError:
        return address
    return str(host.ipv4_mapped or host) if isinstance(host, IPv6Address) else str(host)
