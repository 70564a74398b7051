"""The brokers: each with its heartbeat's age against its own timeout, and the dead with why they are dead."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from namesrv_stream.clock import Clock
from namesrv_stream.instants import duration
from namesrv_stream.server.fleet import Broker
from namesrv_stream.server.http.console.look import Picked
from namesrv_stream.server.http.console.question import SHOWN, STATES, Question, Tone
from namesrv_stream.server.http.console.words import WHY_ENDED, ago, clock_time, cut, iso, role
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.story import Story

#: Standing → its word on the card and its tone.
_WORDS: Final[dict[str, tuple[str, Tone]]] = {
    "alive": ("alive", "good"),
    "late": ("late", "warn"),
    "held": ("held", "warn"),
    "gone": ("gone", "bad"),
    "left": ("left", "calm"),
    "replaced": ("replaced", "calm"),
    "unknown": ("age unknown", "calm"),
}


class Card(NamedTuple):
    """A broker as it is shown.

    Attributes:
        age_ms: None where there is no bar.
        share: Of its timeout that has passed, percent, at most 100.
        lines: What there is to say, the most urgent first: texts, and instants (epoch milliseconds) where known.
    """

    name: str
    role: str
    cluster: str
    addr: str
    standing: str
    word: str
    tone: Tone
    age_ms: int | None
    timeout_ms: int
    share: float
    lines: Sequence[str]
    ended: str
    ended_iso: str


async def cards(
    picked: Picked,
    question: Question,
    *,
    story: Story,
    clock: Clock,
    steps: Steps,
) -> dict[str, Any]:
    """What the template ``brokers`` shows."""
    now_ms = clock.now_ms()
    shown: list[Card] = []
    async for some in steps.lists(_card(how, broker, story, now_ms) for how, broker in picked.brokers):
        shown += some
    larger = next((name for name, most in SHOWN.items() if most > SHOWN[question.shown]), None)
    total = picked.count(question.state)
    left_out = total - len(picked.brokers)
    return {
        "cards": shown,
        "total": total,
        "left_out": left_out,
        "more": larger if left_out else None,
        "states": [(state, word, picked.count(state)) for state, word in STATES.items()],
        "failure": story.failure,
    }


def _card(how: str, broker: Broker, story: Story, now_ms: int) -> Card:
    word, tone = _WORDS[how]
    age_ms, after_ms = broker.age_ms, broker.expires_after_ms
    ended = broker.ended
    return Card(
        cut(broker.key.broker_name),
        role(broker.broker_id) if ended is None or broker.broker_id is not None else "",
        cut(broker.key.live_key.cluster),
        cut(broker.key.live_key.broker_addr),
        how,
        word,
        tone,
        age_ms,
        after_ms,
        0.0 if age_ms is None else min(100.0, 100 * age_ms / after_ms),
        [cut(line) for line in _lines(broker, story, now_ms)],
        "" if ended is None else f"{clock_time(ended.at_ms)}, {ago(now_ms - ended.at_ms)}",
        "" if ended is None else iso(ended.at_ms),
    )


def _lines(broker: Broker, story: Story, now_ms: int) -> list[str]:
    lines, after = [], duration(broker.expires_after_ms)
    if broker.ended is not None:
        lines.append(WHY_ENDED.get(broker.ended.cause, broker.ended.cause))
        if broker.replaced_by:
            lines.append(f"back at {broker.replaced_by}")
        if broker.ended.detail:
            lines.append(broker.ended.detail)
        lines.append(f"partition {broker.ended.partition} offset {broker.ended.offset}")
    if broker.held is not None:
        hold = broker.held
        lines.append(f"{hold.reason}; {hold.ending:,} of {hold.brokers:,} brokers seemed to end at once")
        lines.append(f"goes with {hold.goes_with.replace('_', ' ')} at {clock_time(hold.until_ms)} or later")
    if broker.ended is None and broker.age_ms is None:
        others = ", ".join(broker.servers)
        lines.append(f"not heard by this server since its start; heard by {others}; expires after {after} unheard")
    came_ms, downs = story.came_ms(broker.key), story.downs(broker.key)
    if broker.ended is None and broker.age_ms is not None:
        count = len(broker.servers)
        up = "up for more than a day" if came_ms is None else f"up for {duration(max(0, now_ms - came_ms))}"
        hear = "1 server hears it" if count == 1 else f"{count} servers hear it"
        lines.append("; ".join([up, hear] + ["a timeout of its own"] * (broker.timeout_ms is not None)))
    if downs > (broker.ended is not None):
        lines.append(f"went {'once' if downs == 1 else f'{downs:,} times'} in the last day")
    return lines
