"""103: effects of a registration on topics, versions and addresses.

Source: rocketmq 5.3.3, DefaultRequestProcessor and RouteInfoManager, registerBroker.
"""

from typing import Final

from tests.differential.broker_requests import (
    TOPICS,
    Broker,
    compressed,
    data_version,
    query_data_version,
    register,
    topic,
)
from tests.differential.client_requests import route
from tests.differential.scenario import Scenario, ask, close, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
B: Final = Broker("~b", "10.0.0.9:10911")
OLD: Final = A.but(acting=None)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("a master registers", ask(register(A))),
    scenario("a broker of 4.x registers", ask(register(OLD))),
    scenario(
        "an unchanged registration is repeated",
        ask(register(A)),
        ask(register(A)),
        ask(register(A)),
    ),
    scenario(
        "unchanged registrations in one stream",
        ask(register(A), register(A), register(A), register(A)),
    ),
    scenario("a registration without topics", ask(register(A, {}))),
    scenario("a registration without a body", ask(register(A, body=b"").with_fields(bodyCrc32="0"))),
    scenario(
        "a registration without a body after a full one",
        ask(register(A)),
        ask(register(A, body=b"").with_fields(bodyCrc32="0")),
        ask(register(A)),
    ),
    scenario(
        "a new version rewrites the topics of the payload",
        ask(register(A)),
        ask(register(A, {"~T": topic(2), "~U": topic(3, perm=4)}, data_version(2))),
    ),
    scenario(
        "the same version does not rewrite a topic",
        ask(register(A)),
        ask(register(A, {"~T": topic(2), "~U": topic(3)})),
    ),
    scenario(
        "the same version adds a topic",
        ask(register(A)),
        ask(register(A, {**TOPICS, "~V": topic(1)})),
    ),
    scenario(
        "an older version counts as changed",
        ask(register(A, version=data_version(9))),
        ask(register(A, {"~T": topic(2), "~U": topic(3)}, data_version(3))),
    ),
    scenario(
        "a version differs in its timestamp only",
        ask(register(A)),
        ask(register(A, {"~T": topic(2), "~U": topic(3)}, data_version(timestamp=1_001))),
    ),
    scenario(
        "a version differs in its stateVersion only",
        ask(register(A)),
        ask(register(A, {"~T": topic(2), "~U": topic(3)}, data_version(state=1))),
    ),
    scenario(
        "a topic that a payload omits is kept",
        ask(register(A, {**TOPICS, "~V": topic(1)})),
        ask(register(A, TOPICS, data_version(2))),
    ),
    scenario(
        "a registration of one known topic alone changes it",
        ask(register(A)),
        ask(register(A, {"~T": topic(16)}, data_version(2))),
    ),
    scenario(
        "a registration of one new topic alone adds it",
        ask(register(A)),
        ask(register(A, {"~V": topic(16)}, data_version(2))),
        ask(register(A, {**TOPICS, "~V": topic(16)}, data_version(2))),
    ),
    scenario(
        "one topic alone with the known version is added, but not changed",
        ask(register(A)),
        ask(register(A, {"~T": topic(16)})),
        ask(register(A, {"~V": topic(16)})),
    ),
    scenario(
        "split registration: chunks of one version",
        ask(register(A, {"~T": topic(8), "~U": topic(8)}, data_version(5))),
        ask(register(A, {"~V": topic(8), "~W": topic(8)}, data_version(5))),
        ask(register(A, {"~X": topic(8)}, data_version(5))),
    ),
    scenario(
        "split registration: the second chunk does not update what is known",
        ask(register(A, {"~T": topic(8), "~U": topic(8), "~V": topic(8)}, data_version(5))),
        ask(register(A, {"~T": topic(4), "~U": topic(4)}, data_version(6))),
        ask(register(A, {"~V": topic(4), "~W": topic(4)}, data_version(6))),
    ),
    scenario(
        "two brokers of one cluster offer the same topic",
        ask(register(A), over="a"),
        ask(register(B, {"~T": topic(3), "~W": topic(2)}), over="b"),
    ),
    scenario(
        "the same address in two clusters is two brokers",
        ask(register(A), over="a"),
        ask(register(A.but(name="~b", cluster="~d"), version=data_version(7)), over="b"),
    ),
    scenario(
        "one broker name in two clusters",
        ask(register(A), over="a"),
        ask(register(A.but(cluster="~d", addr="10.0.0.5:10911", broker_id=1)), over="b"),
    ),
    scenario(
        "one broker name in two clusters, the same id",
        ask(register(A), over="a"),
        ask(register(A.but(cluster="~d", addr="10.0.0.5:10911")), over="b"),
    ),
    scenario(
        "topics of many permissions",
        ask(register(A, {f"~P{perm}": topic(4, perm=perm) for perm in range(16)})),
    ),
    scenario(
        "different numbers of read and write queues",
        ask(register(A, {"~T": topic(8, write=2), "~U": topic(0, write=0)})),
    ),
    scenario(
        "names in all scripts, and with characters that JSON escapes",
        ask(
            register(
                A.but(name="~ящик/я"),
                {"~тема": topic(1), "~題目": topic(1), '~a"b\\c': topic(1), "~/slash": topic(1), "~é\u2028": topic(1)},
            )
        ),
    ),
    scenario("a topic's name outside of the BMP", ask(register(A, {"~😀": topic(1), "~T": topic(1)}))),
    scenario("an empty topic name", ask(register(A, {"~T": topic(1), "": topic(1)})), is_observed=False),
    scenario("crc: none", ask(register(A).with_fields(bodyCrc32=None))),
    scenario("crc: 0 is no checksum", ask(register(A).with_fields(bodyCrc32="0"))),
    scenario("crc: wrong", ask(register(A).with_fields(bodyCrc32="12345"))),
    scenario("crc: no number", ask(register(A).with_fields(bodyCrc32="abc"))),
    scenario("crc: negative", ask(register(A).with_fields(bodyCrc32="-5"))),
    scenario("crc: of no body", ask(register(A, body=b"").with_fields(bodyCrc32="7"))),
    scenario("crc: wrong after a full registration", ask(register(A)), ask(register(A).with_fields(bodyCrc32="1"))),
    scenario("crc: of a compressed body", ask(compressed(A))),
    scenario("crc: wrong, of a compressed body", ask(compressed(A).with_fields(bodyCrc32="99"))),
    scenario("no haServerAddr", ask(register(A).with_fields(haServerAddr=None))),
    scenario(
        "no haServerAddr at the master: what its slave receives",
        ask(register(A).with_fields(haServerAddr=None), over="a"),
        ask(register(A.slave()), over="s"),
    ),
    scenario(
        "an empty haServerAddr at the master: what its slave receives",
        ask(register(A).with_fields(haServerAddr=""), over="a"),
        ask(register(A.slave()), over="s", differs="empty-ha-address"),
    ),
    scenario(
        "a heartbeat timeout of 2^63 - 1 does not overflow",
        ask(register(A.but(timeout_ms=2**63 - 1)), over="a"),
        ask(query_data_version(A), differs="long-timeout"),
        is_observed=False,
    ),
    scenario("a broker without a heartbeat timeout", ask(register(A.but(timeout_ms=None)))),
    scenario("a heartbeat timeout", ask(register(A.but(timeout_ms=300_000)))),
    scenario("a heartbeat timeout that is no number", ask(register(A).with_fields(heartbeatTimeoutMillis="soon"))),
    scenario("enableActingMaster is TRUE in capitals", ask(register(A).with_fields(enableActingMaster="TRUE"))),
    scenario("enableActingMaster is no boolean", ask(register(A).with_fields(enableActingMaster="yes"))),
    scenario("brokerId is signed", ask(register(A).with_fields(brokerId="+0"))),
    scenario("brokerId is negative", ask(register(A.but(broker_id=-1)))),
    scenario("brokerId is large", ask(register(A.but(broker_id=9_007_199_254_740_993)))),
    scenario("unknown ext fields", ask(register(A).with_fields(nsd="true", ns="x", bname="y", ReqT="0"))),
    scenario(
        "brokerName blank",
        ask(register(A).with_fields(brokerName=""), differs="missing-field"),
        is_observed=False,
    ),
    scenario(
        "brokerName missing",
        ask(register(A).with_fields(brokerName=None), differs="missing-field"),
        is_observed=False,
        spoils_java=True,
    ),
    scenario(
        "brokerAddr missing", ask(register(A).with_fields(brokerAddr=None), differs="missing-field"), is_observed=False
    ),
    scenario(
        "clusterName missing",
        ask(register(A).with_fields(clusterName=None), differs="missing-field"),
        is_observed=False,
    ),
    scenario(
        "brokerId missing", ask(register(A).with_fields(brokerId=None), differs="missing-field"), is_observed=False
    ),
    scenario(
        "brokerId is no number", ask(register(A).with_fields(brokerId="x"), differs="missing-field"), is_observed=False
    ),
    scenario(
        "no ext fields at all",
        ask(register(A).with_fields(**dict.fromkeys(register(A).ext_fields or {})), differs="missing-field"),
        is_observed=False,
    ),
    scenario("oneway", ask(register(A).oneway()), ask(route("~T"), has="10.0.0.1")),
    scenario(
        "a broker returns after its connection closed",
        ask(register(A), over="a"),
        close("a", gone=[A]),
        ask(register(A), over="b"),
    ),
    scenario(
        "a broker returns after its connection closed, with other topics and the same version",
        ask(register(A), over="a"),
        close("a", gone=[A]),
        ask(register(A, {"~V": topic(1), "~W": topic(2)}), over="b"),
    ),
)
