"""105. Source: rocketmq 5.3.3, ClientRequestProcessor.getRouteInfoByTopic, RouteInfoManager.pickupTopicRouteData."""

from typing import Final

from tests.differential.broker_requests import Broker, data_version, register, topic, unregister
from tests.differential.client_requests import delete_kv, put_kv, route, update_config
from tests.differential.request import Request
from tests.differential.scenario import Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
B: Final = Broker("~b", "10.0.0.9:10911")
_FULL: Final = (
    ask(register(A, {"~T": topic(), "~тема/": topic(2)}, filter_servers=["10.1.1.1:1"]), over="a"),
    ask(register(A.slave(), {"~T": topic(), "~тема/": topic(2)}), over="s"),
    ask(register(B), over="b"),
)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *(
        scenario(f"route: requested by version {version}", *_FULL, ask(route("~T", version), route("~тема/", version)))
        for version in (0, 1, 37, 213, 317, 400, 401, 409, 413, 475, 479, 493, 612, 613, 100_000, -1)
    ),
    scenario(
        "route: an old client that accepts standard JSON only",
        *_FULL,
        ask(route("~T", 317, acceptStandardJsonOnly="true")),
    ),
    scenario("route: acceptStandardJsonOnly is false", *_FULL, ask(route("~T", 317, acceptStandardJsonOnly="false"))),
    scenario("route: acceptStandardJsonOnly is no boolean", *_FULL, ask(route("~T", 317, acceptStandardJsonOnly="1"))),
    scenario("route: acceptStandardJsonOnly in capitals", *_FULL, ask(route("~T", 317, acceptStandardJsonOnly="TRUE"))),
    scenario("route: a Go client", *_FULL, ask(route("~T", 317).of_language("GO"))),
    scenario("route: a C++ client", *_FULL, ask(route("~T", 335).of_language("CPP"))),
    scenario("route: unknown topic", ask(route("~T"), route("~T", 317), route("~T", 0))),
    scenario("route: unknown topic with characters to escape", ask(route('~"\\/\n\té'), route("~題\u2028"))),
    scenario("route: an empty topic", ask(route(""))),
    scenario(
        "route: no topic",
        ask(Request(105)),
        ask(Request(105, {})),
        is_observed=False,
    ),
    scenario("route: a topic with surrounding blanks", ask(register(A)), ask(route(" ~T"), route("~T "))),
    scenario("route: TBW102", ask(register(A, {"~TBW102": topic(8, perm=7), "~T": topic()})), ask(route("~TBW102"))),
    scenario("route: oneway", ask(register(A)), ask(route("~T").oneway(), route("~T"))),
    scenario("route: with a body, which is ignored", ask(register(A)), ask(route("~T").with_body(b"whatever"))),
    scenario(
        "route: filter servers of one broker show all addresses",
        ask(register(A), over="a"),
        ask(register(B, filter_servers=["10.1.1.1:1", "10.1.1.2:1"]), over="b"),
    ),
    scenario(
        "route: filter servers change and are removed",
        ask(register(A, filter_servers=["10.1.1.1:1"])),
        ask(register(A, filter_servers=["10.1.1.3:1", "10.1.1.2:1"])),
        ask(register(A, filter_servers=None)),
        ask(register(A, filter_servers=[])),
    ),
    scenario(
        "route: filter servers of a slave",
        ask(register(A), over="a"),
        ask(register(A.slave(), filter_servers=["10.1.1.5:1"]), over="s"),
    ),
    scenario(
        "route: filter servers are removed with their broker",
        ask(register(A, filter_servers=["10.1.1.1:1"]), over="a"),
        ask(register(B), over="b"),
        ask(unregister(A), over="a"),
    ),
    scenario(
        "route: filter servers of a replaced address",
        ask(register(A, filter_servers=["10.1.1.1:1"]), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911"), version=data_version(2)), over="b"),
        is_observed=False,
    ),
    scenario(
        "route: order topics if they are enabled",
        ask(put_kv("ORDER_TOPIC_CONFIG", "~T", "~a:4;~b:2")),
        ask(register(A)),
        ask(update_config(orderMessageEnable="true")),
        ask(route("~T"), route("~T", 317), route("~U"), route("~T", 317, __ZONE_MODE="true", __ZONE_NAME="z")),
        ask(put_kv("ORDER_TOPIC_CONFIG", "~T", '~a:8/"x"')),
        ask(route("~T"), route("~T", 317)),
        ask(delete_kv("ORDER_TOPIC_CONFIG", "~T")),
        ask(update_config(orderMessageEnable="false")),
        restore=[update_config(orderMessageEnable="false"), delete_kv("ORDER_TOPIC_CONFIG", "~T")],
    ),
    scenario(
        "route: order topics if they are not enabled",
        ask(put_kv("ORDER_TOPIC_CONFIG", "~T", "~a:4")),
        ask(register(A)),
        ask(route("~T")),
        restore=[delete_kv("ORDER_TOPIC_CONFIG", "~T")],
    ),
    scenario(
        "route: many broker addresses",
        *(ask(register(A.slave(n, f"10.0.3.{n}:10911")), over=f"s{n}") for n in range(1, 12)),
        ask(register(A), over="a"),
    ),
    scenario(
        "route: large broker ids in the strict form",
        ask(register(A.but(broker_id=9_007_199_254_740_992)), over="a"),
        ask(register(A.slave(9_007_199_254_740_991)), over="s"),
    ),
    scenario(
        "route: requested twice between changes",
        ask(register(A)),
        ask(route("~T"), route("~T")),
        ask(register(A, {"~T": topic(1), "~U": topic(1)}, data_version(2))),
        ask(route("~T"), route("~T")),
    ),
)
