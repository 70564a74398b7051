"""TLS around any protocol, by the certificate that is in use when its connection begins."""

import asyncio
import logging
from typing import Final, cast

from namesrv_stream.errors import TlsBroken
from namesrv_stream.logs import safe
from namesrv_stream.server.tls import ServerTls, TlsTransport

logger = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT_S: Final = 10.0


class TlsProtocol(asyncio.Protocol):
    """Decrypts what ``inner`` receives. ``inner`` has its connection once the handshake is done.

    Half a record is no request yet, and ``inner`` counts the time until it has a whole one; only before it knows of its
    connection that is done here.
    """

    def __init__(self, inner: asyncio.Protocol, tls: ServerTls) -> None:
        self._inner = inner
        self._tls = tls
        self._records: TlsTransport | None = None
        self._is_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._records = self._tls.accept_http(cast(asyncio.Transport, transport))
        self._is_late = asyncio.get_running_loop().call_later(_HANDSHAKE_TIMEOUT_S, self._records.abort)

    def data_received(self, data: bytes) -> None:
        assert self._records is not None
        if self._records.is_closing():
            return
        try:
            plain = self._records.received(data)
        except TlsBroken as error:
            self._tls.broken(error)
            logger.info("HTTP connection closed peer=%s reason=%s", self._peer(), safe(str(error)))
            self._records.close()
            return
        if self._is_late is not None and self._records.is_established:
            self._stop_waiting()
            self._tls.established()
            self._inner.connection_made(self._records)
        if plain:
            self._inner.data_received(plain)

    def pause_writing(self) -> None:
        if self._is_open:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._is_open:
            self._inner.resume_writing()

    def eof_received(self) -> None:
        if self._is_open:
            self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_open:
            self._inner.connection_lost(exc)
        self._stop_waiting()

    @property
    def _is_open(self) -> bool:
        return self._is_late is None and self._records is not None

    def _stop_waiting(self) -> None:
        if self._is_late is not None:
            self._is_late.cancel()
            self._is_late = None

    def _peer(self) -> str:
        address = self._records.get_extra_info("peername") if self._records else None
        return f"{address[0]}:{address[1]}" if address else "?"
