"""The questions of ``namesrv-stream history``, each answered with rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.answer import Answer, Column, Section, at_column, duration_column, number_column
from namesrv_stream.history.availability import availabilities
from namesrv_stream.history.broker_changes import BrokerChange, broker_changes
from namesrv_stream.history.flaps import flappings
from namesrv_stream.history.instants import instant
from namesrv_stream.history.outages import Outage, broker_outages, gone_before, topic_outages
from namesrv_stream.history.route_history import RouteHistory
from namesrv_stream.history.sessions import Session, Sessions
from namesrv_stream.history.topic_changes import TopicStory, describe, topic_story, totals_of
from namesrv_stream.route.lease import LeaseKey

_CLUSTER, _NAME, _ADDR = Column("cluster", "cluster"), Column("broker_name", "broker"), Column("broker_addr", "address")
_CAUSE, _DETAIL = Column("cause", "cause"), Column("detail", "detail", is_text=True)
_CHANGE = Column("change", "change", is_text=True)
_PARTITION, _OFFSET = Column("partition", "part", justify="right"), Column("offset", "offset", justify="right")


@dataclass(frozen=True, slots=True)
class Window:
    """The time that is asked about; epoch milliseconds."""

    since_ms: int
    until_ms: int


def ask_broker(history: RouteHistory, sessions: Sessions, broker_name: str, window: Window) -> Answer:
    """Its sessions and its changes; blocks.

    Raises:
        NotInHistory: There was no such broker in that time.
        TableSchemaMismatch: The tables cannot be read.
    """
    found = sessions.between(window.since_ms, window.until_ms, broker_name=broker_name, with_earlier=True)
    if not found:
        raise NotInHistory(f"the history knows no broker {broker_name}{_known_from(history)}")
    within = [s for s in found if s.down_ms is None or s.down_ms > window.since_ms]
    changes = broker_changes(history, broker_name, window.since_ms, window.until_ms)
    notes = _gone_notes(gone_before(found, window.since_ms))
    sections = (_sessions_section(within, window), _changes_section(changes))
    return Answer(window.since_ms, window.until_ms, sections, history.extent, notes)


def ask_topic(history: RouteHistory, topic: str, window: Window) -> tuple[Answer, TopicStory]:
    """Each change of its route; blocks.

    Raises:
        NotInHistory: There was no such topic by then.
        TableSchemaMismatch: The tables cannot be read.
    """
    story = topic_story(history, topic, window.since_ms, window.until_ms)
    if story is None:
        raise NotInHistory(f"the history knows no topic {topic}{_known_from(history)}")
    rows = [
        {
            "at_ms": change.at_ms,
            "change": ", ".join(describe(offer) for offer in change.offers),
            "cause": " ".join(dict.fromkeys(offer.reason.cause for offer in change.offers)),
            "detail": "; ".join(dict.fromkeys(o.reason.detail for o in change.offers if o.reason.detail)) or None,
            "brokers": change.totals.brokers,
            "write_queues": change.totals.write_queues,
            "read_queues": change.totals.read_queues,
            "partition": change.offers[0].reason.partition,
            "offset": change.offers[0].reason.offset,
        }
        for change in story.changes
    ]
    columns = (
        *(at_column("at_ms", "at"), _CHANGE, _CAUSE, _DETAIL, number_column("brokers", "brokers")),
        *(number_column("write_queues", "write queues"), number_column("read_queues", "read queues")),
        *(_PARTITION, _OFFSET),
    )
    began = f"{totals_of(story.first.values()).brokers or 'no'} brokers served it at the begin"
    section = Section("changes", f"changes of the route of {topic}", columns, rows, lambda row: not row["brokers"])
    return Answer(window.since_ms, window.until_ms, (section,), history.extent, (began,)), story


def ask_brokers(history: RouteHistory, sessions: Sessions, cluster: str | None, window: Window) -> Answer:
    """How available each broker was; blocks.

    Raises:
        NotInHistory: There was no such cluster, or no broker, in that time.
        TableSchemaMismatch: The tables cannot be read.
    """
    found = _of_cluster(history, sessions, cluster, window)
    rows = [
        {
            **_key(a.key),
            "broker_id": a.broker_id,
            "availability": a.share,
            "downs": a.downs,
            "mttr_ms": a.mttr_ms,
            "heartbeats": a.heartbeats,
            "longest_gap_ms": a.longest_gap_ms,
            "state": "up" if a.is_up else "down",
            "down_cause": a.down_cause,
        }
        for a in availabilities(found, window.since_ms, window.until_ms)
    ]
    columns = (
        *(_CLUSTER, _NAME, _ADDR, Column("broker_id", "id", justify="right"), Column("state", "now")),
        *(number_column("availability", "available", percent), number_column("downs", "downs")),
        *(duration_column("mttr_ms", "back after (mean)"), number_column("heartbeats", "heartbeats")),
        *(duration_column("longest_gap_ms", "longest gap"), Column("down_cause", "went last by")),
    )
    section = Section("brokers", "brokers", columns, rows, lambda row: row["state"] == "down")
    notes = _gone_notes(gone_before(found, window.since_ms))
    return Answer(window.since_ms, window.until_ms, (section,), history.extent, notes)


def ask_flaps(history: RouteHistory, sessions: Sessions, cluster: str | None, window: Window) -> Answer:
    """How often each broker went and came back, the worst first; blocks.

    Raises:
        NotInHistory: There was no such cluster, or no broker, in that time.
        TableSchemaMismatch: The tables cannot be read.
    """
    found = [
        s for s in _of_cluster(history, sessions, cluster, window) if s.down_ms is None or s.down_ms > window.since_ms
    ]
    rows = [
        {
            **_key(f.key),
            "downs": f.downs,
            "returns": f.returns,
            "causes": dict(f.causes),
            "median_down_ms": f.median_down_ms,
            "peak_score": round(f.peak_score, 3),
            "score": round(f.score, 3),
            "flapping": f.is_flapping,
            "state": "up" if f.is_up else "down",
        }
        for f in flappings(found, window.since_ms, window.until_ms)
    ]
    columns = (
        *(_CLUSTER, _NAME, _ADDR, Column("state", "now"), number_column("downs", "downs")),
        *(number_column("returns", "returns"), duration_column("median_down_ms", "back after (median)")),
        *(number_column("peak_score", "peak score", "{:.2f}".format), number_column("score", "score", "{:.2f}".format)),
        *(
            Column("flapping", "flapping", lambda yes: "yes" if yes else ""),
            Column("causes", "causes", _counts, is_text=True),
        ),
    )
    section = Section("flaps", "brokers by how much they flapped", columns, rows, lambda row: bool(row["flapping"]))
    return Answer(window.since_ms, window.until_ms, (section,), history.extent)


def ask_outages(history: RouteHistory, sessions: Sessions, cluster: str | None, window: Window) -> Answer:
    """When brokers, and all of a broker name or cluster, were gone; blocks.

    Raises:
        NotInHistory: There was no such cluster, or no broker, in that time.
        TableSchemaMismatch: The tables cannot be read.
    """
    known = _of_cluster(history, sessions, cluster, window)
    found = broker_outages(known, window.since_ms, window.until_ms)
    notes = _gone_notes(gone_before(known, window.since_ms))
    return Answer(window.since_ms, window.until_ms, (_outages_section(found, window),), history.extent, notes)


def ask_topic_outages(history: RouteHistory, story: TopicStory) -> Answer:
    """When brokers, or all of them, were not in a topic's route any more."""
    window = Window(story.since_ms, story.until_ms)
    section = _outages_section(topic_outages(story), window)
    return Answer(window.since_ms, window.until_ms, (section,), history.extent)


