"""The topics and the brokers that serve them; and a comparison of one topic's current route with a past one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, Literal, NamedTuple

from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import QueueData
from namesrv_stream.route.topic_route import TopicRoute, broker_data_for_clients, is_system_topic
from namesrv_stream.server.http.console.query import TOPIC_SETS, Question
from namesrv_stream.server.steps import Steps

_MOST_TOPICS: Final = 50
_MOST_BROKERS: Final = 6
_MOST_LINES: Final = 300


async def topics(
    server: NameServer, names: Sequence[str], question: Question, steps: Steps, monotonic_ms: int
) -> dict[str, Any]:
    """Return the variables of the template ``topics``: the first matches by name, and how many each set has.

    ``names`` are the sorted topics of the cluster in question, or of all.
    """
    counts = dict.fromkeys(TOPIC_SETS, 0)
    first: list[str] = []
    async for some in steps.lists(_found(server, names, question)):
        found = [each for each in some if each is not None]
        counts["all"] += len(found)
        counts[""] += sum(not is_system for _, is_system in found)
        wanted = (name for name, is_system in found if question.topics == "all" or not is_system)
        first += islice(wanted, _MOST_TOPICS - len(first))
    return {
        "lines": await steps.all(_topic(server, name, monotonic_ms) for name in first),
        "sets": [(name, text, counts[name]) for name, text in TOPIC_SETS.items()],
        "left_out": counts[question.topics] - len(first),
    }


def _found(server: NameServer, names: Sequence[str], question: Question) -> Iterator[tuple[str, bool] | None]:
    """Yield (name, whether it is a system topic) for every topic that matches the search text, and None for others."""
    table, text = server.table, question.find_topic.casefold()
    for name in names:
        is_match = not text or text in name.casefold()
        yield (name, is_system_topic(name, table.clusters(), table.groups)) if is_match else None


def _topic(server: NameServer, name: str, monotonic_ms: int) -> dict[str, Any]:
    offers = list(islice(server.table.queue_data_of(name), _MOST_BROKERS))
    more = len(server.table.names_offering(name)) - len(offers)
    # The last query may have been up to an hour later (``core.QueryMarks``).
    asked_ms = server.asked.get(name)
    hours = None if asked_ms is None else (monotonic_ms - asked_ms) // 3_600_000
    return {"name": name, "offers": offers, "more": more, "asked_hours": hours}


Kind = Literal["same", "added", "removed", "changed"]


class Offer(NamedTuple):
    """What a broker name offers for a topic: addresses, numbers of queues and permission, as text."""

    cluster: str
    addrs: str
    read: str
    write: str
    perm: str


async def route_diff(
    now: Iterable[tuple[str, Offer]],
    before: Iterable[tuple[str, Offer]],
    *,
    is_compared: bool,
    steps: Steps,
    most: int = _MOST_LINES,
) -> dict[str, Any]:
    """Return the variables of the template ``route`` about a topic's current and past offers, which can be thousands.

    Returns:
        ``lines``, first those that differ, sorted by broker name; the number ``left_out``; ``counts`` of all by kind.
    """
    ours, theirs = dict(await steps.all(now)), dict(await steps.all(before))
    names = await steps.sorted(chain(ours, (name for name in theirs if name not in ours)))
    by_kind: dict[Kind, list[str]] = {"added": [], "removed": [], "changed": [], "same": []}
    async for some in steps.lists((_kind(ours.get(name), theirs.get(name), is_compared), name) for name in names):
        for kind, name in some:
            by_kind[kind].append(name)
    kind_of = {name: kind for kind in ("added", "removed", "changed") for name in by_kind[kind]}
    shown = islice(chain(await steps.sorted(kind_of), by_kind["same"]), most)
    lines = [
        {"kind": kind_of.get(name, "same"), "name": name, "now": ours.get(name), "before": theirs.get(name)}
        for name in shown
    ]
    counts = {kind: len(found) for kind, found in by_kind.items()}
    return {"lines": lines, "left_out": len(names) - len(lines), "counts": counts}


def _kind(now: Offer | None, before: Offer | None, is_compared: bool) -> Kind:
    if not is_compared or now == before:
        return "same"
    if before is None:
        return "added"
    return "removed" if now is None else "changed"


def offers_now(
    offering: Iterable[tuple[BrokerGroup, QueueData]], topic: str, *, support_acting_master: bool
) -> Iterator[tuple[str, Offer]]:
    """Yield the current offers of the broker groups for ``topic``, computed on demand."""
    for group, queue in offering:
        if group.is_registered:
            data = broker_data_for_clients(group, queue, topic, support_acting_master=support_acting_master)
            yield group.broker_name, _offer(data.cluster, data.broker_addrs, queue)
        else:
            yield group.broker_name, _offer("", {}, queue)


def offers_of(route: TopicRoute) -> Iterator[tuple[str, Offer]]:
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    for name, queue in route.queue_datas.items():
        broker = brokers.get(name)
        cluster, addrs = (broker.cluster, broker.broker_addrs) if broker else ("", {})
        yield name, _offer(cluster, addrs, queue)


def _offer(cluster: str, addrs: Mapping[int, str], queue: QueueData) -> Offer:
    texts = ", ".join(f"{broker_id}={addr}" for broker_id, addr in sorted(addrs.items()))
    # RocketMQ's permission bits as letters: 6 is ``RW-``.
    perm = "".join(letter if queue.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
    return Offer(cluster, texts, str(queue.read_queue_nums), str(queue.write_queue_nums), perm)
