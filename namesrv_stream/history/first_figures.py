"""When the first heartbeat figures arrive, for those who ask before."""

from typing import Final

from namesrv_stream.instants import instant
from namesrv_stream.settings import Settings

_MINUTE_MS: Final = 60_000


def no_figures_text(settings: Settings, heard_from_ms: int, now_ms: int) -> str:
    """A sentence that says when heartbeat figures arrive, or that they should have arrived.

    Args:
        settings: Ours.
        heard_from_ms: When the first broker of the time came up, epoch milliseconds.
        now_ms: Epoch milliseconds.
    """
    # The first minute has to end, and the history process to come by twice.
    minute_end_ms = (heard_from_ms // _MINUTE_MS + 1) * _MINUTE_MS
    interval_ms = max(settings.history.heartbeats_interval_ms, settings.history.interval_ms)
    due_ms = minute_end_ms + interval_ms + _MINUTE_MS
    if due_ms >= now_ms:
        return f"the first heartbeat figures arrive by {instant(due_ms)}"
    return f"no heartbeat figures of this time, due by {instant(due_ms)}: does the history process run?"
