"""When brokers were gone, and when all of a broker name, a cluster or a topic were."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from namesrv_stream.history.availability import has_left
from namesrv_stream.history.reasons import Reason
from namesrv_stream.history.replicas import Away, Replica, replicas, times_away
from namesrv_stream.history.sessions import Session
from namesrv_stream.history.topic_changes import OfferChange, TopicStory, totals_of
from namesrv_stream.route.lease import LeaseKey


class Scope(StrEnum):
    """What was gone, from little to much."""

    BROKER = "broker"  # one replica
    BROKER_NAME = "broker_name"  # all replicas of a name that has several; in a topic's route: any name
    TOPIC = "topic"  # no broker in its route
    CLUSTER = "cluster"  # all its brokers


@dataclass(frozen=True, slots=True)
class Outage:
    """One time for which something was gone.

    Attributes:
        cluster: None of a topic.
        name: Broker name, topic or cluster.
        broker_addr: Of the broker process that went.
        replaced_by: Address of the process that came up in its place; None where it came back itself, or none did.
        broker: The newest process of that broker.
        begin_ms: Log time, epoch milliseconds.
        end_ms: None where it goes on.
        cause: Why the last one went.
        detail: Figures behind the cause, for people.
        brokers: How many were gone.
    """

    scope: Scope
    cluster: str | None
    name: str
    broker_addr: str | None
    begin_ms: int
    end_ms: int | None
    cause: str
    detail: str | None
    brokers: int
    replaced_by: str | None = None
    broker: LeaseKey | None = None

    @property
    def is_for_good(self) -> bool:
        """Whether it was taken away on purpose, as far as one can tell: it said goodbye and did not come back."""
        return self.end_ms is None and has_left(self.cause)

    def length_ms(self, until_ms: int) -> int:
        """How long it lasted, or has lasted by an instant."""
        return (until_ms if self.end_ms is None else self.end_ms) - self.begin_ms

    def overlaps(self, since_ms: int, until_ms: int) -> bool:
        return self.begin_ms <= until_ms and (self.end_ms is None or self.end_ms > since_ms)


def broker_outages(sessions: Iterable[Session], since_ms: int, until_ms: int) -> list[Outage]:
    """Outages of brokers, broker names and clusters that overlap a time, by begin.

    A broker that had gone before and did not come back is not among them: see ``gone_before``.

    Args:
        sessions: All that overlap the time, and each process's first and last before.
        since_ms: Epoch milliseconds.
        until_ms: Epoch milliseconds.
    """
    brokers = replicas(sessions)
    found = [_of_broker(b, away) for b in brokers if b.within(since_ms) for away in times_away(b.sessions)]
    found += _of_groups(Scope.BROKER_NAME, brokers, lambda s: (s.cluster, s.broker_name))
    found += _of_groups(Scope.CLUSTER, brokers, lambda s: (s.cluster, s.cluster))
    return sorted(
        (outage for outage in found if outage.overlaps(since_ms, until_ms)),
        key=lambda o: (o.begin_ms, list(Scope).index(o.scope), o.name, o.broker_addr or ""),
    )


def gone_before(sessions: Iterable[Session], since_ms: int) -> int:
    """How many brokers had gone by an instant and did not come back."""
    return sum(not replica.within(since_ms) for replica in replicas(sessions))


def topic_outages(story: TopicStory) -> list[Outage]:
    """Times for which a broker name was no longer in the route of a topic, and those for which none was; by begin."""
    return sorted(_topic_outages(story), key=lambda o: (o.begin_ms, o.scope is Scope.TOPIC, o.name))


def _topic_outages(story: TopicStory) -> Iterator[Outage]:
    away: dict[str, OfferChange] = {}
    nobody = None if totals_of(story.first.values()).brokers else story.last_reason
    for change in story.changes:
        for offer in change.offers:
            is_in = offer.after is not None and offer.after.serves
            if not is_in and offer.before is not None and offer.before.serves:
                away[offer.broker_name] = offer
            elif is_in and offer.broker_name in away:
                yield _of_offer(away.pop(offer.broker_name), change.at_ms)
        if not change.totals.brokers:
            nobody = max((offer.reason for offer in change.offers), key=lambda reason: reason.offset)
        elif nobody is not None:
            yield _of_topic(story.topic, nobody, change.at_ms)
            nobody = None
    yield from (_of_offer(offer, None) for offer in away.values())
    if nobody is not None:
        yield _of_topic(story.topic, nobody, None)


def _of_offer(offer: OfferChange, end_ms: int | None) -> Outage:
    cluster = offer.before.cluster if offer.before else None
    reason = offer.reason
    return Outage(
        Scope.BROKER_NAME, cluster, offer.broker_name, None, reason.at_ms, end_ms, reason.cause, reason.detail, 1
    )


def _of_topic(topic: str, reason: Reason, end_ms: int | None) -> Outage:
    return Outage(Scope.TOPIC, None, topic, None, reason.at_ms, end_ms, reason.cause, reason.detail, 0)


def _of_groups(
    scope: Scope, brokers: Iterable[Replica], group_of: Callable[[Session], tuple[str, str]]
) -> Iterator[Outage]:
    groups: dict[tuple[str, str], list[Replica]] = {}
    for broker in brokers:
        groups.setdefault(group_of(broker.newest), []).append(broker)
    for (_, name), own in groups.items():
        if len(own) > 1:
            for away in times_away(session for broker in own for session in broker.sessions):
                yield _outage(scope, away, name, len(own))


def _of_broker(broker: Replica, away: Away) -> Outage:
    last, after = away.last, away.next
    return replace(
        _outage(Scope.BROKER, away, last.broker_name, 1),
        broker_addr=last.broker_addr,
        replaced_by=None if after is None or after.key == last.key else after.broker_addr,
        broker=broker.key,
    )


def _outage(scope: Scope, away: Away, name: str, brokers: int) -> Outage:
    last = away.last
    return Outage(
        scope, last.cluster, name, None, away.begin_ms, away.end_ms, last.down_cause or "", last.down_detail, brokers
    )
