"""From what is asked to the answer, and to its picture."""

from dataclasses import dataclass, replace
from pathlib import Path

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history import questions
from namesrv_stream.history.answer import Answer
from namesrv_stream.history.route_history import RouteHistory
from namesrv_stream.history.sessions import Sessions
from namesrv_stream.history.window import Window
from namesrv_stream.instants import instant
from namesrv_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked; of broker and topic one at most.

    Attributes:
        cluster: Only of this cluster.
        flaps: How often brokers went and came back.
        outages: When something was gone.
        plot: Where to put a picture of it.
    """

    window: Window
    broker: str | None = None
    topic: str | None = None
    cluster: str | None = None
    flaps: bool = False
    outages: bool = False
    plot: Path | None = None


def ask(settings: Settings, question: Question) -> Answer:
    """Answer it, and draw it where a picture is wanted; blocks.

    Raises:
        NotInHistory: The history does not have it.
        TableSchemaMismatch: A table is damaged, or not as this version of the code expects.
        ConfigError: The picture cannot be written.
    """
    history, asked = RouteHistory.open(settings), question.window
    known = _known_part(history, asked)
    answer = _answer(settings, history, replace(question, window=known))
    notes = list(answer.notes)
    if asked.since_ms < known.since_ms:
        notes.append(f"the history begins at {instant(known.since_ms)}")
    return replace(answer, notes=(*notes, *history.extent.notes(asked.until_ms)))


def _known_part(history: RouteHistory, asked: Window) -> Window:
    """What the history knows of a time: nothing before its begin, nor of now that who was up has stayed so.

    Raises:
        NotInHistory: It knows nothing of it.
    """
    history.check_covers(asked.until_ms)
    begin_ms, reaches_ms = history.extent.begin_ms or 0, history.extent.reaches_ms
    known = Window(max(asked.since_ms, begin_ms), min(asked.until_ms, reaches_ms))
    if known.since_ms >= known.until_ms:
        raise NotInHistory(history.extent.nothing_after(known.since_ms))
    return known


def _answer(settings: Settings, history: RouteHistory, question: Question) -> Answer:
    window = question.window
    if question.topic is not None:
        answer, story = questions.ask_topic(history, question.topic, window)
        if question.plot is not None:
            from namesrv_stream.history.topic_plot import plot_topic

            plot_topic(story, question.plot)
        return questions.ask_topic_outages(history, story) if question.outages else answer
    sessions = Sessions.open(settings)
    answer = _answer_of_brokers(history, sessions, question)
    if question.plot is not None:
        # Pictures alone need a plotting library, which takes a second to import.
        from namesrv_stream.history.broker_plot import plot_broker, plot_brokers

        if question.broker is not None:
            timeout_ms = history.default_timeout_ms(window.until_ms) or settings.liveness.default_timeout_ms
            plot_broker(settings, sessions, question.broker, timeout_ms, window, question.plot)
        else:
            plot_brokers(sessions, question.cluster, window, question.plot)
    return answer


def _answer_of_brokers(history: RouteHistory, sessions: Sessions, question: Question) -> Answer:
    if question.broker is not None:
        return questions.ask_broker(history, sessions, question.broker, question.window)
    if question.flaps:
        return questions.ask_flaps(history, sessions, question.cluster, question.window)
    if question.outages:
        return questions.ask_outages(history, sessions, question.cluster, question.window)
    return questions.ask_brokers(history, sessions, question.cluster, question.window)
