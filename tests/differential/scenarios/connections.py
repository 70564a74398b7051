"""A closed connection removes its brokers unless they have registered over another one.

Source: rocketmq 5.3.3, RouteInfoManager.onChannelDestroy.
"""

from typing import Final

from tests.differential.broker_requests import (
    TOPICS,
    Broker,
    data_version,
    query_data_version,
    register,
    topic,
    unregister,
)
from tests.differential.client_requests import all_topics, cluster_info, route
from tests.differential.scenario import Scenario, ask, close, closed_after, connect, expire, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
S: Final = A.slave()
B: Final = Broker("~b", "10.0.0.9:10911")
#: A broker that registers once and then is silent.
SILENT: Final = A.but(timeout_ms=2_000)
LAST: Final = Broker("~z", "10.0.0.99:10911")


def _frame(header: bytes) -> bytes:
    size = len(header)
    return (4 + size).to_bytes(4, "big") + size.to_bytes(4, "big") + header


SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("a closed connection removes its broker", ask(register(A), over="a"), close("a", gone=[A])),
    scenario(
        "a slave's connection closes", ask(register(A), over="a"), ask(register(S), over="s"), close("s", gone=[S])
    ),
    scenario(
        "a master's connection closes", ask(register(A), over="a"), ask(register(S), over="s"), close("a", gone=[A])
    ),
    scenario(
        "a broker expires, its connection is closed",
        ask(register(SILENT), over="a"),
        ask(register(B), over="b"),
        expire(SILENT, over="a"),
        ask(cluster_info()),
    ),
    scenario(
        "one of two brokers of a connection expires",
        ask(register(SILENT), register(B), over="shared"),
        expire(SILENT, over="shared", is_kept_here=True),
        is_observed=False,
    ),
    scenario(
        "one of two brokers of a connection expires, the other one stays in the routes here",
        ask(register(SILENT), register(B), over="shared"),
        ask(cluster_info(), differs="shared-expiry"),
        is_observed=False,
    ),
    scenario(
        "all connections close",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(register(B), over="b"),
        close("a", "s", "b", gone=[A, S, B]),
    ),
    scenario(
        "a connection without brokers closes",
        ask(register(A), over="a"),
        ask(route("~T"), over="client"),
        close("client"),
    ),
    scenario(
        "a broker registers over a new connection before the old one closes",
        ask(register(A), over="old"),
        ask(register(LAST), over="last"),
        ask(register(A), over="new"),
        close("old"),
        close("last", gone=[LAST]),
        ask(route("~T")),
    ),
    scenario(
        "a broker registers over a new connection after the old one closed",
        ask(register(A), over="old"),
        close("old", gone=[A]),
        ask(register(A), over="new"),
    ),
    scenario(
        "the new connection closes, the old one stays open: the broker is removed",
        ask(register(A), over="old"),
        ask(register(A), over="new"),
        close("new", gone=[A]),
        ask(register(A), over="old"),
    ),
    scenario(
        "a broker returns to its old connection, then the newer one closes",
        ask(register(A), over="old"),
        ask(register(LAST), over="last"),
        ask(register(A), over="new"),
        ask(register(A), over="old"),
        close("new"),
        close("last", gone=[LAST]),
        ask(route("~T")),
        close("old", gone=[A]),
    ),
    scenario(
        "a broker left before its connection closes",
        ask(register(A), over="a"),
        ask(unregister(A), over="a"),
        close("a"),
        ask(register(A), over="b"),
    ),
    scenario(
        "the connection of a replaced address closes",
        ask(register(A), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911"), TOPICS, data_version(2)), over="b"),
        close("a"),
        ask(query_data_version(A), differs="replaced-address"),
        ask(route("~T"), cluster_info(), all_topics()),
        is_observed=False,
    ),
    scenario(
        "the connection of a broker that changed its id closes",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(register(S.but(broker_id=4)), over="s"),
        close("s", gone=[S]),
    ),
    scenario(
        "a connection that registered two brokers closes",
        ask(register(A), register(B), over="a"),
        close("a"),
        ask(cluster_info(), differs="shared-connection"),
        is_observed=False,
    ),
    scenario(
        "the connection of a broker whose name belongs to another cluster closes",
        ask(register(A), over="a"),
        ask(register(A.slave(1, "10.0.0.5:10911").but(cluster="~d")), over="b"),
        close("b"),
        ask(route("~T"), differs="second-cluster"),
        is_observed=False,
    ),
    scenario(
        "a PROXY preamble, version 1",
        connect(b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 9876\r\n", over="p"),
        ask(register(A), over="p"),
        close("p", gone=[A]),
    ),
    scenario(
        "a PROXY preamble, version 2",
        connect(
            b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes([192, 0, 2, 1, 192, 0, 2, 2, 18, 103, 38, 148]), over="p"
        ),
        ask(register(A), over="p"),
        close("p", gone=[A]),
    ),
    scenario(
        "pipelined registrations and queries",
        ask(register(A), over="a"),
        ask(*(route("~T"), route("~U"), cluster_info()) * 20, over="q"),
    ),
    scenario(
        "pipelined registrations of many brokers",
        ask(
            *(register(Broker(f"~{n}", f"10.0.2.{n}:10911"), {**TOPICS, f"~{n}": topic(n)}) for n in range(10)),
            over="a",
        ),
    ),
    scenario("garbage closes the connection", closed_after(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
    scenario("a frame longer than 16 MiB closes the connection", closed_after(b"\x01\x00\x00\x01" + b"x" * 100)),
    scenario("a negative length closes the connection", closed_after(b"\xff\xff\xff\xff" + b"x" * 100)),
    scenario(
        "a header longer than its frame closes the connection",
        closed_after(b"\x00\x00\x00\x10\x00\x00\x00\x20" + b"x" * 12),
    ),
    scenario("an unknown type of header closes the connection", closed_after(b"\x00\x00\x00\x08\x07\x00\x00\x02{}xx")),
    scenario("a header that is no JSON closes the connection", closed_after(b"\x00\x00\x00\x08\x00\x00\x00\x02{x}}")),
    scenario("text after the header's end closes the connection", closed_after(_frame(b'{"code":106,"opaque":1} x'))),
    scenario(
        "invalid UTF-8 in the header closes the connection",
        closed_after(_frame(b'{"code":105,"extFields":{"topic":"\xff\xfe"},"opaque":1}')),
    ),
)
