"""The brokers: each with its heartbeat's age against its own timeout, and those that ended with when and why."""

from typing import Any, Final

from namesrv_stream.clock import Clock
from namesrv_stream.instants import duration, instant
from namesrv_stream.plurals import times
from namesrv_stream.server.fleet import Broker
from namesrv_stream.server.http.console.fleet_snapshot import Picked
from namesrv_stream.server.http.console.formatting import WHY_ENDED, plain
from namesrv_stream.server.http.console.question import SHOWN, STATES, Question, Tone
from namesrv_stream.server.recent_events import RecentEvents
from namesrv_stream.server.steps import Steps

#: Status → its word on the card and its tone.
_WORDS: Final[dict[str, tuple[str, Tone]]] = {
    "alive": ("alive", "good"),
    "late": ("late", "warn"),
    "held": ("protected", "warn"),
    "gone": ("down", "bad"),
    "left": ("unregistered", "calm"),
    "replaced": ("replaced", "calm"),
    "unknown": ("age unknown", "calm"),
}


async def brokers(
    picked: Picked, question: Question, *, recent_events: RecentEvents, clock: Clock, steps: Steps
) -> dict[str, Any]:
    """What the template ``brokers`` shows."""
    now_ms = clock.now_ms()
    larger = next((name for name, most in SHOWN.items() if most > SHOWN[question.shown]), None)
    total = picked.count(question.state)
    left_out = total - len(picked.brokers)
    return {
        "cards": await steps.all(_card(status, broker, recent_events, now_ms) for status, broker in picked.brokers),
        "total": total,
        "left_out": left_out,
        "more": larger if left_out else None,
        "states": [(state, word, picked.count(state)) for state, word in STATES.items()],
        "failure": recent_events.failure,
    }


def _card(status: str, broker: Broker, recent_events: RecentEvents, now_ms: int) -> dict[str, Any]:
    word, tone = _WORDS[status]
    lines = list(_ended_lines(broker)) if broker.ended else _live_lines(broker, recent_events, now_ms)
    downs = recent_events.downs(broker.key)
    if downs > (broker.ended is not None):
        lines.append(f"went down {times(downs)} in the last day")
    return {"status": status, "word": word, "tone": tone, "broker": broker, "lines": lines}


def _ended_lines(broker: Broker) -> list[str]:
    ended = broker.ended
    assert ended is not None
    back = f"back at {broker.replaced_by}" if broker.replaced_by else None
    place = f"partition {ended.partition} offset {ended.offset}"
    return [line for line in (WHY_ENDED.get(ended.cause, ended.cause), back, ended.detail, place) if line]


def _live_lines(broker: Broker, recent_events: RecentEvents, now_ms: int) -> list[str]:
    lines = []
    if broker.held is not None:
        hold = broker.held
        lines.append(f"{hold.reason}; {hold.ending:,} of {hold.brokers:,} brokers seemed to end at once")
        lines.append(f"ends as {plain(hold.goes_with)} at {instant(hold.until_ms)} or later")
    if broker.age_ms is None:
        others, after = ", ".join(broker.servers), duration(broker.expires_after_ms)
        lines.append(f"not heard by this server since its start; heard by {others}; expires after {after} unheard")
        return lines
    count, came_ms = len(broker.servers), recent_events.came_ms(broker.key)
    up = "up for more than a day" if came_ms is None else f"up for {duration(max(0, now_ms - came_ms))}"
    hear = "1 server hears it" if count == 1 else f"{count} servers hear it"
    lines.append("; ".join([up, hear] + ["a timeout of its own"] * (broker.timeout_ms is not None)))
    return lines
