"""318 and 319, and the permission to change the configuration.

Source: rocketmq 5.3.3, DefaultRequestProcessor.updateConfig, getConfig; ADR 0011.
"""

from typing import Final

from tests.differential.broker_requests import Broker, register, register_topic, topic
from tests.differential.client_requests import (
    add_write_perm,
    config,
    delete_kv,
    delete_topic,
    get_kv,
    put_kv,
    route,
    update_config,
    wipe_write_perm,
)
from tests.differential.request import Request
from tests.differential.scenario import Scenario, ask, connect, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
_PROXY: Final = b"PROXY TCP4 127.0.0.1 127.0.0.1 4711 9876\r\n"
_ON: Final = update_config(enableTopicList="true")

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *(
        scenario(f"318: {key} is black-listed", ask(update_config(**{key: "/tmp/x"})), is_observed=False)
        for key in ("kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome")
    ),
    scenario("318: a black-listed key among others", ask(update_config(enableTopicList="true", kvConfigPath="/tmp/x"))),
    scenario("318: without a body", ask(Request(318))),
    scenario("318: an empty body", ask(Request(318, body=b"\n"))),
    scenario("318: comments", ask(Request(318, body=b"# nothing\n! nothing\n  # nothing = 1\n"))),
    scenario(
        "318: separators, blanks and continued lines",
        ask(
            Request(318, body=b"enableTopicList : true\n  enableAllTopicList true\norderMessage\\\n  Enable = false\n")
        ),
        ask(config(), differs="config-shown"),
    ),
    scenario(
        "318: lines that end with CR LF",
        ask(Request(318, body=b"enableTopicList=true\r\norderMessageEnable=false\r\n")),
    ),
    scenario("318: escapes", ask(Request(318, body=b"enable\\u0054opicList=tr\\u0075e\n"))),
    scenario(
        "318: a key twice",
        ask(Request(318, body=b"enableTopicList=false\nenableTopicList=true\n")),
        ask(config(), differs="config-shown"),
    ),
    scenario("318: an unknown key", ask(update_config(whatever="1"), differs="config-keys")),
    scenario(
        "318: a key that cannot change at run time", ask(update_config(serverWorkerThreads="8"), differs="config-keys")
    ),
    scenario(
        "318: a known key beside an unknown one",
        ask(update_config(enableTopicList="true", whatever="1"), differs="config-keys"),
    ),
    scenario("318: an invalid number", ask(update_config(waitSecondsForService="many"), differs="config-values")),
    scenario("318: an invalid boolean", ask(update_config(orderMessageEnable="no"), differs="config-values")),
    scenario(
        "319 shows what 318 has set",
        ask(update_config(waitSecondsForService="77", orderMessageEnable="true")),
        ask(config(), differs="config-shown"),
        restore=[update_config(waitSecondsForService="45", orderMessageEnable="false")],
    ),
    scenario("318: oneway", ask(_ON.oneway())),
    scenario("319", ask(config(), differs="config-shown")),
    scenario("319 with a body and ext fields", ask(Request(319, {"a": "b"}, b"x"), differs="config-shown")),
    scenario(
        "changes through a proxy are denied",
        ask(register(A)),
        connect(_PROXY, over="p"),
        ask(put_kv("~n", "k", "v"), over="p", differs="admin"),
        ask(delete_kv("~n", "l"), over="p", differs="admin"),
        ask(delete_topic("~V"), over="p", differs="admin"),
        ask(wipe_write_perm("~none"), over="p", differs="admin"),
        ask(add_write_perm("~none"), over="p", differs="admin"),
        ask(_ON, over="p", differs="admin"),
        is_observed=False,
    ),
    scenario(
        "all other requests through a proxy are answered",
        connect(_PROXY, over="p"),
        ask(register(A), over="p"),
        ask(register_topic("~V", {"~a": topic(1)}), over="p"),
        ask(route("~V"), get_kv("~n", "k"), over="p"),
    ),
)
