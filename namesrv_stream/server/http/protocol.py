"""HTTP connections, with or without TLS, and limits on their number and on the time of requests and answers."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from namesrv_stream.addresses import join_addr
from namesrv_stream.errors import TlsBroken
from namesrv_stream.logs import safe
from namesrv_stream.metrics import Counters
from namesrv_stream.server.http.answers import Problem
from namesrv_stream.server.net.connections import AddressCounts, peer_of
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.server_metrics import HttpLoad
from namesrv_stream.server.tls import ServerTls, TlsTransport
from namesrv_stream.settings import HttpSettings

#: Key of the connection in the state of the ASGI scope.
CONNECTION: Final = "connection"
#: Maximum size of a request's first line and headers, in bytes and in lines.
_HEAD_BYTES: Final = 16 << 10
_HEAD_LINES: Final = 200
#: Bytes that are parsed at once; as chunks of a body of one byte each, they take a millisecond or two.
_PARSED_BYTES: Final = 2 << 10
#: Maximum memory of answers that peers have not read, of all connections.
_UNREAD_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Port:
    """Objects that all connections of the HTTP port share.

    Attributes:
        waiting: The connections without a request that is being answered, the longest wait first.
        unread: Connection → bytes of answers that its peer had not read when the server last wrote.
    """

    settings: HttpSettings
    counters: Counters
    load: HttpLoad
    peer_log: PeerLog
    addresses: AddressCounts = field(default_factory=AddressCounts)
    waiting: dict["HttpProtocol", None] = field(default_factory=dict)
    unread: dict["HttpProtocol", int] = field(default_factory=dict)

    def event(self, name: str) -> None:
        """Count an event of a connection, for example a refused client."""
        self.counters.count("rocketmq_namesrv_http_events_total", name)

    def make_room(self, peer: str | None) -> None:
        """Close the connection, of one peer or of any, that has waited longest: probes must always get one."""
        for connection in self.waiting:
            if peer in (None, connection.peer):
                connection.abort("connection_refused")
                return

    def wrote(self, connection: "HttpProtocol") -> None:
        """Bound the bytes that peers have not read: beyond the limit, close the connections with the most."""
        self.unread[connection] = connection.unread_bytes
        if sum(self.unread.values()) > _UNREAD_BYTES:  # of at most ``max_connections``
            self.unread.update({each: each.unread_bytes for each in self.unread})
            while sum(self.unread.values()) > _UNREAD_BYTES:
                max(self.unread, key=self.unread.__getitem__).abort("unread")


class HttpProtocol(H11Protocol):
    """uvicorn's connection with more limits: on the number of connections, and on the time of a request.

    uvicorn's own timer covers only idle connections between two requests. A client that sends a byte now and then would
    keep its connection, and the memory of its incomplete request, forever. So would a client that leaves an answer
    unread, because uvicorn's close waits until everything is written.
    """

    def __init__(self, port: Port, **of_uvicorn: Any) -> None:
        super().__init__(**(of_uvicorn | {"app_state": {CONNECTION: self}}))
        self._port = port
        self._host = self.peer = ""
        self._unparsed = b""
        self._head_lines = 0
        self._request_timeout_s = port.settings.request_timeout_ms / 1000
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._host = self.client[0] if self.client else ""
        self.peer = peer_of(self._host)
        of_address, limits = self._port.addresses.enter(self._host), self._port.settings
        self._expect_request()
        if len(self.connections) > limits.max_connections:
            self._port.make_room(None)
        elif of_address > limits.max_connections_per_address:
            self._port.make_room(self.peer)

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self._parse()
        self._expect_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._parse()
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._late = _cancelled(self._late)
        self._unread = _cancelled(self._unread)
        self._forget()
        self._port.addresses.leave(self._host)
        super().connection_lost(exc)

    def _parse(self) -> None:
        """Parse bytes, a few at a time, until a request is complete.

        uvicorn would parse at once whatever it receives: thousands of headers, or of chunks of a body.
        """
        while self._unparsed and not self._is_answering and not self.transport.is_closing():
            part, self._unparsed = self._unparsed[:_PARSED_BYTES], self._unparsed[_PARSED_BYTES:]
            self._head_lines += part.partition(b"\r\n\r\n")[0].count(b"\n")
            if self._head_lines > _HEAD_LINES:
                self.send_400_response("")
            else:
                super().data_received(part)
        if self._is_answering:
            self._head_lines = 0
        if self.conn.their_state is h11.SEND_BODY:
            self._unparsed = b""  # the request is refused
        if self._unparsed:
            self.flow.pause_reading()
            if len(self._unparsed) > _HEAD_BYTES:
                self.abort("request_broken")  # no client sends so much before it gets an answer

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid HTTP request with a ``Problem``, like all other errors. uvicorn calls this method."""
        self._port.event("request_broken")
        most = f"{_HEAD_BYTES >> 10} KiB or {_HEAD_LINES} lines"
        answer = Problem(400, f"this is not an HTTP request, or its head has more than {most}").response()
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
        if self.unread_bytes:
            self._unread = self.loop.call_later(within_s, self._give_up_unread)

    @property
    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def wrote(self) -> None:
        """Count the bytes that the peer has not read yet."""
        if self in self.connections:
            self._port.wrote(self)

    def abort(self, event: str) -> None:
        self._port.event(event)
        self._forget()
        self.transport.abort()

    def _forget(self) -> None:
        self._unparsed = b""
        self._port.waiting.pop(self, None)
        self._port.unread.pop(self, None)

    def _expect_request(self) -> None:
        """Limit the time from the first byte of a request, or the start of the connection, to its end."""
        is_idle = self.timeout_keep_alive_task is not None  # then uvicorn's timer runs
        is_waiting = not (self._is_answering or self.transport.is_closing())
        if is_waiting:
            self._port.waiting.setdefault(self)
        else:
            self._port.waiting.pop(self, None)
        if is_idle or not is_waiting:
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
        if self.unread_bytes and not self._is_answering:
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
            peer = join_addr(*address[:2]) if address else "?"
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
