"""needWaitForService. Source: rocketmq 5.3.3, ClientRequestProcessor.getRouteInfoByTopic."""

from typing import Final

from tests.differential.broker_requests import Broker, register
from tests.differential.client_requests import all_topics, cluster_info, route, update_config
from tests.differential.request import Request
from tests.differential.scenario import Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
_RESTORE: Final = (update_config(needWaitForService="false", waitSecondsForService="45"),)
_WAIT: Final = update_config(needWaitForService="true", waitSecondsForService="1000000")

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario(
        "waiting: routes are refused before the server is ready",
        ask(register(A)),
        ask(_WAIT),
        ask(route("~T"), route("~none"), Request(105)),
        ask(cluster_info(), all_topics(), register(A)),
        restore=_RESTORE,
        is_observed=False,
    ),
    scenario(
        "waiting: routes are served after the waiting time",
        ask(register(A)),
        ask(update_config(needWaitForService="true", waitSecondsForService="0")),
        ask(route("~T"), route("~none")),
        restore=_RESTORE,
    ),
)
