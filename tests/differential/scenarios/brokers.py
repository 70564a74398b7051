"""103: masters, slaves, changes of role, address and id; answers to slaves.

Source: rocketmq 5.3.3, RouteInfoManager.registerBroker.
"""

from typing import Final

from tests.differential.broker_requests import Broker, data_version, member_group, query_data_version, register, topic
from tests.differential.client_requests import all_topics, cluster_info, delete_kv, put_kv, route, update_config
from tests.differential.scenario import Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
S: Final = A.slave()
S2: Final = A.slave(2, "10.0.0.3:10911")
OLD: Final = A.but(acting=None)
OLD_S: Final = OLD.slave()
_V: Final = {"~V": topic(3), "~W": topic(3)}

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario(
        "a slave receives its master's address",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(register(S), over="s"),
    ),
    scenario(
        "a slave that registers before its master receives no master address",
        ask(register(S), over="s"),
        ask(register(A), over="a"),
        ask(register(S), over="s"),
    ),
    scenario(
        "a slave of 4.x receives its master's address", ask(register(OLD), over="a"), ask(register(OLD_S), over="s")
    ),
    scenario("a slave's topics are ignored", ask(register(A), over="a"), ask(register(S, _V), over="s")),
    scenario("a prime slave's topics are accepted", ask(register(S, _V), over="s")),
    scenario("a lone slave of 4.x offers no topics", ask(register(OLD_S, _V), over="s")),
    scenario(
        "of two slaves, the one with the lower id is prime",
        ask(register(S2, _V), over="s2"),
        ask(register(S, {"~X": topic(1), "~Y": topic(1)}), over="s"),
        ask(register(S2, {"~Z": topic(1), "~Q": topic(1)}, data_version(2)), over="s2"),
    ),
    scenario(
        "a master joins its slave and offers more topics",
        ask(register(S), over="s"),
        ask(register(A, _V, data_version(2)), over="a"),
    ),
    scenario(
        "the master's HA address changes",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(register(A).with_fields(haServerAddr="10.0.0.1:20000"), over="a"),
        ask(register(S), over="s"),
    ),
    scenario(
        "a slave becomes master: its old id is removed",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(register(S.but(broker_id=0), version=data_version(2)), over="s"),
    ),
    scenario(
        "master and slave change places",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(register(S.but(broker_id=0), version=data_version(2)), over="s"),
        ask(register(A.but(broker_id=1), version=data_version(2)), over="a"),
    ),
    scenario(
        "a slave changes its id",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(register(S.but(broker_id=5)), over="s"),
    ),
    scenario(
        "the master becomes a slave, and there is no master",
        ask(register(A), over="a"),
        ask(register(A.but(broker_id=1)), over="a"),
    ),
    scenario(
        "a broker's address changes", ask(register(A), over="a"), ask(register(A.but(addr="10.0.0.7:10911")), over="b")
    ),
    scenario(
        "a broker's address changes, and changes back",
        ask(register(A), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911")), over="b"),
        ask(register(A), over="a"),
    ),
    scenario(
        "a new address with other topics of the same version",
        ask(register(A), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911"), {"~T": topic(1), "~V": topic(1)}), over="b"),
    ),
    scenario(
        "stateVersion: the lower one is ignored",
        ask(register(A, version=data_version(1, 5)), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911"), version=data_version(9, 4)), over="b"),
    ),
    scenario(
        "stateVersion: an equal one wins",
        ask(register(A, version=data_version(1, 5)), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911"), version=data_version(9, 5)), over="b"),
    ),
    scenario(
        "stateVersion: a higher one wins",
        ask(register(A, version=data_version(1, 5)), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911"), version=data_version(1, 6)), over="b"),
    ),
    scenario(
        "stateVersion: a lower one at the same address is accepted",
        ask(register(A, version=data_version(1, 5)), over="a"),
        ask(register(A, _V, data_version(1, 2)), over="a"),
    ),
    scenario(
        "stateVersion: the lower one has another cluster, and wins",
        ask(register(A, version=data_version(1, 5)), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911", cluster="~d"), version=data_version(9, 4)), over="b"),
    ),
    scenario(
        "stateVersion: the lower one does not change the group",
        ask(register(A.but(zone="z1"), version=data_version(1, 5)), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911", zone="z2"), version=data_version(9, 4)), over="b"),
        ask(cluster_info(), differs="stale-registration"),
        is_observed=False,
    ),
    scenario(
        "stateVersion: a conflict of slaves",
        ask(register(A), over="a"),
        ask(register(S, version=data_version(1, 5)), over="s"),
        ask(register(S.but(addr="10.0.0.8:10911"), version=data_version(1, 4)), over="b"),
    ),
    scenario(
        "one topic before any registration is refused",
        ask(register(A, {"~T": topic(1)})),
        ask(cluster_info(), differs="refused-registration"),
        ask(route("~T"), all_topics(), member_group("~a")),
        is_observed=False,
    ),
    scenario(
        "one topic before any registration is refused, then all topics are accepted",
        ask(register(A, {"~T": topic(1)})),
        ask(register(A)),
        ask(register(A, {"~T": topic(1)})),
        ask(cluster_info(), route("~T"), route("~U"), query_data_version(A)),
        is_observed=False,
    ),
    scenario(
        "one topic of an unregistered slave whose master is registered",
        ask(register(A), over="a"),
        ask(register(S, {"~T": topic(1)}), over="s"),
        ask(register(S), over="s"),
    ),
    scenario(
        "one topic from a new address under a known id is accepted",
        ask(register(A), over="a"),
        ask(register(A.but(addr="10.0.0.7:10911"), {"~T": topic(1)}, data_version(2)), over="b"),
    ),
    scenario(
        "brokers receive order topics",
        ask(put_kv("ORDER_TOPIC_CONFIG", "~T", "~a:4")),
        ask(register(A)),
        ask(register(A.slave()), over="s"),
        restore=[delete_kv("ORDER_TOPIC_CONFIG", "~T")],
    ),
    scenario(
        "brokers receive no order topics if that is disabled",
        ask(put_kv("ORDER_TOPIC_CONFIG", "~T", "~a:4")),
        ask(update_config(returnOrderTopicConfigToBroker="false")),
        ask(register(A)),
        restore=[update_config(returnOrderTopicConfigToBroker="true"), delete_kv("ORDER_TOPIC_CONFIG", "~T")],
    ),
    scenario(
        "deleteTopicWithBrokerRegistration: topics that a payload omits are deleted",
        ask(update_config(deleteTopicWithBrokerRegistration="true")),
        ask(register(A, {"~T": topic(1), "~U": topic(1), "~V": topic(1)}), over="a"),
        ask(register(A.but(name="~b", addr="10.0.0.9:10911"), {"~T": topic(1), "~V": topic(1)}), over="b"),
        ask(register(A, {"~T": topic(1), "~W": topic(1)}, data_version(2)), over="a"),
        ask(register(A, {"~W": topic(1), "~X": topic(1)}, data_version(2)), over="a"),
        ask(register(A, {}, data_version(2)), over="a"),
        restore=[update_config(deleteTopicWithBrokerRegistration="false")],
    ),
    scenario(
        "deleteTopicWithBrokerRegistration: a slave deletes nothing",
        ask(update_config(deleteTopicWithBrokerRegistration="true")),
        ask(register(A), over="a"),
        ask(register(S, _V), over="s"),
        restore=[update_config(deleteTopicWithBrokerRegistration="false")],
    ),
    scenario(
        "deleteTopicWithBrokerRegistration: one topic alone deletes the others",
        ask(update_config(deleteTopicWithBrokerRegistration="true")),
        ask(register(A), over="a"),
        ask(register(A, {"~T": topic(2)}, data_version(2)), over="a"),
        restore=[update_config(deleteTopicWithBrokerRegistration="false")],
    ),
)
