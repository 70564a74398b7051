"""A topic's route of now beside that of another time, broker by broker."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from namesrv_stream.server.http.console.words import cut

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


class _Offer(NamedTuple):
    cluster: str
    addrs: str
    read: str
    write: str
    perm: str


_NOTHING = _Offer("", "", "", "", "")


def route_diff(now: Mapping[str, Any] | None, before: Mapping[str, Any] | None, *, is_compared: bool) -> list[Line]:
    """The lines by broker name, those that differ first.

    Args:
        now: RocketMQ's TopicRouteData as JSON; None where there is no route.
        before: The same of another time.
        is_compared: Whether there is another time.
    """
    ours, theirs = _offers(now), _offers(before)
    lines = [_line(name, ours.get(name), theirs.get(name), is_compared) for name in sorted(ours.keys() | theirs.keys())]
    return sorted(lines, key=lambda line: line.kind == "same")


def _line(name: str, now: _Offer | None, before: _Offer | None, is_compared: bool) -> Line:
    if not is_compared or now == before:
        kind: Kind = "same"
    elif before is None:
        kind = "added"
    elif now is None:
        kind = "removed"
    else:
        kind = "changed"
    shown = now or before or _NOTHING
    old = before if kind == "changed" and before is not None else shown
    fields = [Field(cut(a), cut(b) if a != b else None) for a, b in zip(shown, old, strict=True)]
    return Line(kind, cut(name), *fields)


def _offers(route: Mapping[str, Any] | None) -> dict[str, _Offer]:
    if route is None:
        return {}
    queues = {queue["brokerName"]: queue for queue in route["queueDatas"]}
    brokers = {broker["brokerName"]: broker for broker in route["brokerDatas"]}
    found = {}
    for name in queues.keys() | brokers.keys():
        queue, broker = queues.get(name, {}), brokers.get(name, {})
        addrs = sorted(broker.get("brokerAddrs", {}).items(), key=lambda item: int(item[0]))
        found[name] = _Offer(
            str(broker.get("cluster", "")),
            ", ".join(f"{broker_id}={addr}" for broker_id, addr in addrs),
            str(queue.get("readQueueNums", "")),
            str(queue.get("writeQueueNums", "")),
            _perm(queue.get("perm")),
        )
    return found


def _perm(perm: int | None) -> str:
    """RocketMQ's bits as letters: 6 is ``RW-``."""
    if perm is None:
        return ""
    return f"{'R' if perm & 4 else '-'}{'W' if perm & 2 else '-'}{'X' if perm & 1 else '-'}"
