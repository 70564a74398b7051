"""Remoting frames as the differential test sends and reads them; shares no code with the product.

A connection sends all frames of one exchange before it reads the first answer. It matches answers by their opaque,
because the Java server may answer in any order.
"""

import json
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

JSON: Final = 0
ROCKETMQ: Final = 1
ONEWAY: Final = 2

#: Ordinals of releases. Source: rocketmq 5.3.3, MQVersion.Version.
V5_3_3: Final = 479
V4_9_3: Final = 399
V3_0_0: Final = 1

_RECEIVE_BYTES: Final = 1 << 18


class Answer(NamedTuple):
    """A response, as far as a peer can see it.

    Attributes:
        header_type: JSON or ROCKETMQ, the frame's type byte.
    """

    code: int
    remark: str | None
    ext_fields: tuple[tuple[str, str], ...] | None
    flag: int
    language: str
    version: int
    header_type: int
    body: bytes

    def field(self, name: str) -> str | None:
        """Return an ext field; None if it is absent."""
        return dict(self.ext_fields or ()).get(name)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame: the header without its opaque, which each connection chooses, and the body.

    Attributes:
        header: The bytes of a header with the given opaque.
    """

    header: Callable[[int], bytes]
    body: bytes
    header_type: int
    is_oneway: bool

    def encode(self, opaque: int) -> bytes:
        """The whole frame."""
        header = self.header(opaque)
        word = self.header_type << 24 | len(header)
        return struct.pack(">II", 4 + len(header) + len(self.body), word) + header + self.body


def json_header(code: int, ext_fields: dict[str, str] | None, *, version: int, flag: int, language: str) -> Any:
    """Return the JSON header that a Java peer would write."""
    fields: dict[str, object] = {"code": code}
    if ext_fields is not None:
        fields["extFields"] = ext_fields
    head = json.dumps({**fields, "flag": flag, "language": language}, separators=(",", ":"), ensure_ascii=False)[:-1]
    tail = f',"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    return lambda opaque: f'{head},"opaque":{opaque}{tail}'.encode()


def binary_header(code: int, ext_fields: dict[str, str] | None, *, version: int, flag: int, language: int) -> Any:
    """The ROCKETMQ header. Source: rocketmq 5.3.3, RocketMQSerializable."""
    entries = b"".join(_binary_entry(name, value) for name, value in (ext_fields or {}).items())
    tail = struct.pack(">III", flag, 0, len(entries)) + entries
    return lambda opaque: struct.pack(">hbhi", code, language, version, opaque) + tail


def _binary_entry(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return struct.pack(">h", len(key)) + key + struct.pack(">i", len(text)) + text


class Closed(ConnectionError):
    """The server closed the connection."""


class Connection:
    """One connection to one server.

    Args:
        addr: ``host:port``.
        timeout_s: Seconds to wait for an answer.
        preamble: Sent before the first frame, such as a PROXY line.
    """

    def __init__(self, addr: str, timeout_s: float = 20.0, preamble: bytes = b"") -> None:
        host, _, port = addr.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._opaque = 0
        self._oneway: set[int] = set()
        self._awaited: list[int] = []
        if preamble:
            self._socket.sendall(preamble)

    def send(self, frames: Iterable[Frame]) -> None:
        """Send frames; their answers are read by ``receive``."""
        parts = []
        for frame in frames:
            self._opaque += 1
            parts.append(frame.encode(self._opaque))
            if frame.is_oneway:
                self._oneway.add(self._opaque)
            else:
                self._awaited.append(self._opaque)
        self._socket.sendall(b"".join(parts))

    def receive(self) -> list[Answer]:
        """Return the answers to all sent frames, in the order of sending.

        Raises:
            Closed: The server closed the connection.
            TimeoutError: It did not answer.
            AssertionError: It answered an unknown or a oneway request, or answered twice.
        """
        wanted, self._awaited = self._awaited, []
        answers: dict[int, Answer] = {}
        while len(answers) < len(wanted):
            opaque, answer = self._read_answer()
            assert opaque not in self._oneway, f"answer to a oneway request: {answer}"
            assert opaque in wanted, f"answer to an unknown request: {answer}"
            assert opaque not in answers, f"second answer: {answer}"
            answers[opaque] = answer
        return [answers[opaque] for opaque in wanted]

    def ask(self, frames: Sequence[Frame]) -> list[Answer]:
        """Send frames and read their answers; oneway ones have none."""
        self.send(frames)
        return self.receive()

    def send_raw(self, data: bytes) -> None:
        """Send raw bytes."""
        self._socket.sendall(data)

    def is_closed_by_peer(self) -> bool:
        """Whether the server closes the connection without a byte, within the timeout."""
        try:
            return not self._socket.recv(1)
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        """Close the connection, as at the end of a process.

        Raises:
            AssertionError: The server had sent unexpected bytes.
        """
        self._socket.setblocking(False)
        try:
            stray = bytes(self._buffer) + self._socket.recv(64)
        except (BlockingIOError, ConnectionError):
            stray = bytes(self._buffer)
        finally:
            self._socket.close()
        assert not stray, f"unexpected bytes: {stray!r}"

    def _read_answer(self) -> tuple[int, Answer]:
        buffer = self._buffer
        while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
            chunk = self._socket.recv(_RECEIVE_BYTES)
            if not chunk:
                raise Closed("the server closed the connection")
            buffer += chunk
        total, word = struct.unpack_from(">II", buffer)
        header_type, header_end = word >> 24, 8 + (word & 0xFFFFFF)
        header, body = bytes(buffer[8:header_end]), bytes(buffer[header_end : 4 + total])
        del buffer[: 4 + total]
        return _decode_json(header, body) if header_type == JSON else _decode_binary(header, body)


def _decode_json(header: bytes, body: bytes) -> tuple[int, Answer]:
    fields = json.loads(header)
    ext_fields = fields.get("extFields")
    return fields["opaque"], Answer(
        fields["code"],
        fields.get("remark"),
        None if ext_fields is None else tuple(sorted(ext_fields.items())),
        fields["flag"],
        fields["language"],
        fields["version"],
        JSON,
        body,
    )


def _decode_binary(header: bytes, body: bytes) -> tuple[int, Answer]:
    code, language, version, opaque, flag, remark_bytes = struct.unpack_from(">hbhiii", header)
    at = 17 + remark_bytes
    remark = header[17:at].decode() or None
    (ext_bytes,) = struct.unpack_from(">i", header, at)
    at += 4
    end, ext_fields = at + ext_bytes, {}
    while at < end:
        (size,) = struct.unpack_from(">h", header, at)
        name, at = header[at + 2 : at + 2 + size].decode(), at + 2 + size
        (size,) = struct.unpack_from(">i", header, at)
        ext_fields[name], at = header[at + 4 : at + 4 + size].decode(), at + 4 + size
    fields = tuple(sorted(ext_fields.items())) if ext_bytes else None
    return opaque, Answer(code, remark, fields, flag, {0: "JAVA", 3: "PYTHON"}[language], version, ROCKETMQ, body)
