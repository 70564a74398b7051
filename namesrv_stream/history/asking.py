"""From what is asked to the answer, and to its picture."""

from dataclasses import dataclass, replace
from pathlib import Path

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history import questions
from namesrv_stream.history.answer import Answer
from namesrv_stream.history.instants import instant
from namesrv_stream.history.questions import Window
from namesrv_stream.history.route_history import RouteHistory
from namesrv_stream.history.sessions import Sessions
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
    # Of what came after that nothing is known: not even that who was up stayed so.
    window = Window(asked.since_ms, min(asked.until_ms, history.extent.reaches_ms))
    if window.since_ms >= window.until_ms:
        raise NotInHistory(f"{history.extent.reach()}, which is before {instant(asked.since_ms)}")
    answer = _answer(settings, history, replace(question, window=window))
    return replace(answer, notes=(*answer.notes, *history.extent.notes(asked.until_ms)))


def _answer(settings: Settings, history: RouteHistory, question: Question) -> Answer:
    window = question.window
    if question.topic is not None:
        answer, story = questions.ask_topic(history, question.topic, window)
        if question.plot is not None:
            from namesrv_stream.history.topic_plot import plot_topic

            plot_topic(story, question.plot)
        return questions.ask_topic_outages(history, story) if question.outages else answer
    sessions = Sessions.open(settings)
    if question.plot is not None:
        # Pictures alone need a plotting library, which takes a second to import.
        from namesrv_stream.history.broker_plot import plot_broker, plot_brokers

        if question.broker is not None:
            timeout_ms = history.default_timeout_ms(window.until_ms) or settings.liveness.default_timeout_ms
            plot_broker(settings, sessions, question.broker, timeout_ms, window, question.plot)
        else:
            plot_brokers(sessions, question.cluster, window, question.plot)
    if question.broker is not None:
        return questions.ask_broker(history, sessions, question.broker, window)
    if question.flaps:
        return questions.ask_flaps(history, sessions, question.cluster, window)
    if question.outages:
        return questions.ask_outages(history, sessions, question.cluster, window)
    return questions.ask_brokers(history, sessions, question.cluster, window)
