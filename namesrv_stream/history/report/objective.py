"""How much of a time may be missed, and how much of that is left."""

import math
from dataclasses import dataclass

from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import COMMAND_LINE


@dataclass(frozen=True, slots=True)
class Objective:
    """The share of the time for which a broker is to be up, above 0 and below 1."""

    share: float

    def is_met(self, known_ms: int, up_ms: int) -> bool:
        """Whether the up-time is enough; of a time that is none, it is."""
        return self.left_ms(known_ms, up_ms) >= 0

    def budget_ms(self, known_ms: float) -> float:
        """The error budget: for how long it may be down."""
        return known_ms * (1 - self.share)

    def left_ms(self, known_ms: int, up_ms: int) -> float:
        """What is left of the budget; below 0 where more was taken."""
        return self.budget_ms(known_ms) - (known_ms - up_ms)

    def left_share(self, known_ms: int, up_ms: int) -> float | None:
        """The same as a share of the budget; None where there is none."""
        budget_ms = self.budget_ms(known_ms)
        return self.left_ms(known_ms, up_ms) / budget_ms if budget_ms > 0 else None

    def __str__(self) -> str:
        return f"{self.share * 100:.6g}%"


def parse_objective(text: str) -> Objective:
    """Of per cent, as ``99.9`` or ``99.9%``.

    Raises:
        ConfigError: It is no number, or none between 0 and 100.
    """
    try:
        per_cent = float(text.strip().removesuffix("%"))
    except ValueError:
        per_cent = math.nan
    if not 0 < per_cent < 100:
        shown = text if len(text) <= 20 else f"{text[:20]}…"
        raise ConfigError(COMMAND_LINE, "--slo", f"{shown!r} is no objective: expected per cent above 0 and below 100")
    return Objective(per_cent / 100)
