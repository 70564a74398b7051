"""One TCP connection to a name server or broker, with many requests in flight, and its TLS context."""

import asyncio
import itertools
import logging
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Self, cast

from namesrv_stream.addresses import split_addr
from namesrv_stream.client.client_errors import ConnectionLost, RequestTimedOut, RequestTooLarge
from namesrv_stream.errors import ConfigError, RemotingError
from namesrv_stream.logs import safe
from namesrv_stream.remoting.command import ONEWAY_FLAG, RemotingCommand, ResponseCode
from namesrv_stream.remoting.frame import FrameBuffer, decode_frame, encode_frame

logger = logging.getLogger(__name__)
# One sequence for the process, as RemotingCommand.requestId in RocketMQ, so that an opaque in a log or a capture
# identifies one request; limited to 31 bits, because the field is a signed int.
_OPAQUES: Final[Iterator[int]] = itertools.count(1)
_OPAQUE_MASK: Final = 0x7FFFFFFF
_FLUSH_TIMEOUT_S: Final = 1.0


def client_context(
    trust_file: Path | None = None, cert_file: Path | None = None, key_file: Path | None = None
) -> ssl.SSLContext:
    """Return a TLS context for connections that verify the server's certificate and its host name; blocks.

    Differs from RocketMQ, whose clients by default trust every server and never verify its host name.

    Args:
        trust_file: Trusted certificates, PEM; None for those of the system.
        cert_file: The client's certificate, PEM; None for a client without one.
        key_file: The private key, PEM, without a password; None if ``cert_file`` contains it.

    Raises:
        ConfigError: A file cannot be used; contains its name.
    """
    try:
        context = ssl.create_default_context(cafile=str(trust_file) if trust_file else None)
    except OSError as error:  # includes ssl.SSLError
        raise ConfigError(str(trust_file), "--tls-trust", _tls_reason(error, "certificates")) from None
    if cert_file is not None:
        try:
            context.load_cert_chain(cert_file, key_file, password=lambda: b"")
        except OSError as error:
            raise ConfigError(
                str(key_file or cert_file), "--tls-cert", _tls_reason(error, "certificate or key")
            ) from None
    return context


def _tls_reason(error: OSError, what: str) -> str:
    return f"contains no usable {what}" if isinstance(error, ssl.SSLError) else str(error.strerror)


