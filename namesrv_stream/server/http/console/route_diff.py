"""A topic's route of now beside that of another time, broker by broker."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Literal, NamedTuple

from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import QueueData
from namesrv_stream.route.topic_route import TopicRoute, told_broker_data
from namesrv_stream.server.http.console.words import cut
from namesrv_stream.server.steps import Steps

Kind = Literal["same", "added", "removed", "changed"]


class Field(NamedTuple):
    """One value of a broker's; ``before`` is None where there is nothing to compare with, or it is the same."""

    now: str
    before: str | None = None


class Line(NamedTuple):
    """What one broker name offers of the topic."""

    kind: Kind
    broker_name: str
    cluster: Field
    addrs: Field
    read: Field
    write: Field
    perm: Field


class Offer(NamedTuple):
    """What a broker name offers of the topic, as it is shown."""

    cluster: str
    addrs: str
    read: str
    write: str
    perm: str


_NOTHING = Offer("", "", "", "", "")


class Diff(NamedTuple):
    """What is shown of a route.

    Attributes:
        lines: Those that differ first, else by broker name.
        left_out: How many more there are.
        counts: Of all.
    """

    lines: list[Line]
    left_out: int
    counts: Mapping[Kind, int]


async def route_diff(
    now: Iterable[tuple[str, Offer]],
    before: Iterable[tuple[str, Offer]],
    *,
    is_compared: bool,
    most: int,
    steps: Steps,
) -> Diff:
    """The lines by broker name; a topic may be at thousands.

    Args:
        now: What broker names offer; empty where there is no route.
        before: The same of another time.
        is_compared: Whether there is another time.
        most: Lines.
        steps: In which it is made.
    """
    ours, theirs = await _by_name(now, steps), await _by_name(before, steps)
    names = await steps.sorted(chain(ours, (name for name in theirs if name not in ours)))
    by_kind: dict[Kind, list[str]] = {"added": [], "removed": [], "changed": [], "same": []}
    async for some in steps.lists((_kind(ours.get(name), theirs.get(name), is_compared), name) for name in names):
        for kind, name in some:
            by_kind[kind].append(name)
    same = by_kind["same"]
    differing = await steps.sorted(chain(by_kind["added"], by_kind["removed"], by_kind["changed"]))
    lines: list[Line] = []
    shown = islice(chain(differing, same), most)
    async for made in steps.lists(_line(name, ours.get(name), theirs.get(name), is_compared) for name in shown):
        lines += made
    return Diff(lines, len(names) - len(lines), {kind: len(found) for kind, found in by_kind.items()})


async def _by_name(offers: Iterable[tuple[str, Offer]], steps: Steps) -> dict[str, Offer]:
    found: dict[str, Offer] = {}
    async for some in steps.lists(offers):
        found.update(some)
    return found


def _kind(now: Offer | None, before: Offer | None, is_compared: bool) -> Kind:
    if not is_compared or now == before:
        return "same"
    if before is None:
        return "added"
    return "removed" if now is None else "changed"


def _line(name: str, now: Offer | None, before: Offer | None, is_compared: bool) -> Line:
    kind = _kind(now, before, is_compared)
    shown = now or before or _NOTHING
    old = before if kind == "changed" and before is not None else shown
    fields = [Field(cut(a), cut(b) if a != b else None) for a, b in zip(shown, old, strict=True)]
    return Line(kind, cut(name), *fields)


def offers_now(
    offering: Iterable[tuple[BrokerGroup, QueueData]], topic: str, *, support_acting_master: bool
) -> Iterator[tuple[str, Offer]]:
    """What each broker group offers of ``topic``, made as it is asked for."""
    for group, queue in offering:
        if group.is_registered:
            data = told_broker_data(group, queue, topic, support_acting_master=support_acting_master)
            yield group.broker_name, _offer(data.cluster, data.broker_addrs, queue)
        else:
            yield group.broker_name, _offer("", {}, queue)


def offers_of(route: TopicRoute) -> Iterator[tuple[str, Offer]]:
    """The same of a route."""
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    for name, queue in route.queue_datas.items():
        broker = brokers.get(name)
        cluster, addrs = (broker.cluster, broker.broker_addrs) if broker else ("", {})
        yield name, _offer(cluster, addrs, queue)


def _offer(cluster: str, addrs: Mapping[int, str], queue: QueueData) -> Offer:
    told = ", ".join(f"{broker_id}={addr}" for broker_id, addr in sorted(addrs.items()))
    return Offer(cluster, told, str(queue.read_queue_nums), str(queue.write_queue_nums), _perm(queue.perm))


def _perm(perm: int) -> str:
    """RocketMQ's bits as letters: 6 is ``RW-``."""
    return f"{'R' if perm & 4 else '-'}{'W' if perm & 2 else '-'}{'X' if perm & 1 else '-'}"