def percent(share: float) -> str:
    """Enough digits to tell three nines from five."""
    return "100%" if share == 1 else f"{share * 100:.3f}%"


def _of_cluster(history: RouteHistory, sessions: Sessions, cluster: str | None, window: Window) -> list[Session]:
    found = sessions.between(window.since_ms, window.until_ms, cluster=cluster, with_earlier=True)
    if not found:
        what = "no broker" if cluster is None else f"no cluster {cluster}"
        raise NotInHistory(f"the history knows {what}{_known_from(history)}")
    return found


def _known_from(history: RouteHistory) -> str:
    begin_ms = history.extent.begin_ms
    return "" if begin_ms is None else f"; it begins at {instant(begin_ms)}"


def _gone_notes(count: int) -> tuple[str, ...]:
    if not count:
        return ()
    return (f"{count} more had gone before and did not come back; a longer --since shows them",)


def _sessions_section(sessions: Iterable[Session], window: Window) -> Section:
    rows = [
        {
            **_key(s.key),
            "broker_id": s.broker_id,
            "up_ms": s.up_ms,
            "down_ms": s.down_ms,
            "duration_ms": s.length_ms(window.until_ms),
            "up_cause": s.up_cause,
            "cause": s.down_cause,
            "detail": s.down_detail,
            "heartbeats": s.heartbeats,
            "longest_gap_ms": s.longest_gap_ms,
            "timeout_ms": s.timeout_ms,
            "last_heard_ms": s.last_heard_ms,
            "partition": s.partition,
            "offset": s.offset,
        }
        for s in sessions
    ]
    columns = (
        *(_ADDR, Column("broker_id", "id", justify="right"), at_column("up_ms", "up"), Column("up_cause", "by")),
        *(at_column("down_ms", "down"), Column("cause", "by"), duration_column("duration_ms", "for")),
        *(number_column("heartbeats", "heartbeats"), duration_column("longest_gap_ms", "longest gap")),
        *(duration_column("timeout_ms", "timeout"), _DETAIL, Column("partition", "part", is_for_scripts=True)),
        Column("offset", "offset", is_for_scripts=True),
    )
    return Section("sessions", "sessions", columns, rows, lambda row: row["down_ms"] is not None)


