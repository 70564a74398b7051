"""Every form of an address that brokers, operators and sockets use has the same host and port."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.addresses import canonical_addr, check_host, http_url, join_addr, parts_of, plain_host, split_addr
from namesrv_stream.client.name_servers import parse_name_servers
from namesrv_stream.errors import ConfigError
from namesrv_stream.route.address_views import Broker, parse_view
from namesrv_stream.settings import load_settings, parse_set_flag

_ZONES = st.just("") | st.from_regex(r"%[a-z][a-z0-9.-]{0,14}", fullmatch=True)
_NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,20}(\.[A-Za-z0-9_-]{1,20}){0,3}", fullmatch=True)
_PORTS = st.integers(1, 65_535)


@st.composite
def _hosts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A host, and all texts by which it is written before a colon and a port."""
    if draw(st.booleans()):
        name = draw(_NAMES | st.ip_addresses(v=4).map(str))
        return name, [name]
    address, zone = draw(st.ip_addresses(v=6) | st.ip_addresses(network="fe80::/10")), draw(_ZONES)
    java = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))  # Inet6Address.getHostAddress
    texts = [f"{text}{zone}" for text in (str(address), address.exploded, java, str(address).upper())]
    return f"{address}{zone if address.is_link_local else ''}", texts + [f"[{text}]" for text in texts]


@given(_hosts(), _PORTS)
def test_all_texts_of_an_address_are_read_as_the_same_host_and_port(host: tuple[str, list[str]], port: int) -> None:
    expected, texts = host
    shown = join_addr(expected, port)
    for text in texts:
        addr = f"{text}:{port}"
        assert split_addr(addr) == (expected, port)
        assert canonical_addr(addr) == shown == canonical_addr(shown)
        assert check_host(text) == expected
        assert http_url(f"https://{addr}/") == f"https://{shown}"
        assert (parts_of(addr)[0].lower(), parts_of(addr)[1]) == (text.strip("[]").lower(), str(port))


@given(_hosts(), _PORTS)
def test_settings_commands_and_views_accept_every_text_of_an_address(host: tuple[str, list[str]], port: int) -> None:
    expected, texts = host
    shown = join_addr(expected, port)
    view = parse_view("v", f'{{"mappings": [{{"broker_addr": "{shown}", "to": "{{host}}:{port}"}}]}}')
    for text in texts:
        addr = f"{text}:{port}"
        flags = [parse_set_flag(f"remoting.listen_host={text}"), parse_set_flag(f"http.nsaddr={addr}")]
        settings = load_settings(None, {}, flags).settings
        assert (settings.remoting.listen_host, settings.http.nsaddr) == (expected, (shown,))
        assert parse_name_servers(addr) == (addr,)
        assert view.mapped(Broker("b", 0, addr)) == shown


@given(st.text(max_size=40) | st.from_regex(r"[\[\]:%.0-9a-fg]{0,30}", fullmatch=True))
def test_a_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        host, port = split_addr(text)
    except ValueError:
        assert canonical_addr(text) == text
        with pytest.raises(ConfigError):
            parse_name_servers(text.replace(";", "").replace(",", "").strip() or "?")
    else:
        assert split_addr(join_addr(host, port)) == (host, port)
        assert host.isascii()
        assert ":" not in host or str(IPv6Address(host)) == host


@pytest.mark.parametrize(
    "addr",
    [
        *("", ":", ":1", "h", "h:", "h:x", "h:-1", "h:0", "h:65536", "h:000001", "h:\u0661", "h :1", "a/b:1", "a:1:2"),
        *("::1", "[::1]", "fd00::1", "[::1:1", "::1]:1", "[[::1]]:1", "[h]:1", "[10.0.0.1]:1", "[]:1", "[::g]:1"),
        *("[::1%]:1", "[::1%a%b]:1", "[::1%a b]:1", "[::1%a\n]:1", "10.0.0.1%eth0:1", f"{'x' * 254}:1", "h:1\n"),
    ],
)
def test_other_texts_are_no_addresses(addr: str) -> None:
    with pytest.raises(ValueError, match=r"^(expected host:port|expected a host name or an IP address|port .*)"):
        split_addr(addr)


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("0:0::1", "::1"),
        ("", ""),
    ],
)
def test_a_peer_has_one_text(peer: str, shown: str) -> None:
    assert plain_host(peer) == shown
