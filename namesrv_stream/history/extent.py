"""The time that the tables cover, and notes for people about what they do not cover."""

from dataclasses import dataclass
from typing import Final

from namesrv_stream.instants import instant
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import NotInHistory

#: The job commits about once a second. A delay up to this limit needs no note.
_USUAL_LAG_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Window:
    """The period of a question, in epoch milliseconds."""

    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The time that the tables cover, in epoch milliseconds.

    Attributes:
        begin_ms: Start of the time that is completely covered; None if there are no rows.
        stored_to_ms: Time up to which the history tables are complete; ``route_changes`` has the rest. 0 if they are
            empty.
        reaches_ms: Time up to which ``route_changes``, and therefore every answer, is complete, by the job's clock.
        lost_until_ms: End of the lost changes after ``stored_to_ms``, if changes were removed before the history had
            read them; otherwise None.
    """

    begin_ms: int | None
    stored_to_ms: int
    reaches_ms: int
    lost_until_ms: int | None = None

    def notes(self, at_ms: int) -> list[str]:
        """Return notes for people if the tables are not complete up to a time."""
        notes = []
        if self.lost_until_ms is not None and at_ms >= self.stored_to_ms:
            begin = f"between {instant(self.stored_to_ms)} and" if self.stored_to_ms else "before"
            span = f"{begin} {instant(self.lost_until_ms)}"
            notes.append(
                f"changes {span} are lost: they were removed from route_changes before the history process ran"
            )
        if self.lags(at_ms):
            notes.append(f"{self.reach()}: later changes are not known")
        return notes

    def lags(self, at_ms: int) -> bool:
        """Whether the tables end before a time, by more than the usual delay of the job."""
        return self.reaches_ms < at_ms - _USUAL_LAG_MS

    def reach(self) -> str:
        """Return up to when all answers are complete, for people."""
        return f"the tables reach to {instant(self.reaches_ms)}"

    def known_part(self, asked: Window) -> Window:
        """Return the part of a period that the tables cover.

        Raises:
            NotInHistory: The period begins at or after the end of the tables.
        """
        known = Window(max(asked.since_ms, self.begin_ms or 0), min(asked.until_ms, self.reaches_ms))
        if known.since_ms >= known.until_ms:
            end, begin = instant(self.reaches_ms), instant(known.since_ms)
            raise NotInHistory(f"there is no data after {end}, and --since is {begin}: is the product running?")
        return known


_MINUTE_MS: Final = 60_000


def no_figures_text(settings: Settings, heard_from_ms: int, now_ms: int) -> str:
    """Return a sentence that says when heartbeat figures arrive, or that they should have arrived.

    Args:
        heard_from_ms: Start of the first broker in the period, epoch milliseconds.
    """
    # The first minute must end, and the history process must then run twice.
    minute_end_ms = (heard_from_ms // _MINUTE_MS + 1) * _MINUTE_MS
    interval_ms = max(settings.history.heartbeats_interval_ms, settings.history.interval_ms)
    due_ms = minute_end_ms + interval_ms + _MINUTE_MS
    if due_ms >= now_ms:
        return f"the first heartbeat figures arrive by {instant(due_ms)}"
    return f"no heartbeat figures of this time, due by {instant(due_ms)}: does the history process run?"
