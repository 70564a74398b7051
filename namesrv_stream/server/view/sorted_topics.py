"""The sorted names of all topics, or of a cluster's, for lists of any length; computed in steps."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.steps import Kept, Steps, distinct

#: How long names are kept that no broker's change has made invalid: a page of a list follows the one before.
_KEPT_MS: Final = 10_000


class SortedTopics:
    """Sorts the topics of one moment, once for the same topics of the same brokers. Used by one event loop."""

    def __init__(self, view: RouteView, steps: Steps, clock: Clock) -> None:
        self._view = view
        self._steps = steps
        # By the identities of the groups' topics, which are kept with the names, so that no other object has them.
        self._kept: Kept[tuple[int, ...], tuple[object, list[str]]] = Kept(_KEPT_MS, clock)

    async def names(self, cluster: str | None = None) -> Sequence[str]:
        """Return the topics that the table has at the call."""
        table = self._view.table
        of_cluster = map(table.group, table.clusters().get(cluster, ())) if cluster is not None else ()
        topics = [group.topics for group in of_cluster or table.groups.values() if group.topics]

        async def make() -> tuple[object, list[str]]:
            return topics, await self._steps.sorted(chain.from_iterable(distinct(topics)))

        return (await self._kept.get(tuple(map(id, topics)), make))[1]
