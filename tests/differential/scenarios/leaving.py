"""104: unregistration, and what remains after it. Source: rocketmq 5.3.3, RouteInfoManager.unRegisterBroker."""

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
from tests.differential.client_requests import cluster_info, route
from tests.differential.scenario import Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
S: Final = A.slave()
B: Final = Broker("~b", "10.0.0.9:10911")

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("a broker leaves", ask(register(A)), ask(unregister(A))),
    scenario("a broker of 4.x leaves", ask(register(A.but(acting=None))), ask(unregister(A).of_version(399))),
    scenario("a broker leaves twice", ask(register(A)), ask(unregister(A)), ask(unregister(A))),
    scenario(
        "a broker leaves and returns",
        ask(register(A)),
        ask(unregister(A)),
        ask(register(A)),
        ask(unregister(A)),
        ask(register(A)),
    ),
    scenario(
        "a broker leaves and returns with fewer topics",
        ask(register(A)),
        ask(unregister(A)),
        ask(register(A, {"~V": topic(1), "~W": topic(1)})),
    ),
    scenario(
        "one topic alone is refused after a broker has left",
        ask(register(A)),
        ask(unregister(A)),
        ask(route("~T"), has="code=17"),  # Java unregisters after its answer
        ask(register(A, {"~T": topic(1)})),
        ask(cluster_info(), differs="refused-registration"),
        is_observed=False,
    ),
    scenario("an unknown broker leaves", ask(unregister(A))),
    scenario("an unknown broker of a known name leaves", ask(register(A)), ask(unregister(S))),
    scenario(
        "a broker leaves with another id than its own", ask(register(A)), ask(unregister(A).with_fields(brokerId="7"))
    ),
    scenario(
        "a slave leaves with its master's id",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(unregister(S).with_fields(brokerId="0"), over="s"),
    ),
    scenario(
        "a master leaves with its slave's address",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(unregister(A).with_fields(brokerAddr=S.addr), over="s"),
    ),
    scenario(
        "a broker leaves in another cluster",
        ask(register(A)),
        ask(unregister(A).with_fields(clusterName="~d")),
        ask(route("~T"), differs="unregister-elsewhere"),
        ask(query_data_version(A)),
        is_observed=False,
    ),
    scenario(
        "a broker leaves under another name",
        ask(register(A)),
        ask(unregister(A).with_fields(brokerName="~b")),
        ask(query_data_version(A), differs="unregister-elsewhere"),
        ask(route("~T")),
        is_observed=False,
    ),
    scenario(
        "the versions of two names that share an address",
        ask(register(A), over="a"),
        ask(register(A.but(name="~b"), version=data_version(2)), over="b"),
        ask(query_data_version(A), differs="same-address"),
        ask(query_data_version(A.but(name="~b"), data_version(2)), cluster_info(), route("~T")),
        is_observed=False,
    ),
    scenario(
        "the master leaves, the slave stays",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(unregister(A), over="a"),
        ask(register(S), over="s"),
    ),
    scenario(
        "the slave leaves, the master stays",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(unregister(S), over="s"),
    ),
    scenario(
        "one of two brokers with the same topics leaves",
        ask(register(A), over="a"),
        ask(register(B), over="b"),
        ask(unregister(A), over="a"),
    ),
    scenario(
        "a topic is removed with its last broker",
        ask(register(A), over="a"),
        ask(register(B, {"~V": topic(1), "~T": topic(2)}), over="b"),
        ask(unregister(B), over="b"),
    ),
    scenario(
        "all brokers of a cluster leave",
        ask(register(A), over="a"),
        ask(register(B), over="b"),
        ask(unregister(A), over="a"),
        ask(unregister(B), over="b"),
    ),
    scenario(
        "many brokers leave in one stream",
        ask(*(register(A.but(name=f"~{n}", addr=f"10.0.1.{n}:10911")) for n in range(8)), over="a"),
        ask(*(unregister(A.but(name=f"~{n}", addr=f"10.0.1.{n}:10911")) for n in range(8)), over="a"),
    ),
    scenario("leaving oneway", ask(register(A)), ask(unregister(A).oneway())),
    scenario(
        "the replaced address of a broker leaves",
        ask(register(A), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911"), TOPICS, data_version(2)), over="b"),
        ask(unregister(A), over="a"),
    ),
    scenario(
        "the address that replaced another leaves",
        ask(register(A), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911"), TOPICS, data_version(2)), over="b"),
        ask(unregister(A.but(addr="10.0.0.7:10911")), over="b"),
    ),
    scenario(
        "a broker leaves over another connection than that of its registration",
        ask(register(A), over="a"),
        ask(unregister(A), over="b"),
    ),
    scenario(
        "a broker leaves over a connection that is older than that of its registration",
        ask(cluster_info(), over="old"),
        ask(register(A), over="new"),
        ask(unregister(A), over="old"),
        ask(route("~T"), differs="older-connection"),
        is_observed=False,
    ),
    scenario(
        "104 without brokerId",
        ask(register(A)),
        ask(unregister(A).with_fields(brokerId=None)),
        ask(route("~T"), differs="unregister-without-id"),
        ask(query_data_version(A)),
        is_observed=False,
    ),
    scenario(
        "104 without brokerName",
        ask(register(A)),
        ask(unregister(A).with_fields(brokerName=None), differs="missing-field"),
        is_observed=False,
    ),
    scenario(
        "104 without brokerAddr",
        ask(register(A)),
        ask(unregister(A).with_fields(brokerAddr=None), differs="missing-field"),
        is_observed=False,
    ),
    scenario(
        "104 without clusterName",
        ask(register(A)),
        ask(unregister(A).with_fields(clusterName=None), differs="missing-field"),
        is_observed=False,
    ),
    scenario(
        "a broker that left is not known by its version",
        ask(register(A)),
        ask(unregister(A)),
        ask(query_data_version(A)),
    ),
)
