"""How many connections come from one address."""

from collections import Counter
from ipaddress import IPv6Address, IPv6Network, ip_address

_IPV6_PREFIX = 64  # one host has at least so much for itself (RFC 4291 §2.5.1), and can speak from all of it


class AddressCounts:
    """Open connections by peer, an IPv6 peer being its /64 network."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def enter(self, host: str) -> int:
        """Count one more from ``host``; how many these are."""
        peer = _peer_of(host)
        self._counts[peer] += 1
        return self._counts[peer]

    def leave(self, host: str) -> None:
        """Count one less."""
        peer = _peer_of(host)
        self._counts[peer] -= 1
        if self._counts[peer] <= 0:
            del self._counts[peer]


def _peer_of(host: str) -> str:
    if ":" not in host:
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    return str(address.ipv4_mapped or IPv6Network((address, _IPV6_PREFIX), strict=False))
