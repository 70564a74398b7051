"""The topics: who offers each of them, and with how many queues."""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.system_topics import is_system_topic
from namesrv_stream.server.http.console.question import TOPIC_SETS, Question
from namesrv_stream.server.steps import Steps

_MOST_TOPICS: Final = 50
_MOST_BROKERS: Final = 6


async def topics(server: NameServer, question: Question, steps: Steps) -> dict[str, Any]:
    """What the template ``topics`` shows: the first topics by name that fit, and how many fit in each set."""
    counts = dict.fromkeys(TOPIC_SETS, 0)
    first: list[str] = []
    async for some in steps.lists(_found(server, question)):
        own = [name for name, is_system in some if not is_system]
        counts["all"] += len(some)
        counts[""] += len(own)
        wanted = own if question.topics != "all" else [name for name, _ in some]
        first = heapq.nsmallest(_MOST_TOPICS, [*first, *wanted])
    return {
        "lines": await steps.all(_topic(server, name) for name in first),
        "sets": [(name, text, counts[name]) for name, text in TOPIC_SETS.items()],
        "left_out": counts[question.topics] - len(first),
    }


def _found(server: NameServer, question: Question) -> Iterator[tuple[str, bool]]:
    """Names of topics that fit search and cluster, and whether brokers have them of themselves."""
    table, text = server.table, question.find_topic.casefold()
    clusters = table.clusters()
    of_cluster = clusters.get(question.cluster, set()) if question.cluster else None
    for name in list(table.topics()):
        if text and text not in name.casefold():
            continue
        if of_cluster is not None and of_cluster.isdisjoint(table.names_offering(name)):
            continue
        yield name, is_system_topic(name, clusters, table.groups)


def _topic(server: NameServer, name: str) -> dict[str, Any]:
    offers = list(islice(server.table.queue_data_of(name), _MOST_BROKERS))
    return {"name": name, "offers": offers, "more": len(server.table.names_offering(name)) - len(offers)}