class RemotingConnection(asyncio.Protocol):
    """A connection; created by ``connect``. It belongs to the event loop that created it.

    It closes itself on bytes that are not a frame, and on GO_AWAY. It never reconnects; its owner does.
    """

    def __init__(self, addr: str) -> None:
        """Use ``connect`` instead.

        Args:
            addr: Address of the peer, for error messages.
        """
        loop = asyncio.get_running_loop()
        self.addr = addr
        #: Done when the connection has ended; its result is the reason.
        self.closed: asyncio.Future[str] = loop.create_future()
        self._loop = loop
        self._frames = FrameBuffer()
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}  # by opaque
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._close_reason = ""

    @classmethod
    async def connect(cls, addr: str, timeout_ms: int = 3_000, tls: ssl.SSLContext | None = None) -> Self:
        """Open a connection.

        Args:
            addr: ``host:port``.
            timeout_ms: Time limit in milliseconds; 3 s is NettyClientConfig.connectTimeoutMillis.

        Raises:
            ConnectionLost: The connection could not be opened, or not in time.
            ConfigError: ``addr`` is not ``host:port``.
        """
        host, port = address_of(addr)
        connection = cls(addr)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.get_running_loop().create_connection(lambda: connection, host, port, ssl=tls)
        except BaseException as error:
            connection.abort()  # it may have been opened at the moment of the timeout
            if isinstance(error, TimeoutError):
                raise ConnectionLost(addr, f"no connection within {timeout_ms} ms") from None
            if isinstance(error, OSError | UnicodeError):  # UnicodeError: IDNA cannot encode the host
                raise ConnectionLost(addr, reason_of(error)) from None
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and wait for its response. Other requests may be in flight at the same time.

        Args:
            command: The request; its ``opaque`` is replaced.
            timeout_ms: Time limit of the response, in milliseconds.

        Returns:
            The response, whatever its code.

        Raises:
            ConnectionLost: The connection ended before the response arrived.
            RequestTimedOut: No response in time; the connection stays open, and a late response is dropped.
            RequestTooLarge: The request does not fit into a frame.
        """
        opaque = next(_OPAQUES) & _OPAQUE_MASK
        answer: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._waiting[opaque] = answer
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._send(replace(command, opaque=opaque))
                return await answer
        except TimeoutError:
            raise RequestTimedOut(self.addr, command.code, timeout_ms) from None
        finally:
            self._waiting.pop(opaque, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # the connection ended while the request still waited to be sent

    async def invoke_oneway(self, command: RemotingCommand) -> None:
        """Send a one-way request; returns once it is in the send buffer, without waiting until it is transmitted.

        Raises:
            ConnectionLost: The connection has ended.
            RequestTooLarge: The request does not fit into a frame.
        """
        flag = command.flag | ONEWAY_FLAG
        await self._send(replace(command, opaque=next(_OPAQUES) & _OPAQUE_MASK, flag=flag))

    async def close(self) -> None:
        """Send what is buffered and close; wait until it is closed, at most one second if the peer does not read."""
        if self._transport is not None and not self.closed.done():
            self._close_reason = self._close_reason or "closed here"
            self._transport.close()
            _, unread = await asyncio.wait([self.closed], timeout=_FLUSH_TIMEOUT_S)
            if unread:
                self._transport.abort()
                await asyncio.wait([self.closed])

    def abort(self) -> None:
        """Close now; unsent data is lost."""
        if self._transport is not None:
            self._close_reason = self._close_reason or "closed here"
            self._transport.abort()

    async def _send(self, command: RemotingCommand) -> None:
        try:
            frame = encode_frame(command)
        except ValueError as error:
            raise RequestTooLarge(command.code, str(error)) from error
        await self._writable.wait()
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost(self.addr, self.closed.result() if self.closed.done() else "closing")
        self._transport.write(frame)

    # The callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._on_command(decode_frame(frame))
        except RemotingError as error:
            logger.warning("closing connection with invalid data addr=%s reason=%s", self.addr, safe(str(error)))
            self._end(f"sent invalid data: {error}")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._close_reason or ("closed by the peer" if exc is None else reason_of(exc))
        self._writable.set()
        if not self.closed.done():
            self.closed.set_result(reason)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(self.addr, reason))

    def _on_command(self, command: RemotingCommand) -> None:
        if not command.is_response:
            # Name servers send NOTIFY_MIN_BROKER_ID_CHANGE over connections that they open, never over this one.
            logger.debug("request ignored addr=%s code=%d", self.addr, command.code)
            return
        if command.code == ResponseCode.GO_AWAY:
            self._end("the server is going away")
            return
        answer = self._waiting.get(command.opaque)
        if answer is None or answer.done():
            logger.debug("late response dropped addr=%s opaque=%d", self.addr, command.opaque)
            return
        answer.set_result(command)

    def _end(self, reason: str) -> None:
        self._close_reason = self._close_reason or reason
        if self._transport is not None:
            self._transport.abort()


def address_of(addr: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, as ``addresses.split_addr`` does.

    Raises:
        ConfigError: ``addr`` does not have this form.
    """
    try:
        return split_addr(addr)
    except ValueError as error:
        raise ConfigError("name servers", addr, str(error)) from None


def reason_of(error: BaseException) -> str:
    """Return the reason as one short line: asyncio's own text for a refused connection repeats the address."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "unknown reason").lower().replace("_", " ")
        return f"TLS: {reason} {getattr(error, 'verify_message', '')}".rstrip()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
