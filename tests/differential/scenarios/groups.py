"""Acting masters: which slave replaces a missing master, and with which permission.

Source: rocketmq 5.3.3, RouteInfoManager.registerBroker, unRegisterBroker, pickupTopicRouteData.
"""

from typing import Final

from tests.differential.broker_requests import (
    TOPICS,
    Broker,
    data_version,
    heartbeat,
    member_group,
    register,
    topic,
    unregister,
)
from tests.differential.client_requests import add_write_perm, route, topics_of_cluster, update_config
from tests.differential.scenario import Scenario, ask, close, scenario

A: Final = Broker("~a", "10.0.0.1:10911", acting=True)
S: Final = A.slave()
S2: Final = A.slave(2, "10.0.0.3:10911")
B: Final = Broker("~b", "10.0.0.9:10911", acting=True)
PLAIN: Final = A.but(acting=False)
_ON: Final = update_config(supportActingMaster="true")
_OFF: Final = (update_config(supportActingMaster="false"),)
_SYNC: Final = "rmq_sys_SYNC_BROKER_MEMBER_~a"
_TOPICS: Final = {"~T": topic(), "~U": topic(4, perm=4), _SYNC: topic(1, perm=1)}

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario(
        "acting: the master leaves, its topics lose the write bit",
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(A), over="a"),
    ),
    scenario(
        "acting: the master's connection closes",
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        close("a", gone=[A]),
    ),
    scenario(
        "not acting: the master leaves, its topics stay writable",
        ask(register(PLAIN), over="a"),
        ask(register(PLAIN.slave()), over="s"),
        ask(unregister(PLAIN), over="a"),
    ),
    scenario(
        "4.x: the master leaves, its topics stay writable",
        ask(register(A.but(acting=None)), over="a"),
        ask(register(S.but(acting=None)), over="s"),
        ask(unregister(A), over="a"),
    ),
    scenario(
        "acting: a slave acts as master with id 0",
        ask(_ON),
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(A), over="a"),
        restore=_OFF,
    ),
    scenario(
        "acting: of two slaves, the one with the lower id acts as master",
        ask(_ON),
        ask(register(A, _TOPICS), over="a"),
        ask(register(S2, _TOPICS), over="s2"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(A), over="a"),
        restore=_OFF,
    ),
    scenario(
        "acting: the acting master leaves, and the next slave acts as master",
        ask(_ON),
        ask(register(A, _TOPICS), over="a"),
        ask(register(S2, _TOPICS), over="s2"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(A), over="a"),
        ask(unregister(S), over="s"),
        restore=_OFF,
    ),
    scenario(
        "acting: the master returns",
        ask(_ON),
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(A), over="a"),
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        restore=_OFF,
    ),
    scenario(
        "acting: the master returns with a new version",
        ask(_ON),
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(A), over="a"),
        ask(register(A, _TOPICS, data_version(2)), over="a"),
        restore=_OFF,
    ),
    scenario(
        "acting: a slave without a master registers, and its topics are read-only",
        ask(_ON),
        ask(register(S, _TOPICS), over="s"),
        restore=_OFF,
    ),
    scenario(
        "acting: a prime slave registers again while it acts as master",
        ask(_ON),
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(A), over="a"),
        ask(register(S, _TOPICS, data_version(3)), over="s"),
        restore=_OFF,
    ),
    scenario(
        "acting: a node takes the write permission before its election, and leaves",
        ask(register(A), over="a"),
        ask(register(A.slave(-1), TOPICS), over="s"),
        ask(unregister(A.slave(-1)), over="s"),
        ask(register(A), over="a"),
        ask(route("~T"), differs="left-permission"),
        is_observed=False,
    ),
    scenario(
        "acting: a node takes the write permission before its election, and is elected",
        ask(register(A), over="a"),
        ask(register(A.slave(-1), TOPICS), over="s"),
        ask(register(A.slave(0), TOPICS), over="s"),
        ask(route("~T"), differs="left-permission"),
        is_observed=False,
    ),
    scenario(
        "two clusters: the last broker of the first one leaves",
        ask(register(PLAIN), over="a"),
        ask(register(PLAIN.slave(1).but(cluster="~c2")), over="s"),
        ask(unregister(PLAIN), over="a"),
        ask(topics_of_cluster(PLAIN.cluster), differs="left-cluster"),
        is_observed=False,
        spoils_java=True,
    ),
    scenario(
        "acting: switched on while a slave is alone",
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(A), over="a"),
        ask(_ON),
        ask(route("~T")),
        ask(*_OFF),
        ask(route("~T")),
        restore=_OFF,
    ),
    scenario(
        "acting: a group without acting master is shown unchanged",
        ask(_ON),
        ask(register(PLAIN), over="a"),
        ask(register(PLAIN.slave()), over="s"),
        ask(unregister(PLAIN), over="a"),
        restore=_OFF,
    ),
    scenario(
        "acting: a group of each kind in one route",
        ask(_ON),
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(register(B.but(acting=False)), over="b"),
        ask(register(B.but(acting=False, broker_id=1, addr="10.0.0.8:10911")), over="bs"),
        ask(unregister(A), over="a"),
        ask(unregister(B), over="b"),
        restore=_OFF,
    ),
    scenario(
        "acting: a group with a master and one without",
        ask(_ON),
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(register(B), over="b"),
        ask(unregister(A), over="a"),
        restore=_OFF,
    ),
    scenario(
        "acting: the topic of the member group shows true ids",
        ask(_ON),
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(A), over="a"),
        ask(route(_SYNC), member_group("~a")),
        restore=_OFF,
    ),
    scenario(
        "acting: a group that stops acting regains its write permission",
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(A), over="a"),
        ask(register(S.but(acting=False), _TOPICS), over="s"),
        ask(route("~T"), differs="left-permission"),
        is_observed=False,
    ),
    scenario(
        "acting: a heartbeat of a slave changes nothing",
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(heartbeat(S).oneway(), over="s"),
        ask(unregister(A), over="a"),
        ask(heartbeat(S), over="s"),
    ),
    scenario(
        "acting: a slave with a lower id registers",
        ask(_ON),
        ask(register(S2, _TOPICS), over="s2"),
        ask(register(S, _TOPICS, data_version(2)), over="s"),
        restore=_OFF,
    ),
    scenario(
        "acting: the slave leaves, the master stays",
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(S), over="s"),
    ),
    scenario(
        "acting: a broker that is no member unregisters from a group without a master",
        ask(register(A), over="a"),
        ask(register(S), over="s"),
        ask(unregister(A), over="a"),
        ask(add_write_perm("~a"), over="a"),
        ask(unregister(S2), over="a"),
        ask(route("~T"), differs="goodbye-of-nobody"),
        is_observed=False,
    ),
    scenario(
        "acting: all members leave, the master last",
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="s"),
        ask(unregister(S), over="s"),
        ask(unregister(A), over="a"),
    ),
    scenario(
        "acting: all members leave at once",
        ask(register(A, _TOPICS), over="a"),
        ask(register(S, _TOPICS), over="a"),
        ask(unregister(A), unregister(S), over="a"),
    ),
)
