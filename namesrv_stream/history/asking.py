"""From what is asked to the answer, and to its picture."""

from dataclasses import dataclass, replace
from pathlib import Path

from namesrv_stream.errors import NotInHistory
from namesrv_stream.history import questions
from namesrv_stream.history.answer import Answer
from namesrv_stream.history.past import Past
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
    past, asked = Past(settings), question.window
    known = _known_part(past, asked)
    answer = _answer(settings, past, replace(question, window=known))
    notes = list(answer.notes)
    if asked.since_ms < known.since_ms:
        notes.append(f"the history begins at {instant(known.since_ms)}")
    return replace(answer, notes=(*notes, *past.extent.notes(asked.until_ms)))


def _known_part(past: Past, asked: Window) -> Window:
    """What the history knows of a time: nothing before its begin, nor of now that who was up has stayed so.

    Raises:
        NotInHistory: It knows nothing of it.
    """
    past.check_covers(asked.until_ms)
    begin_ms, reaches_ms = past.extent.begin_ms or 0, past.extent.reaches_ms
    known = Window(max(asked.since_ms, begin_ms), min(asked.until_ms, reaches_ms))
    if known.since_ms >= known.until_ms:
        raise NotInHistory(past.extent.nothing_after(known.since_ms))
    return known


def _answer(settings: Settings, past: Past, question: Question) -> Answer:
    window = question.window
    if question.topic is not None:
        answer, story = questions.ask_topic(past, question.topic, window)
        if question.plot is not None:
            from namesrv_stream.history.topic_plot import plot_topic

            plot_topic(story, question.plot)
        return questions.ask_topic_outages(past, story) if question.outages else answer
    answer = _answer_of_brokers(past, question)
    if question.plot is not None:
        # Pictures alone need a plotting library, which takes a second to import.
        from namesrv_stream.history.broker_plot import plot_broker, plot_brokers

        if question.broker is not None:
            known = past.default_timeouts(window.until_ms - 1, window.until_ms)
            timeout_ms = known[-1][1] if known else settings.liveness.default_timeout_ms
            plot_broker(past, settings, question.broker, timeout_ms, window, question.plot)
        else:
            plot_brokers(past, question.cluster, window, question.plot)
    return answer


def _answer_of_brokers(past: Past, question: Question) -> Answer:
    if question.broker is not None:
        return questions.ask_broker(past, question.broker, question.window)
    if question.flaps:
        return questions.ask_flaps(past, question.cluster, question.window)
    if question.outages:
        return questions.ask_outages(past, question.cluster, question.window)
    return questions.ask_brokers(past, question.cluster, question.window)
