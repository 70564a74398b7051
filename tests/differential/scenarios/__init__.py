"""All scenarios, by subject."""

from typing import Final

from tests.differential.scenario import Scenario
from tests.differential.scenarios import (
    bodies,
    broker_queries,
    brokers,
    config,
    connections,
    groups,
    headers,
    key_values,
    leaving,
    lists,
    permissions,
    registration,
    routes,
    static_topics,
    topic_changes,
    waiting,
    zones,
)

ALL: Final[tuple[Scenario, ...]] = (
    *registration.SCENARIOS,
    *bodies.SCENARIOS,
    *brokers.SCENARIOS,
    *groups.SCENARIOS,
    *leaving.SCENARIOS,
    *connections.SCENARIOS,
    *routes.SCENARIOS,
    *zones.SCENARIOS,
    *static_topics.SCENARIOS,
    *broker_queries.SCENARIOS,
    *lists.SCENARIOS,
    *permissions.SCENARIOS,
    *topic_changes.SCENARIOS,
    *key_values.SCENARIOS,
    *config.SCENARIOS,
    *waiting.SCENARIOS,
    *headers.SCENARIOS,
)
