"""TLS around any protocol, by the certificate that is in use when its connection begins."""

import asyncio
import logging
from typing import cast

from namesrv_stream.errors import TlsBroken
from namesrv_stream.logs import safe
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.tls import ServerTls, TlsTransport

logger = logging.getLogger(__name__)


class TlsProtocol(asyncio.Protocol):
    """Decrypts what ``inner`` receives.

    ``inner`` has its connection before the handshake, so that its limits hold for handshakes too: how many connections
    there are, and how long it takes until a whole request is there.
    """

    def __init__(self, inner: asyncio.Protocol, tls: ServerTls, peer_log: PeerLog) -> None:
        self._inner = inner
        self._tls = tls
        self._peer_log = peer_log
        self._records: TlsTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._records = self._tls.accept_http(cast(asyncio.Transport, transport))
        self._inner.connection_made(self._records)

    def data_received(self, data: bytes) -> None:
        assert self._records is not None
        if self._records.is_closing():
            return
        was_established = self._records.is_established
        try:
            plain = self._records.received(data)
        except TlsBroken as error:
            self._tls.broken(error)
            text = "HTTP connection closed peer=%s reason=%s"
            self._peer_log.tell(logger, logging.INFO, text, self._peer(), safe(str(error)))
            self._records.close()
            return
        if self._records.is_established and not was_established:
            self._tls.established()
        if plain:
            self._inner.data_received(plain)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def eof_received(self) -> None:
        self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def _peer(self) -> str:
        address = self._records.get_extra_info("peername") if self._records else None
        return f"{address[0]}:{address[1]}" if address else "?"
