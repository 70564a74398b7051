"""When broker names were in the route of a topic, and when they, or all of them, were missing."""

from collections.abc import Iterator
from typing import NamedTuple

from namesrv_stream.history.database import Row
from namesrv_stream.history.past import Reason
from namesrv_stream.history.topic_history import Offer, TopicHistory, totals_of
from namesrv_stream.route.changes import Cause


class OfferInterval(NamedTuple):
    """A time in which the queues of a broker name in a topic's route stayed the same.

    Attributes:
        end_ms: End of the interval, epoch milliseconds; None if it has not ended.
        offer: The broker name's part of the route; None if it was not in the route.
        reason: Why the interval began; None if it began before the period.
        cluster: Cluster of the broker name when it was last in the route.
    """

    broker_name: str
    begin_ms: int
    end_ms: int | None
    offer: Offer | None
    reason: Reason | None
    cluster: str


def offer_intervals(history: TopicHistory) -> list[OfferInterval]:
    """Return the intervals of each broker name since it was first in the route, by broker name and start."""
    states: dict[str, list[tuple[int, Offer | None, Reason | None]]] = {
        name: [(history.window.since_ms, offer, None)] for name, offer in history.first.items() if offer.serves
    }
    for change in history.changes:
        for part in change.offers:
            after = part.after if part.after is not None and part.after.serves else None
            own = states.setdefault(part.broker_name, [])
            before = own[-1][1] if own else None
            if (before and before.queues) != (after and after.queues):
                own.append((change.at_ms, after, part.reason))
    found = []
    for name, own in sorted(states.items()):
        cluster = ""
        ends = [*(begin_ms for begin_ms, _, _ in own[1:]), None]
        for (begin_ms, offer, reason), end_ms in zip(own, ends, strict=True):
            cluster = offer.cluster if offer else cluster
            found.append(OfferInterval(name, begin_ms, end_ms, offer, reason, cluster))
    return found


def topic_outages(history: TopicHistory) -> list[Row]:
    """Return rows with the columns of ``outages.sql``, of the scopes ``broker_name`` and ``topic``, by start."""
    found = [
        _outage(history, "broker_name", i.broker_name, i.reason, i.end_ms) | {"cluster": i.cluster, "brokers": 1}
        for i in offer_intervals(history)
        if i.offer is None and i.reason is not None
    ]
    found += _without_brokers(history)
    return sorted(found, key=lambda row: (row["begin_ms"], row["scope"], row["name"]))


def _without_brokers(history: TopicHistory) -> Iterator[Row]:
    """Yield the outages in which no broker name was in the route."""
    gone_since = None if totals_of(history.first.values()).brokers else history.last_reason
    for change in history.changes:
        if not change.totals.brokers:
            gone_since = max((offer.reason for offer in change.offers), key=lambda reason: reason.offset)
        elif gone_since is not None:
            yield _outage(history, "topic", history.topic, gone_since, change.at_ms)
            gone_since = None
    if gone_since is not None:
        yield _outage(history, "topic", history.topic, gone_since, None)


def _outage(history: TopicHistory, scope: str, name: str, reason: Reason, end_ms: int | None) -> Row:
    return {
        "scope": scope,
        "cluster": None,
        "name": name,
        "broker_addr": None,
        "begin_ms": reason.at_ms,
        "end_ms": end_ms,
        "duration_ms": (history.window.until_ms if end_ms is None else end_ms) - reason.at_ms,
        "brokers": None,
        "cause": reason.cause,
        "for_good": end_ms is None and reason.cause == Cause.UNREGISTERED,
        "replaced_by": None,
        "detail": reason.detail,
    }
