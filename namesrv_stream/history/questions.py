"""The questions of ``namesrv-stream history``. Each is answered with tables, and optionally with a plot."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from namesrv_stream.history.answer import Answer, Section, Window
from namesrv_stream.history.answer_tables import (
    broker_changes_section,
    brokers_section,
    flaps_section,
    outages_section,
    sessions_section,
    topic_changes_section,
)
from namesrv_stream.history.database import Past
from namesrv_stream.history.past_route import set_topic
from namesrv_stream.history.plots import plot_broker, plot_brokers, plot_topic
from namesrv_stream.history.sessions import known_from, set_period
from namesrv_stream.instants import instant
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory
from namesrv_stream.text_table import counted, plural


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a broker name, a topic, or all brokers.

    Attributes:
        window: The period.
        broker: A broker name; None for no particular one.
        topic: A topic; None for no particular one.
        cluster: Only this cluster; None for all.
        flaps: Whether to answer how often brokers went down and came back.
        outages: Whether to answer when brokers, whole broker names or clusters, or the topic were down.
        plot: File of a plot; None for no plot.
    """

    window: Window
    broker: str | None = None
    topic: str | None = None
    cluster: str | None = None
    flaps: bool = False
    outages: bool = False
    plot: Path | None = None


def answer_question(settings: Settings, question: Question) -> Answer:
    """Answer a question, and write its plot; blocks.

    Raises:
        NotInHistory: The history does not have the broker, topic, cluster or period.
        TableSchemaMismatch: A table is damaged or has an unexpected schema.
        StoreUnreachable: The object store does not answer.
        ConfigError: The plot cannot be written.
    """
    past, requested = Past(settings), question.window
    past.check_covers(requested.until_ms)
    known = past.extent.known_part(requested)
    answer = _answer(settings, past, replace(question, window=known))
    notes = list(answer.notes)
    if requested.since_ms < known.since_ms:
        notes.append(f"the history begins at {instant(known.since_ms)}")
    return replace(answer, notes=(*notes, *past.extent.notes(requested.until_ms)))


def _answer(settings: Settings, past: Past, question: Question) -> Answer:
    if question.topic is not None:
        return _of_topic(past, question.topic, question)
    set_period(past, question.window, cluster=question.cluster, broker_name=question.broker)
    if question.broker is not None:
        answer = _of_broker(past, question.broker, question.window)
    else:
        answer = _of_brokers(past, question)
    if question.plot is not None:
        if question.broker is not None:
            plot_broker(past, settings, question.broker, question.window, question.plot)
        else:
            plot_brokers(past, question.cluster, question.window, question.plot)
    return answer


def _of_topic(past: Past, topic: str, question: Question) -> Answer:
    """Return the changes of a topic's route, or its outages."""
    window = question.window
    if not set_topic(past, topic, window):
        raise NotInHistory(f"the history contains no topic {topic}{known_from(past)}")
    if question.plot is not None:
        plot_topic(past, topic, window, question.plot)
    if question.outages:
        section = outages_section(past.rows("topic_outages", topic=topic, until_ms=window.until_ms))
        return Answer(window.since_ms, window.until_ms, [section], past.extent)
    first, *changes = past.rows("topic_changes", since_ms=window.since_ms)
    brokers = first["brokers"]
    began = f"{counted(brokers, 'broker') if brokers else 'no broker'} served this topic at the start of the period"
    return Answer(window.since_ms, window.until_ms, [topic_changes_section(topic, changes)], past.extent, (began,))


def _of_broker(past: Past, broker_name: str, window: Window) -> Answer:
    """Return sessions and changes of a broker name."""
    changes = past.rows("broker_changes", broker_name=broker_name, **asdict(window))
    sections = sessions_section(past.rows("period_sessions")), broker_changes_section(changes)
    return _answer_of(past, window, *sections, counts_heartbeats=True)


def _of_brokers(past: Past, question: Question) -> Answer:
    """Return flapping, outages or availability of brokers."""
    if question.flaps:
        return replace(_answer_of(past, question.window, flaps_section(past.rows("flaps"))), notes=())
    if question.outages:
        return _answer_of(past, question.window, outages_section(past.rows("outages")))
    rows = past.rows("brokers", objective=None)
    return _answer_of(past, question.window, brokers_section(rows), counts_heartbeats=True)


def _answer_of(past: Past, window: Window, *sections: Section, counts_heartbeats: bool = False) -> Answer:
    counted_to_ms = past.all_counted_to_ms(window.until_ms) if counts_heartbeats else None
    notes = _gone_notes(past)
    if counts_heartbeats and counted_to_ms is None:
        notes = (*notes, "no heartbeats are counted yet")
    return Answer(window.since_ms, window.until_ms, sections, past.extent, notes, counted_to_ms)


def _gone_notes(past: Past) -> tuple[str, ...]:
    (row,) = past.rows("gone_before")
    count = row["brokers"]
    if not count:
        return ()
    return (
        f"{count} more went down before and did not come back; a longer --since shows {plural(count, 'it', 'them')}",
    )
