"""When brokers were gone, and when all of a broker name, a cluster or a topic were."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from namesrv_stream.history.reasons import Reason
from namesrv_stream.history.sessions import Session, by_broker
from namesrv_stream.history.topic_changes import OfferChange, TopicStory, totals_of


class Scope(StrEnum):
    """What was gone, from little to much."""

    BROKER = "broker"  # one process
    BROKER_NAME = "broker_name"  # all processes of a name that has several; in a topic's route: any name
    TOPIC = "topic"  # no broker in its route
    CLUSTER = "cluster"  # all its brokers


@dataclass(frozen=True, slots=True)
class Outage:
    """One time for which something was gone.

    Attributes:
        cluster: None of a topic.
        name: Broker name, topic or cluster.
        broker_addr: Of a broker process.
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

    def length_ms(self, until_ms: int) -> int:
        """How long it lasted, or has lasted by an instant."""
        return (until_ms if self.end_ms is None else self.end_ms) - self.begin_ms

    def overlaps(self, since_ms: int, until_ms: int) -> bool:
        return self.begin_ms <= until_ms and (self.end_ms is None or self.end_ms > since_ms)


def broker_outages(sessions: Iterable[Session], since_ms: int, until_ms: int) -> list[Outage]:
    """Outages of brokers, broker names and clusters that overlap a time, by begin.

    A broker that had gone before and did not come back is not among them: see ``gone_before``.

    Args:
        sessions: All that overlap the time, and each broker's last before.
        since_ms: Epoch milliseconds.
        until_ms: Epoch milliseconds.
    """
    sessions = list(sessions)
    found: list[Outage] = []
    for key, own in by_broker(sessions).items():
        for last, end_ms in _gaps(own):
            if last.down_ms is not None and (last.down_ms > since_ms or end_ms is not None):
                found.append(_outage(Scope.BROKER, last, end_ms, key.broker_name, 1))
    found += _of_groups(Scope.BROKER_NAME, sessions, lambda s: (s.cluster, s.broker_name))
    found += _of_groups(Scope.CLUSTER, sessions, lambda s: (s.cluster, s.cluster))
    return sorted(
        (outage for outage in found if outage.overlaps(since_ms, until_ms)),
        key=lambda o: (o.begin_ms, list(Scope).index(o.scope), o.name, o.broker_addr or ""),
    )


def gone_before(sessions: Iterable[Session], since_ms: int) -> int:
    """How many brokers had gone by an instant and did not come back."""
    lasts = (own[-1] for own in by_broker(sessions).values())
    return sum(last.down_ms is not None and last.down_ms <= since_ms for last in lasts)


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
    scope: Scope, sessions: Sequence[Session], group_of: Callable[[Session], tuple[str, str]]
) -> Iterator[Outage]:
    groups: dict[tuple[str, str], list[Session]] = {}
    for session in sessions:
        groups.setdefault(group_of(session), []).append(session)
    for (_, name), own in groups.items():
        brokers = len({session.key for session in own})
        if brokers > 1:
            for last, end_ms in _gaps(own):
                yield _outage(scope, last, end_ms, name, brokers)


def _gaps(sessions: Sequence[Session]) -> Iterator[tuple[Session, int | None]]:
    """The times between sessions: the one that ended last before, and when the next began."""
    last: Session | None = None
    for session in sorted(sessions, key=lambda s: s.up_ms):
        if last is not None and last.down_ms is not None and session.up_ms > last.down_ms:
            yield last, session.up_ms
        if last is None or (last.down_ms is not None and (session.down_ms is None or session.down_ms > last.down_ms)):
            last = session
    if last is not None and last.down_ms is not None:
        yield last, None


def _outage(scope: Scope, last: Session, end_ms: int | None, name: str, brokers: int) -> Outage:
    addr = last.broker_addr if scope is Scope.BROKER else None
    cause = last.down_cause or ""
    return Outage(scope, last.cluster, name, addr, last.down_ms or 0, end_ms, cause, last.down_detail, brokers)
