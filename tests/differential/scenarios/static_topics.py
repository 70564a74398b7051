"""Static topics: topicQueueMappingByBroker.

Source: rocketmq 5.3.3, RouteInfoManager.registerBroker, pickupTopicRouteData.
"""

from typing import Final

from tests.differential.broker_requests import TOPICS, Broker, data_version, mapping_info, register, topic, unregister
from tests.differential.client_requests import delete_topic, route
from tests.differential.scenario import Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
B: Final = Broker("~b", "10.0.0.9:10911")
_TOPICS: Final = {**TOPICS, "~S": topic(2)}


def _maps(name: str = "~a", **changes: object) -> dict[str, dict[str, object]]:
    return {"~S": mapping_info("~S", name, **changes)}


def _without(name: str) -> dict[str, object]:
    return {key: value for key, value in mapping_info("~S", "~a").items() if key != name}


SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("static: one broker", ask(register(A, _TOPICS, mappings=_maps()))),
    scenario(
        "static: two brokers",
        ask(register(A, _TOPICS, mappings=_maps()), over="a"),
        ask(register(B, _TOPICS, mappings=_maps("~b", currIdMap={2: 0, 3: 1})), over="b"),
    ),
    scenario(
        "static: the same version does not change a mapping",
        ask(register(A, _TOPICS, mappings=_maps())),
        ask(register(A, _TOPICS, mappings=_maps(epoch=1_800_000_000_000))),
    ),
    scenario(
        "static: a new version changes a mapping",
        ask(register(A, _TOPICS, mappings=_maps())),
        ask(register(A, _TOPICS, data_version(2), mappings=_maps(epoch=1_800_000_000_000, dirty=True))),
    ),
    scenario(
        "static: a mapping that the same version omits is kept",
        ask(register(A, _TOPICS, mappings=_maps())),
        ask(register(A, _TOPICS)),
    ),
    *(
        scenario(
            f"static: {name}",
            ask(register(A, _TOPICS, mappings=_maps())),
            *steps,
            ask(route("~S"), differs="ended-mapping"),
            is_observed=False,
        )
        for name, steps in (
            ("a new version omits a mapping", (ask(register(A, _TOPICS, data_version(2))),)),
            ("a broker without its mapping returns", (ask(unregister(A)), ask(register(A, _TOPICS)))),
            ("a deleted topic comes back without its mapping", (ask(delete_topic("~S")), ask(register(A, _TOPICS)))),
        )
    ),
    scenario(
        "static: the same version adds a mapping",
        ask(register(A, _TOPICS)),
        ask(register(A, _TOPICS, mappings=_maps())),
        ask(route("~S"), differs="added-mapping"),
        is_observed=False,
    ),
    scenario("static: a mapping of a topic that no broker offers", ask(register(A, TOPICS, mappings=_maps()))),
    scenario("static: bname is another broker's", ask(register(A, _TOPICS, mappings=_maps("~other")))),
    scenario(
        "static: two mappings of one bname from two brokers",
        ask(register(A, _TOPICS, mappings=_maps()), over="a"),
        ask(register(B, _TOPICS, mappings=_maps(epoch=2)), over="b"),
        is_observed=False,
    ),
    scenario(
        "static: many queues",
        ask(register(A, _TOPICS, mappings=_maps(currIdMap={n: n for n in range(20)}, totalQueues=20))),
    ),
    scenario("static: no queues", ask(register(A, _TOPICS, mappings=_maps(currIdMap={}, totalQueues=0)))),
    scenario(
        "static: an epoch beyond a double", ask(register(A, _TOPICS, mappings=_maps(epoch=9_007_199_254_740_993)))
    ),
    scenario("static: another scope", ask(register(A, _TOPICS, mappings=_maps(scope="s/é")))),
    scenario(
        "static: a slave's mappings",
        ask(register(A, _TOPICS), over="a"),
        ask(register(A.slave(), _TOPICS, mappings=_maps()), over="s"),
    ),
    scenario(
        "static: only necessary fields", ask(register(A, _TOPICS, mappings={"~S": {"topic": "~S", "bname": "~a"}}))
    ),
    *(
        scenario(
            f"static: {name} is {'null' if name in info else 'absent'}",
            ask(register(A, _TOPICS, mappings={"~S": info})),
            ask(route("~S"), route("~S", 317), differs="null-mapping"),
            is_observed=False,
        )
        for name, info in (
            *((name, mapping_info("~S", "~a", **{name: None})) for name in ("currIdMap", "scope", "topic")),
            *((name, _without(name)) for name in ("topic",)),
        )
    ),
    *(
        scenario(f"static: {name} is absent", ask(register(A, _TOPICS, mappings={"~S": _without(name)})))
        for name in ("currIdMap", "scope")
    ),
    scenario(
        "static: the key counts, not the topic in the mapping",
        ask(register(A, {**_TOPICS, "~R": topic(2)}, mappings={"~R": mapping_info("~S", "~a")})),
    ),
)
