"""A foreign page in an operator's browser cannot read this port under its own host name (DNS rebinding)."""

import logging

import pytest

from tests.support.http_rig import HttpRig, http_settings

_ALLOWED = "ns1.example.com;*.svc;Console"


@pytest.mark.parametrize("path", ["/", "/kv", "/metrics", "/healthz", "/changes", "/rocketmq/nsaddr", "/nowhere"])
async def test_an_unknown_name_is_refused_on_every_path(path: str, caplog: pytest.LogCaptureFixture) -> None:
    served = HttpRig()
    with caplog.at_level(logging.WARNING):
        async with served.serving():
            found = await served.get(path, Host="attacker.example", Origin="http://attacker.example")
    assert (found.status, found.headers["content-type"]) == (421, "application/problem+json")
    assert "host name attacker.example" in found.json()["detail"]
    assert "http.allowed_hosts" in caplog.text


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1:9880", "10.1.2.3:80", "[::1]:9880", "[fe80::1]", "localhost", "LocalHost:9880"),
        *("localhost.", "ns1.example.com:9880", "NS1.example.com", "a.b.svc", "console:1"),
    ],
)
async def test_addresses_localhost_and_configured_names_are_answered(host: str) -> None:
    served = HttpRig(http_settings(allowed_hosts=_ALLOWED))
    async with served.serving():
        assert (await served.get("/kv", Host=host)).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("ns2.example.com", "example.com", "x.ns1.example.com", "svc", "evilsvc", "a.svc.attacker.example", ""),
        *("127.0.0.1.attacker.example", "localhost.attacker.example", "[attacker.example]", "2130706433", "0x7f.1"),
    ],
)
async def test_other_names_are_refused(host: str) -> None:
    served = HttpRig(http_settings(allowed_hosts=_ALLOWED))
    async with served.serving():
        assert (await served.get("/kv", Host=host)).status == 421


async def test_the_host_name_that_the_port_listens_on_is_answered() -> None:
    served = HttpRig(http_settings(listen_host="ns1.internal"))
    async with served.serving():
        assert (await served.get("/kv", Host="ns1.internal:9880")).status == 200


async def test_a_request_without_a_host_header_is_answered() -> None:
    served = HttpRig()
    async with served.serving():
        answer = await served.send_raw(b"GET /kv HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


_LINK = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
_WITHOUT_NAVIGATION = [
    {},
    {"Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"},
    {"Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"},
    {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
]


@pytest.mark.parametrize("path", ["/", "/kv", "/metrics", "/routes/T?as_of=-1h", "/changes", "/rocketmq/nsaddr"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_pages_of_other_sites_cause_no_work(path: str, site: str, caplog: pytest.LogCaptureFixture) -> None:
    served = HttpRig()
    with caplog.at_level(logging.WARNING):
        async with served.serving():
            found = [
                await served.get(path, "GET", b"", Sec_Fetch_Site=site, **others) for others in _WITHOUT_NAVIGATION
            ]
            found.append(await served.get(path, "HEAD", b"", Sec_Fetch_Site=site, **_LINK))
            events = (await served.samples())["rocketmq_namesrv_http_events_total", ("cross_site_refused",)]
    assert [answer.status for answer in found] == [403] * len(found)
    assert events == len(found)
    assert "page of another site" in caplog.text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_links_of_other_sites_are_followed(site: str) -> None:
    served = HttpRig()
    async with served.serving():
        for path in ("/", "/?find=broker-a", "/kv"):
            assert (await served.get(path, "GET", b"", Sec_Fetch_Site=site, **_LINK)).status == 200


@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_the_console_itself_and_typed_addresses_are_answered(site: str) -> None:
    served = HttpRig()
    async with served.serving():
        answer = await served.get("/kv", Sec_Fetch_Site=site, Sec_Fetch_Mode="cors", Sec_Fetch_Dest="empty")
    assert answer.status == 200
