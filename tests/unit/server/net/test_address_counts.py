"""Connections are counted per IPv4 address and per IPv6 network."""

import pytest

from namesrv_stream.server.net.connections import AddressCounts


def test_closed_connections_are_not_counted() -> None:
    counts = AddressCounts()
    assert [counts.enter("10.0.0.1"), counts.enter("10.0.0.1"), counts.enter("10.0.0.2")] == [1, 2, 1]
    counts.leave("10.0.0.1")
    assert counts.enter("10.0.0.1") == 2


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "", True),
    ],
)
def test_ipv6_peers_of_one_network_are_counted_together(one: str, other: str, is_same: bool) -> None:
    counts = AddressCounts()
    counts.enter(one)
    assert counts.enter(other) == (2 if is_same else 1)
