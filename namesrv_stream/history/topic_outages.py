"""When which broker names were in the route of a topic, and when they, or all of them, were not any more."""

from collections.abc import Iterator
from typing import NamedTuple

from namesrv_stream.history.database import Row
from namesrv_stream.history.reasons import Reason
from namesrv_stream.history.topic_changes import Offer, TopicHistory, totals_of
from namesrv_stream.route.changes import Cause


class OfferInterval(NamedTuple):
    """A time in which the queues of a broker name in a topic's route stayed the same.

    Attributes:
        end_ms: None where it goes on.
        offer: None where the broker name was no longer in the route.
        reason: Why it began; None where it began before the time.
        cluster: Of the broker name, when it was in the route last.
    """

    broker_name: str
    begin_ms: int
    end_ms: int | None
    offer: Offer | None
    reason: Reason | None
    cluster: str


def offer_intervals(history: TopicHistory) -> list[OfferInterval]:
    """All from when a broker name was first in the route, by broker name and begin."""
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
    """Rows as ``outages.sql`` has them, of the scopes ``broker_name`` and ``topic``, by begin."""
    found = [
        _outage(history, "broker_name", i.broker_name, i.reason, i.end_ms) | {"cluster": i.cluster, "brokers": 1}
        for i in offer_intervals(history)
        if i.offer is None and i.reason is not None
    ]
    found += _without_brokers(history)
    return sorted(found, key=lambda row: (row["begin_ms"], row["scope"], row["name"]))


def _without_brokers(history: TopicHistory) -> Iterator[Row]:
    """When no broker name was in the route."""
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
