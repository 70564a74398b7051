"""Addresses of brokers, name servers and Kafka: ``host:port`` as text.

Java splits at the last colon and accepts an IPv6 address with or without brackets, and with a zone index: a broker
registers ``[fd00:0:0:0:0:0:0:1%eth0]:10911``, or ``::1:10911`` if brokerIP1 is ``::1``. Therefore all of these forms
are read here. What this product prints has brackets, which all clients accept. Source: rocketmq 5.5.0,
NetworkUtil.string2SocketAddress, NetworkUtil.normalizeHostAddress and BrokerController.getBrokerAddr.
"""

import contextlib
import re
from ipaddress import IPv6Address, ip_address
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,253}")
#: Of an IPv6 address with a zone index: interfaces have such names.
_ZONED: Final = re.compile(r"[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9_.~-]{1,63})?")
_PORT: Final = re.compile(r"[0-9]{1,5}")


def split_addr(addr: str) -> tuple[str, int]:
    """Return host and port of ``host:port``: a host name, an IPv4 address or an IPv6 address without brackets.

    All texts of the same IPv6 address give the same host.

    Raises:
        ValueError: ``addr`` does not have this form; the text says what was expected.
    """
    host, _, port = addr.rpartition(":")
    if not _PORT.fullmatch(port):
        raise ValueError("expected host:port")
    if not 0 < int(port) < 1 << 16:
        raise ValueError(f"port {port} is out of range: expected 1 to 65535")
    return check_host(host), int(port)


def parts_of(addr: str) -> tuple[str, str]:
    """Return what is before and after the last colon, unchecked; brackets around the host are removed."""
    host, _, port = addr.rpartition(":")
    return _without_brackets(host), port


def check_host(text: str) -> str:
    """Return a host without a port; an IPv6 address, with or without brackets, becomes its shortest form.

    Only a link-local address keeps its zone index. Java adds one to every address of an interface, and the resolver of
    the C library refuses it with other addresses.

    Raises:
        ValueError: It is neither a host name nor an address.
    """
    if _NAME.fullmatch(text):
        return text
    host = _without_brackets(text)
    with contextlib.suppress(ValueError):
        if _ZONED.fullmatch(host):
            address = IPv6Address(host)
            return str(address if address.is_link_local else IPv6Address(int(address)))
    raise ValueError("expected a host name or an IP address")


def _without_brackets(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def join_addr(host: str, port: int | str) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def http_url(text: str) -> str:
    """Return ``http://host:port`` or ``https://host:port`` of a text in which the scheme is optional.

    Raises:
        ValueError: The text has another form.
    """
    scheme, _, addr = text.rstrip("/").rpartition("://")
    if scheme not in ("", "http", "https"):
        raise ValueError("expected http://host:port")
    return f"{scheme or 'http'}://{join_addr(*split_addr(addr))}"


def canonical_addr(addr: str) -> str:
    """Return the text that all texts of an address have in common; ``addr`` itself if it is not ``host:port``."""
    try:
        return join_addr(*split_addr(addr))
    except ValueError:
        return addr


def plain_host(host: str) -> str:
    """Return the address of a peer; an IPv4-mapped IPv6 address, as dual-stack sockets show it, becomes plain IPv4."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address) if isinstance(address, IPv6Address) else str(address)
