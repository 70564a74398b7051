"""205 and 327. Source: rocketmq 5.3.3, RouteInfoManager.operateWritePermOfBrokerByLock."""

from typing import Final

from tests.differential.broker_requests import TOPICS, Broker, data_version, register, topic, unregister
from tests.differential.client_requests import add_write_perm, wipe_write_perm
from tests.differential.request import Request
from tests.differential.scenario import Scenario, ask, close, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
B: Final = Broker("~b", "10.0.0.9:10911")
_PERMS: Final = {f"~P{perm}": topic(4, perm=perm) for perm in (0, 1, 2, 4, 6, 7, 8, 14)}

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("wipe", ask(register(A)), ask(wipe_write_perm("~a"))),
    scenario("wipe twice", ask(register(A)), ask(wipe_write_perm("~a")), ask(wipe_write_perm("~a"))),
    scenario("wipe and add", ask(register(A)), ask(wipe_write_perm("~a")), ask(add_write_perm("~a"))),
    scenario("wipe topics of all permissions", ask(register(A, _PERMS)), ask(wipe_write_perm("~a"))),
    scenario("add to topics of all permissions", ask(register(A, _PERMS)), ask(add_write_perm("~a"))),
    scenario(
        "wipe one of two brokers", ask(register(A), over="a"), ask(register(B), over="b"), ask(wipe_write_perm("~a"))
    ),
    scenario("wipe an unknown broker", ask(wipe_write_perm("~a")), ask(add_write_perm("~a"))),
    scenario("wipe without a name", ask(Request(205), Request(205, {}), Request(327))),
    scenario(
        "wiped: the same registration does not restore the permission",
        ask(register(A)),
        ask(wipe_write_perm("~a")),
        ask(register(A)),
        ask(register(A)),
    ),
    scenario(
        "wiped: a new version restores the permission",
        ask(register(A)),
        ask(wipe_write_perm("~a")),
        ask(register(A, version=data_version(2))),
    ),
    scenario(
        "wiped: one topic alone with a new version is restored alone",
        ask(register(A)),
        ask(wipe_write_perm("~a")),
        ask(register(A, {"~T": topic(8)}, data_version(2))),
    ),
    scenario(
        "wiped: a new topic is writable",
        ask(register(A)),
        ask(wipe_write_perm("~a")),
        ask(register(A, {**TOPICS, "~V": topic(1)})),
    ),
    scenario(
        "wiped: an unregistration and a registration restore the permission",
        ask(register(A)),
        ask(wipe_write_perm("~a")),
        ask(unregister(A)),
        ask(register(A)),
    ),
    scenario(
        "wiped: a closed connection and a registration restore the permission",
        ask(register(A), over="a"),
        ask(wipe_write_perm("~a")),
        close("a", gone=[A]),
        ask(register(A), over="b"),
    ),
    scenario(
        "wiped: a slave's registration does not restore the permission",
        ask(register(A), over="a"),
        ask(register(A.slave()), over="s"),
        ask(wipe_write_perm("~a")),
        ask(register(A.slave(), version=data_version(2)), over="s"),
    ),
    scenario("wipe a broker without topics", ask(register(A, {})), ask(wipe_write_perm("~a"))),
    scenario("wipe oneway", ask(register(A)), ask(wipe_write_perm("~a").oneway())),
    scenario(
        "wiped: a group with an acting master",
        ask(register(A.but(acting=True)), over="a"),
        ask(register(A.slave().but(acting=True)), over="s"),
        ask(unregister(A), over="a"),
        ask(add_write_perm("~a")),
        ask(wipe_write_perm("~a")),
    ),
)
