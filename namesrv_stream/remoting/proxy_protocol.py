"""The PROXY protocol: a preamble by which a TCP proxy announces the address of its client.

Version 1 is a line of text, version 2 is binary. A frame of RocketMQ begins with 0x00, so it cannot be confused with
either.

Source: proxy-protocol.txt of haproxy.org; rocketmq 5.3.3, NettyRemotingServer.HandshakeHandler, which accepts both.
"""

import struct
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from namesrv_stream.addresses import join_addr
from namesrv_stream.errors import ProxyProtocolError

_V1_BEGIN: Final = b"PROXY "
#: The longest line, including its end.
_V1_MAX_BYTES: Final = 107
_V1_ADDRESS: Final[Mapping[bytes, type[IPv4Address] | type[IPv6Address]]] = {b"TCP4": IPv4Address, b"TCP6": IPv6Address}
_V2_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
#: Signature; version and command; family and transport; number of bytes that follow.
_V2_HEAD: Final = struct.Struct(">12sBBH")
_V2_LOCAL, _V2_PROXY = 0x20, 0x21
#: Address family → bytes of both addresses with their ports.
_V2_ADDRESSES_BYTES: Final = {0: 0, 1: 12, 2: 36, 3: 216}


class Preamble(NamedTuple):
    """The preamble of a connection.

    Attributes:
        size: Length of the preamble in bytes; 0 if the connection has none.
        source: Address and port of the proxy's client; "" if the proxy names none, or connects on its own behalf.
    """

    size: int
    source: str


_NONE: Final = Preamble(0, "")


def read_preamble(data: bytes) -> Preamble | None:
    """Return the preamble of a connection; None while more bytes are needed to decide.

    Args:
        data: All bytes received over the connection.

    Raises:
        ProxyProtocolError: The data begins like a preamble, but is not a valid one.
    """
    if data.startswith(_V1_BEGIN):
        return _read_v1(data)
    if data.startswith(_V2_SIGNATURE):
        return _read_v2(data)
    may_be = _V1_BEGIN.startswith(data) or _V2_SIGNATURE.startswith(data)
    return None if may_be else _NONE


def _read_v1(data: bytes) -> Preamble | None:
    end = data.find(b"\r\n", 0, _V1_MAX_BYTES)
    if end < 0:
        if len(data) >= _V1_MAX_BYTES:
            raise ProxyProtocolError(f"no end of line within {_V1_MAX_BYTES} bytes")
        return None
    fields = data[:end].split(b" ")
    if fields[1] == b"UNKNOWN":
        return Preamble(end + 2, "")  # the rest of the line is ignored
    if len(fields) != 6 or fields[1] not in _V1_ADDRESS:
        raise ProxyProtocolError("expected PROXY, TCP4 or TCP6, two addresses and two ports, each after one blank")
    _, family, *addresses, source_port, destination_port = fields
    try:
        source, _ = (_V1_ADDRESS[family](address.decode("ascii").partition("%")[0]) for address in addresses)
    except ValueError as error:
        raise ProxyProtocolError(f"{error}") from error
    _port(destination_port)
    return Preamble(end + 2, join_addr(str(source), _port(source_port)))


def _port(text: bytes) -> int:
    if not (text.isdigit() and len(text) <= 5 and int(text) < 1 << 16):
        raise ProxyProtocolError("a port is not a number below 65536")
    return int(text)


def _read_v2(data: bytes) -> Preamble | None:
    if len(data) < _V2_HEAD.size:
        return None
    _, command, family_and_transport, length = _V2_HEAD.unpack_from(data)
    if command not in (_V2_LOCAL, _V2_PROXY):
        raise ProxyProtocolError(f"version and command 0x{command:02x} are unknown")
    family, transport = divmod(family_and_transport, 16)
    if command == _V2_PROXY:
        if family not in _V2_ADDRESSES_BYTES or transport > 2:
            raise ProxyProtocolError(f"family and transport 0x{family_and_transport:02x} are unknown")
        if length < _V2_ADDRESSES_BYTES[family]:
            raise ProxyProtocolError(f"{length} bytes are too few for two addresses of family {family}")
    size = _V2_HEAD.size + length
    if len(data) < size:
        return None
    # The TLVs after the addresses are skipped, because nothing here depends on them.
    return Preamble(size, _v2_source(family, data[_V2_HEAD.size : size]) if command == _V2_PROXY else "")


def _v2_source(family: int, addresses: bytes) -> str:
    match family:
        case 1:
            return join_addr(str(IPv4Address(addresses[:4])), int.from_bytes(addresses[8:10], "big"))
        case 2:
            return join_addr(str(IPv6Address(addresses[:16])), int.from_bytes(addresses[32:34], "big"))
        case _:
            return ""
