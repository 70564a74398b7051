"""How a connection begins: perhaps with a PROXY preamble, and then with the first byte that says what it speaks."""

from ipaddress import IPv6Address, ip_address

from namesrv_stream.remoting.proxy_protocol import read_preamble


class Opening:
    """Takes a connection's bytes until its preamble, if it has one, is over.

    Attributes:
        proxied_for: Who is behind the proxy; "" where there is none.
        held_bytes: Bytes of a preamble that is not complete.
    """

    def __init__(self) -> None:
        self.proxied_for = ""
        self._data = b""

    @property
    def held_bytes(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> bytes:
        """What is behind the preamble; b"" while that is not known, or nothing.

        Raises:
            ProxyProtocolError: It begins as a preamble, and is none.
        """
        data = self._data + data
        if not self.proxied_for:
            preamble = read_preamble(data)
            if preamble is None:
                self._data = data
                return b""
            if preamble.size:
                self.proxied_for = preamble.source or "itself"
                data = data[preamble.size :]
        self._data = b""
        return data


def host_of(address: str) -> str:
    """An address without the form that IPv4 has on a socket of both families."""
    try:
        host = ip_address(address)
    except ValueError:
        return address
    return str(host.ipv4_mapped or host) if isinstance(host, IPv6Address) else str(host)