def _changes_section(changes: Sequence[BrokerChange]) -> Section:
    rows = [
        {
            "at_ms": c.reason.at_ms,
            "change": ", ".join(c.what),
            "cause": c.reason.cause,
            "detail": c.reason.detail,
            "partition": c.reason.partition,
            "offset": c.reason.offset,
        }
        for c in changes
    ]
    columns = (at_column("at_ms", "at"), _CHANGE, _CAUSE, _DETAIL, _PARTITION, _OFFSET)
    return Section("changes", "changes", columns, rows)


def _outages_section(outages: Iterable[Outage], window: Window) -> Section:
    columns = (
        *(
            Column("scope", "what", lambda scope: str(scope).replace("_", " ")),
            _CLUSTER,
            Column("name", "name"),
            _ADDR,
            at_column("begin_ms", "from"),
        ),
        *(at_column("end_ms", "to"), duration_column("duration_ms", "for"), number_column("brokers", "brokers")),
        *(_CAUSE, _DETAIL),
    )
    rows = [_outage_row(outage, window.until_ms) for outage in outages]
    return Section("outages", "outages", columns, rows, lambda row: row["end_ms"] is None)


def _outage_row(outage: Outage, until_ms: int) -> dict[str, Any]:
    return {
        "scope": outage.scope.value,
        "cluster": outage.cluster,
        "name": outage.name,
        "broker_addr": outage.broker_addr,
        "begin_ms": outage.begin_ms,
        "end_ms": outage.end_ms,
        "duration_ms": outage.length_ms(until_ms),
        "brokers": outage.brokers or None,
        "cause": outage.cause,
        "detail": outage.detail,
    }


def _key(key: LeaseKey) -> dict[str, Any]:
    return {
        "cluster": key.live_key.cluster,
        "broker_name": key.broker_name,
        "broker_addr": key.live_key.broker_addr,
    }


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {cause}" for cause, count in sorted(counts.items(), key=lambda item: -item[1]))
