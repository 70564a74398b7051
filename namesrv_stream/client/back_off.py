"""How long to wait before the next attempt: twice as long each time, up to a limit, and never all peers at once."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class BackOff:
    """Delays between attempts that fail; one per peer.

    Attributes:
        first_ms: Delay after the first failure, milliseconds.
        max_ms: Longest delay, milliseconds.
        jitter: Part of a delay that is random: 0.2 means between 80 % and 100 % of it.
        failures: Failures since the last success.
    """

    first_ms: int = 200
    max_ms: int = 10_000
    jitter: float = 0.2
    failures: int = field(default=0, init=False)

    def next_delay_ms(self) -> int:
        """Count a failure and return the delay after it, milliseconds."""
        # The exponent is bounded so that a peer which is away for a week costs no large number.
        full_ms = min(self.first_ms << min(self.failures, 30), self.max_ms)
        self.failures += 1
        return int(full_ms * (1 - self.jitter * random.random()))

    def reset(self) -> None:
        """Forget the failures: an attempt succeeded."""
        self.failures = 0
