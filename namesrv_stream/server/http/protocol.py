"""HTTP connections, with or without TLS, and limits on their number and on the time of requests and answers."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from namesrv_stream.errors import TlsBroken
from namesrv_stream.logs import safe
from namesrv_stream.metrics import Counters
from namesrv_stream.server.http.answers import Problem
from namesrv_stream.server.net.connections import AddressCounts
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.server_metrics import HttpLoad
from namesrv_stream.server.tls import ServerTls, TlsTransport
from namesrv_stream.settings import HttpSettings

#: Key of the connection in the state of the ASGI scope.
CONNECTION: Final = "connection"


@dataclass(frozen=True, slots=True)
class Port:
    """Objects that all connections of the HTTP port share."""

    settings: HttpSettings
    counters: Counters
    load: HttpLoad
    peer_log: PeerLog
    addresses: AddressCounts = field(default_factory=AddressCounts)

    def event(self, name: str) -> None:
        """Count an event of a connection, for example a refused client."""
        self.counters.count("rocketmq_namesrv_http_events_total", name)


class HttpProtocol(H11Protocol):
    """uvicorn's connection with more limits: on the number of connections, and on the time of a request.

    uvicorn's own timer covers only idle connections between two requests. A client that sends a byte now and then would
    keep its connection, and the memory of its incomplete request, forever. So would a client that leaves an answer
    unread, because uvicorn's close waits until everything is written.
    """

    def __init__(self, port: Port, **of_uvicorn: Any) -> None:
        super().__init__(**(of_uvicorn | {"app_state": {CONNECTION: self}}))
        self._port = port
        self._host = ""
        self._request_timeout_s = port.settings.request_timeout_ms / 1000
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._host = self.client[0] if self.client else ""
        of_address, limits = self._port.addresses.enter(self._host), self._port.settings
        if len(self.connections) > limits.max_connections or of_address > limits.max_connections_per_address:
            self._port.event("connection_refused")
            transport.abort()
            return
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._late = _cancelled(self._late)
        self._unread = _cancelled(self._unread)
        self._port.addresses.leave(self._host)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid HTTP request with a ``Problem``, like all other errors. uvicorn calls this method."""
        self._port.event("request_broken")
        answer = Problem(400, "this is not an HTTP request").response()
        headers = [*answer.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self.expect_reader(self._request_timeout_s)

    def expect_reader(self, within_s: float) -> None:
        """Close the connection if the client does not read the written answer in time.

        Another answer restarts the time. A client cannot stay connected by sending further requests: the unread bytes
        grow until the next answer has to wait for the client.
        """
        self._unread = _cancelled(self._unread)
        if self.transport.get_write_buffer_size():
            self._unread = self.loop.call_later(within_s, self._give_up_unread)

    def abort(self, event: str) -> None:
        self._port.event(event)
        self.transport.abort()

    def _expect_request(self) -> None:
        """Limit the time from the first byte of a request, or the start of the connection, to its end."""
        is_idle = self.timeout_keep_alive_task is not None  # then uvicorn's timer runs
        if self._is_answering or is_idle or self.transport.is_closing():
            self._late = _cancelled(self._late)
        elif self._late is None:
            self._late = self.loop.call_later(self._request_timeout_s, self.abort, "request_late")

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _give_up_unread(self) -> None:
        self._unread = None
        # If another answer is being sent, the buffer may contain only its bytes, and its own limits apply.
        if self.transport.get_write_buffer_size() and not self._is_answering:
            self.abort("slow_reader")


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None


logger = logging.getLogger(__name__)


class TlsProtocol(asyncio.Protocol):
    """Decrypts the bytes that ``inner`` receives.

    ``inner`` gets its connection before the handshake. So its limits on the number of connections, and on the time
    until a request is complete, also apply to handshakes.
    """

    def __init__(self, inner: asyncio.Protocol, tls: ServerTls, peer_log: PeerLog) -> None:
        self._inner = inner
        self._tls = tls
        self._peer_log = peer_log
        self._records: TlsTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._records = self._tls.accept_http(cast(asyncio.Transport, transport))
        self._inner.connection_made(cast(asyncio.Transport, self._records))

    def data_received(self, data: bytes) -> None:
        assert self._records is not None
        if self._records.is_closing():
            return
        was_established = self._records.is_established
        try:
            plain = self._records.received(data)
        except TlsBroken as error:
            self._tls.broken(error)
            text, address = "HTTP connection closed peer=%s reason=%s", self._records.get_extra_info("peername")
            peer = f"{address[0]}:{address[1]}" if address else "?"
            self._peer_log.log(logger, logging.INFO, text, peer, safe(str(error)))
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
