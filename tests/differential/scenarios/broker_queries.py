"""Requests of brokers and about them (106, 322, 901, 904), and unknown codes.

Source: rocketmq 5.3.3, DefaultRequestProcessor, NettyRemotingAbstract.processRequestCommand.
"""

from typing import Final

from tests.differential.broker_requests import (
    Broker,
    data_version,
    heartbeat,
    member_group,
    query_data_version,
    register,
    topic,
    unregister,
)
from tests.differential.client_requests import cluster_info, route
from tests.differential.request import Request
from tests.differential.scenario import Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
S: Final = A.slave()

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("106 of nothing", ask(cluster_info())),
    scenario("106 with ext fields and a body", ask(Request(106, {"a": "b"}, b"x"), Request(106, {}))),
    scenario(
        "106 of two clusters",
        ask(register(A), over="a"),
        ask(register(Broker("~b", "10.0.0.9:10911", cluster="~d", zone="z")), over="b"),
        ask(register(S), over="s"),
    ),
    scenario(
        "322: equal and different versions",
        ask(register(A)),
        ask(
            query_data_version(A),
            query_data_version(A, data_version(2)),
            query_data_version(A, data_version(1, 1)),
            query_data_version(A, data_version(timestamp=5)),
        ),
    ),
    scenario("322 of an unknown broker", ask(query_data_version(A))),
    scenario(
        "322 of another cluster or address",
        ask(register(A)),
        ask(query_data_version(A.but(cluster="~d")), query_data_version(A.but(addr="10.0.0.3:10911"))),
    ),
    scenario(
        "322 of another name at a known address",
        ask(register(A)),
        ask(query_data_version(A.but(name="~b")), differs="other-name"),
        is_observed=False,
    ),
    scenario(
        "322 with another brokerId",
        ask(register(A)),
        ask(query_data_version(A).with_fields(brokerId="9"), query_data_version(A).with_fields(brokerId=None)),
    ),
    scenario("322 without a body", ask(register(A)), ask(query_data_version(A).with_body(b""))),
    scenario(
        "322 with a body that is no JSON",
        ask(register(A)),
        ask(query_data_version(A).with_body(b"x"), differs="exception-remark"),
    ),
    scenario("322 with the empty object", ask(register(A)), ask(query_data_version(A).with_body(b"{}"))),
    scenario(
        "322 with numbers as text",
        ask(register(A)),
        ask(query_data_version(A).with_body(b'{"counter":"1","timestamp":"1000"}')),
    ),
    scenario(
        "322 of large numbers",
        ask(register(A, version=data_version(2**62, 2**61, 2**60))),
        ask(query_data_version(A, data_version(2**62, 2**61, 2**60))),
    ),
    scenario(
        "322 of negative numbers",
        ask(register(A, version=data_version(-1, -2, -3))),
        ask(query_data_version(A, data_version(-1, -2, -3))),
    ),
    scenario(
        "322 without brokerAddr",
        ask(register(A)),
        ask(query_data_version(A).with_fields(brokerAddr=None), differs="missing-field"),
    ),
    scenario(
        "322 without clusterName",
        ask(register(A)),
        ask(query_data_version(A).with_fields(clusterName=None), differs="missing-field"),
    ),
    scenario(
        "322 without brokerName",
        ask(register(A)),
        ask(query_data_version(A).with_fields(brokerName=None), differs="missing-field"),
    ),
    scenario("322 oneway is a heartbeat", ask(register(A)), ask(query_data_version(A).oneway(), query_data_version(A))),
    scenario(
        "322 of a replaced address",
        ask(register(A), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911"), version=data_version(2)), over="b"),
        ask(query_data_version(A), query_data_version(A.but(addr="10.0.0.7:10911"))),
    ),
    scenario(
        "322 after one topic was registered alone",
        ask(register(A)),
        ask(register(A, {"~T": topic(1)}, data_version(2))),
        ask(query_data_version(A, data_version(2))),
    ),
    scenario("901 of a group", ask(register(A), over="a"), ask(register(S), over="s"), ask(member_group("~a"))),
    scenario("901 of an unknown name", ask(member_group("~a"))),
    scenario(
        "901 returns the cluster of the request",
        ask(register(A)),
        ask(member_group("~a", "~other"), member_group("~a", "")),
    ),
    scenario("901 without a cluster", ask(register(A)), ask(member_group("~a").with_fields(clusterName=None))),
    scenario("901 without a name", ask(member_group("~a").with_fields(brokerName=None)), is_observed=False),
    scenario("901 without ext fields", ask(Request(901), Request(901, {})), is_observed=False),
    scenario("901 oneway", ask(register(A)), ask(member_group("~a").oneway(), member_group("~a"))),
    scenario("904 of a broker", ask(register(A)), ask(heartbeat(A)), ask(heartbeat(A).oneway())),
    scenario(
        "904 with all its fields",
        ask(register(A)),
        ask(
            heartbeat(A).with_fields(
                brokerId="0",
                epoch="3",
                maxOffset="1",
                confirmOffset="1",
                heartbeatTimeoutMills="10000",
                electionPriority="1",
            )
        ),
    ),
    scenario("904 of an unknown broker creates nothing", ask(heartbeat(A)), ask(heartbeat(A).oneway())),
    scenario("904 after an unregistration creates nothing", ask(register(A)), ask(unregister(A)), ask(heartbeat(A))),
    scenario("904 without brokerAddr", ask(heartbeat(A).with_fields(brokerAddr=None), differs="missing-field")),
    scenario("904 without clusterName", ask(heartbeat(A).with_fields(clusterName=None), differs="missing-field")),
    scenario("904 without brokerName", ask(heartbeat(A).with_fields(brokerName=None), differs="missing-field")),
    scenario(
        "904 does not change the connection that holds the broker",
        ask(register(A), over="a"),
        ask(heartbeat(A), over="b"),
        ask(route("~T")),
    ),
    *(
        scenario(f"unknown code {code}", ask(Request(code), Request(code, {"a": "b"}, b"x")))
        for code in (0, -1, 1, 10, 99, 300, 321, 902, 903, 905, 1001, 32_767, 99_999)
    ),
    scenario("unknown code oneway", ask(Request(999).oneway(), cluster_info())),
)
