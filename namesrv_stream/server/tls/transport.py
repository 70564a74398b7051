"""A TLS transport that wraps any other: decrypts received bytes, encrypts written ones, and forwards all other calls.

asyncio's TLS starts at a connection's first byte. RocketMQ's peers may send a PROXY preamble first, and the first byte
after it decides whether they use TLS at all. So this module processes the records in memory.

OpenSSL does not report how many bytes of an incomplete record it buffers, so ``PartialRecord`` counts them. Source:
RFC 8446 §5.1 (a record's type, version and length are never encrypted).
"""

import asyncio
import contextlib
import ssl
from typing import Any, Final

from namesrv_stream.errors import TlsBroken

#: Limit for a handshake; a certificate chain with large keys takes 10 KiB. OpenSSL would accept ten times as much, even
#: from a peer without authentication.
_MAX_HANDSHAKE_BYTES: Final = 64 * 1024
_WRITTEN_BYTES: Final = 256 * 1024  # limit for one encryption or decryption


class TlsTransport:
    """The server's side of one TLS connection; it ``is_established`` once the handshake is complete."""

    def __init__(self, below: asyncio.Transport, context: ssl.SSLContext) -> None:
        """Wait for a handshake on ``below``; a later reload of the certificate does not change ``context``."""
        self.is_established = False
        self._below = below
        self._context = context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._record = PartialRecord()
        self._handshake_bytes = 0
        self._has_ended = False
        self._is_broken = False

    @property
    def held_bytes(self) -> int:
        """Bytes of an incomplete handshake or record."""
        return self._record.size if self.is_established else self._handshake_bytes

    def received(self, data: bytes) -> bytes:
        """Decrypt received bytes.

        Raises:
            TlsBroken: The peer broke TLS or was rejected. The error contains the data of the valid records before it.
                The peer has received an alert, so no answer can follow; the caller must close the transport.
        """
        if self._has_ended or self._is_broken:
            return b""  # bytes after close_notify, or after an invalid record
        self._record.feed(data)
        self._incoming.write(data)
        pieces: list[bytes] = []
        try:
            if not self.is_established:
                self._handshake(len(data))
            try:
                while piece := self._tls.read(_WRITTEN_BYTES):
                    pieces.append(piece)
            except ssl.SSLZeroReturnError:  # during the handshake, it is a failure
                self._has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._is_broken = True
            content = b"".join(pieces)
            raise TlsBroken(_reason_of(error), is_handshake=not self.is_established, content=content) from None
        finally:
            self._flush()
        return b"".join(pieces) if len(pieces) != 1 else pieces[0]

    def _handshake(self, size: int) -> None:
        self._handshake_bytes += size
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            # Check only incomplete handshakes: the bytes with the last message may also contain requests.
            if self._handshake_bytes > _MAX_HANDSHAKE_BYTES:
                self._is_broken = True
                raise TlsBroken(f"its handshake exceeds {_MAX_HANDSHAKE_BYTES} bytes", is_handshake=True) from None
            raise
        self.is_established = True

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._below.write(self._outgoing.read())

    # ---- called by protocols ----

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_broken or self._below.is_closing():
            return  # a late answer that waited for the log; the peer cannot read it any more
        with memoryview(data) as view:
            for begin in range(0, len(view), _WRITTEN_BYTES):
                with view[begin : begin + _WRITTEN_BYTES] as part:
                    written = 0
                    while written < len(part):
                        written += self._tls.write(part[written:])
                self._flush()

    def close(self) -> None:
        if self.is_established and not self._is_broken and not self._below.is_closing():
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()  # sends close_notify, and does not wait for the peer's
            self._flush()
        self._below.close()

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._tls
        return self._below.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def _reason_of(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason as text, without the position in its sources."""
    detail = getattr(error, "verify_message", "")
    reason = (error.reason or "unknown reason").lower().replace("_", " ")
    return f"{reason}: {detail}" if detail else reason


_HEAD_BYTES: Final = 5
_LENGTH_AT: Final = 3


class PartialRecord:
    """Tracks record boundaries in a stream of bytes; ``size`` is the length of the incomplete record so far, or 0."""

    def __init__(self) -> None:
        self.size = 0
        self._head = b""  # of a record whose length has not arrived
        self._missing = 0  # bytes of a record whose length is known

    def feed(self, data: bytes) -> None:
        begin = 0 if self._head else -self.size
        data = self._head + data
        end = self._missing
        while end + _HEAD_BYTES <= len(data):
            length = int.from_bytes(data[end + _LENGTH_AT : end + _HEAD_BYTES], "big")
            begin, end = end, end + _HEAD_BYTES + length
        self._missing = max(end - len(data), 0)
        self._head = b"" if self._missing else data[end:]
        self.size = len(data) - (begin if self._missing else end)
