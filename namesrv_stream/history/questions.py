"""The questions of ``namesrv-stream history``, each answered with tables."""

from dataclasses import replace

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history.answer import Answer, Section
from namesrv_stream.history.availability import availabilities
from namesrv_stream.history.broker_changes import broker_changes
from namesrv_stream.history.flaps import flappings
from namesrv_stream.history.outages import broker_outages, gone_before, topic_outages
from namesrv_stream.history.past import Past
from namesrv_stream.history.sections import (
    broker_changes_section,
    brokers_section,
    flaps_section,
    outages_section,
    sessions_section,
    topic_changes_section,
)
from namesrv_stream.history.sessions import Session, sessions_between
from namesrv_stream.history.topic_changes import TopicStory, topic_story, totals_of
from namesrv_stream.history.window import Window
from namesrv_stream.instants import instant
from namesrv_stream.plurals import counted, plural


def ask_broker(past: Past, broker_name: str, window: Window) -> Answer:
    """Its sessions and its changes; blocks.

    Raises:
        NotInHistory: There was no such broker in that time.
        TableSchemaMismatch: The tables cannot be read.
    """
    found = sessions_between(past, window.since_ms, window.until_ms, broker_name=broker_name)
    if not found:
        raise NotInHistory(f"the history knows no broker {broker_name}{_known_from(past)}")
    changes = broker_changes(past, broker_name, window.since_ms, window.until_ms)
    within = sessions_section(_within(found, window), window)
    answer = _answer(past, window, within, broker_changes_section(changes), notes=_gone_notes(found, window))
    return replace(answer, counted_to_ms=past.all_counted_to_ms(window.until_ms))


def ask_topic(past: Past, topic: str, window: Window) -> tuple[Answer, TopicStory]:
    """Each change of its route; blocks.

    Raises:
        NotInHistory: There was no such topic by then.
        TableSchemaMismatch: The tables cannot be read.
    """
    story = topic_story(past, topic, window.since_ms, window.until_ms)
    if story is None:
        raise NotInHistory(f"the history knows no topic {topic}{_known_from(past)}")
    brokers = totals_of(story.first.values()).brokers
    began = f"at the begin {counted(brokers, 'broker') if brokers else 'no broker'} served it"
    return _answer(past, window, topic_changes_section(story), notes=(began,)), story


def ask_topic_outages(past: Past, story: TopicStory) -> Answer:
    """When brokers, or all of them, were not in a topic's route any more."""
    window = Window(story.since_ms, story.until_ms)
    return _answer(past, window, outages_section(topic_outages(story), window))


def ask_brokers(past: Past, cluster: str | None, window: Window) -> Answer:
    """How available each broker was; blocks.

    Raises:
        NotInHistory: There was no such cluster, or no broker, in that time.
        TableSchemaMismatch: The tables cannot be read.
    """
    found = sessions_of(past, cluster, window)
    section = brokers_section(availabilities(found, window.since_ms, window.until_ms))
    answer = _answer(past, window, section, notes=_gone_notes(found, window))
    return replace(answer, counted_to_ms=past.all_counted_to_ms(window.until_ms))


def ask_flaps(past: Past, cluster: str | None, window: Window) -> Answer:
    """How often each broker went and came back, the worst first; blocks.

    Raises:
        NotInHistory: There was no such cluster, or no broker, in that time.
        TableSchemaMismatch: The tables cannot be read.
    """
    found = sessions_of(past, cluster, window)
    return _answer(past, window, flaps_section(flappings(found, window.since_ms, window.until_ms)))


def ask_outages(past: Past, cluster: str | None, window: Window) -> Answer:
    """When brokers, and all of a broker name or cluster, were gone; blocks.

    Raises:
        NotInHistory: There was no such cluster, or no broker, in that time.
        TableSchemaMismatch: The tables cannot be read.
    """
    found = sessions_of(past, cluster, window)
    section = outages_section(broker_outages(found, window.since_ms, window.until_ms), window)
    return _answer(past, window, section, notes=_gone_notes(found, window))


def sessions_of(past: Past, cluster: str | None, window: Window) -> list[Session]:
    """All sessions of a time, and each process's first and last before.

    Raises:
        NotInHistory: There was no such cluster, or no broker.
        TableSchemaMismatch: The tables cannot be read.
    """
    found = sessions_between(past, window.since_ms, window.until_ms, cluster=cluster)
    if not found:
        what = "no broker" if cluster is None else f"no cluster {cluster}"
        raise NotInHistory(f"the history knows {what}{_known_from(past)}")
    return found


def _answer(past: Past, window: Window, *sections: Section, notes: tuple[str, ...] = ()) -> Answer:
    return Answer(window.since_ms, window.until_ms, sections, past.extent, notes)


def _within(sessions: list[Session], window: Window) -> list[Session]:
    return [s for s in sessions if s.down_ms is None or s.down_ms > window.since_ms]


def _known_from(past: Past) -> str:
    begin_ms = past.extent.begin_ms
    return "" if begin_ms is None else f"; it begins at {instant(begin_ms)}"


def _gone_notes(sessions: list[Session], window: Window) -> tuple[str, ...]:
    count = gone_before(sessions, window.since_ms)
    if not count:
        return ()
    return (
        f"{count} more had gone before and did not come back; a longer --since shows {plural(count, 'it', 'them')}",
    )
