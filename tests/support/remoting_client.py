"""A blocking remoting client that shares no code with namesrv-stream, so that both cannot have the same mistake."""

import itertools
import json
import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from namesrv_stream.addresses import split_addr

# MQVersion.Version.V5_3_3 as an ordinal.
VERSION = 479


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    code: int
    opaque: int
    remark: str | None
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def encode_request(
    code: int, opaque: int, ext_fields: Mapping[str, str] | None = None, body: bytes = b"", *, version: int = VERSION
) -> bytes:
    """Return a whole request frame with a JSON header, as a Java peer sends it."""
    header: dict[str, object] = {"code": code}
    if ext_fields:
        header["extFields"] = dict(ext_fields)
    header |= {"flag": 0, "language": "JAVA", "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": version}
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


class RemotingClient:
    """One connection to a name server or broker, one request at a time; a context manager.

    Args:
        addr: ``host:port``.
        timeout_s: Seconds to wait for a connection, and for each answer.
        tls: Context for TLS; None for plain text.
        preamble: Bytes that are sent first, before TLS begins.
    """

    def __init__(
        self, addr: str, timeout_s: float = 10, *, tls: ssl.SSLContext | None = None, preamble: bytes = b""
    ) -> None:
        host, port = split_addr(addr)
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if preamble:
            self._socket.sendall(preamble)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._opaques = itertools.count(1)

    def ask(self, code: int, ext_fields: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        """Send a request and wait for its response.

        Raises:
            ConnectionError: The peer closed the connection.
            TimeoutError: It did not answer.
            AssertionError: It answered another request.
        """
        opaque = next(self._opaques)
        self.send(encode_request(code, opaque, ext_fields, body))
        answer = self.receive()
        assert answer.opaque == opaque, f"asked {opaque}, answered {answer.opaque}"
        return answer

    def send(self, data: bytes) -> None:
        """Send bytes, whatever they mean."""
        self._socket.sendall(data)

    def receive(self) -> Answer:
        """Wait for the next response.

        Raises:
            ConnectionError: The peer closed the connection.
            TimeoutError: No response arrived.
        """
        (total,) = struct.unpack(">I", self._read(4))
        payload = self._read(total)
        header_bytes = int.from_bytes(payload[1:4], "big")
        header = json.loads(payload[4 : 4 + header_bytes])
        return Answer(
            header["code"],
            header["opaque"],
            header.get("remark"),
            header.get("extFields") or {},
            payload[4 + header_bytes :],
        )

    def _read(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            chunk = self._socket.recv(count - len(received))
            if not chunk:
                raise ConnectionError("the peer closed the connection")
            received += chunk
        return bytes(received)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        """Do nothing: the client is already connected."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()
