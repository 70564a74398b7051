"""The time that the tables cover, and what must be said where that is not enough."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from namesrv_stream.errors import NotInHistory
from namesrv_stream.instants import instant

#: The job commits each second or so; so much behind now, no one needs a warning.
_USUAL_LAG_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Window:
    """A time that a question is about; epoch milliseconds."""

    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The time that the tables cover; epoch milliseconds.

    Attributes:
        begin_ms: The first instant of which all is known; None where nothing is.
        stored_to_ms: Up to when the history tables have everything; ``route_changes`` has the rest. 0 where they
            have nothing yet.
        reaches_ms: To when ``route_changes`` reaches, and with it every answer, by the clock of the job.
        lost_until_ms: Where changes after ``stored_to_ms`` were removed before the history had them: until when; else
            None.
    """

    begin_ms: int | None
    stored_to_ms: int
    reaches_ms: int
    lost_until_ms: int | None = None

    def notes(self, at_ms: int) -> list[str]:
        """Notes for answers where the tables do not have everything up to an instant."""
        notes = []
        if self.lost_until_ms is not None and at_ms >= self.stored_to_ms:
            begin = f"between {instant(self.stored_to_ms)} and" if self.stored_to_ms else "before"
            span = f"{begin} {instant(self.lost_until_ms)}"
            notes.append(f"changes {span} are lost: the history process did not run until route_changes forgot them")
        if self.lags(at_ms):
            notes.append(f"{self.reach()}: what came after is not known")
        return notes

    def lags(self, at_ms: int) -> bool:
        """Whether the tables end before an instant, by more than the job is usually behind."""
        return self.reaches_ms < at_ms - _USUAL_LAG_MS

    def reach(self) -> str:
        """Up to when all answers reach; for people."""
        return f"the tables reach to {instant(self.reaches_ms)}"

    def known_part(self, asked: Window) -> Window:
        """The part of a time that the tables cover.

        Raises:
            NotInHistory: It begins where they end, or later.
        """
        known = Window(max(asked.since_ms, self.begin_ms or 0), min(asked.until_ms, self.reaches_ms))
        if known.since_ms >= known.until_ms:
            end, begin = instant(self.reaches_ms), instant(known.since_ms)
            raise NotInHistory(f"there is no data after {end}, and --since is {begin}: is the product running?")
        return known

    def as_json(self) -> dict[str, Any]:
        """By field names."""
        return asdict(self)
