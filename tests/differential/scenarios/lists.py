"""206, 224, 304, 311 to 313. Source: rocketmq 5.3.3, DefaultRequestProcessor, RouteInfoManager."""

from typing import Final

from tests.differential.broker_requests import Broker, register, topic, unregister
from tests.differential.client_requests import (
    all_topics,
    delete_topic,
    system_topics,
    topics_of_cluster,
    unit_sub_topics,
    unit_sub_un_unit_topics,
    unit_topics,
    update_config,
)
from tests.differential.request import Request
from tests.differential.scenario import Ask, Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
B: Final = Broker("~b", "10.0.0.9:10911", cluster="~d")
_ALL: Final = (
    all_topics(),
    topics_of_cluster("~c"),
    topics_of_cluster("~d"),
    unit_topics(),
    unit_sub_topics(),
    unit_sub_un_unit_topics(),
)
_FLAGGED: Final = {f"~F{flag}": topic(1, flag=flag) for flag in range(8)}


def _asked(*before: Ask) -> tuple[Ask, ...]:
    return (*before, ask(*_ALL))


SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("lists of nothing", *_asked()),
    scenario("lists of one broker", *_asked(ask(register(A)))),
    scenario(
        "lists of two clusters",
        *_asked(ask(register(A), over="a"), ask(register(B, {"~V": topic(), "~T": topic()}), over="b")),
    ),
    scenario("lists of units", *_asked(ask(register(A, _FLAGGED)))),
    scenario("lists of units of a compressed registration", *_asked(ask(register(A, _FLAGGED), over="a"))),
    scenario(
        "lists after a broker left",
        *_asked(ask(register(A), over="a"), ask(register(B, _FLAGGED), over="b"), ask(unregister(B), over="b")),
    ),
    scenario(
        "lists after a topic was deleted",
        *_asked(ask(register(A, _FLAGGED)), ask(delete_topic("~F3")), ask(delete_topic("~F1"))),
    ),
    scenario(
        "lists with names of all scripts",
        *_asked(ask(register(A, {"~тема": topic(1, flag=1), '~"/\\': topic(1, flag=2), "~T": topic(1)}))),
    ),
    scenario("224 of an unknown cluster", ask(topics_of_cluster("~none"), topics_of_cluster(""))),
    scenario("224 without a cluster", ask(Request(224), Request(224, {})), is_observed=False),
    scenario(
        "224 of a cluster whose broker first registered in another cluster",
        ask(register(A), over="a"),
        ask(register(A.slave().but(cluster="~d")), over="s"),
        ask(topics_of_cluster("~c"), topics_of_cluster("~d")),
    ),
    scenario(
        "304 names clusters and brokers",
        ask(register(A), over="a"),
        ask(register(B), over="b"),
        ask(register(A.slave()), over="s"),
        ask(system_topics()),
    ),
    scenario("lists oneway", ask(register(A)), ask(*(r.oneway() for r in _ALL)), ask(*_ALL)),
    scenario(
        "206 switched off",
        ask(register(A)),
        ask(update_config(enableAllTopicList="false")),
        ask(*_ALL),
        ask(update_config(enableAllTopicList="true")),
        ask(*_ALL),
        restore=[update_config(enableAllTopicList="true")],
        is_observed=False,
    ),
    scenario(
        "224 and 311 to 313 switched off",
        ask(register(A)),
        ask(update_config(enableTopicList="false")),
        ask(*_ALL),
        ask(update_config(enableTopicList="true")),
        ask(*_ALL),
        restore=[update_config(enableTopicList="true")],
        is_observed=False,
    ),
)
