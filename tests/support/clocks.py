"""Clocks that a test moves."""


class ManualClock:
    """A clock that moves only by ``advance``."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, duration_ms: int) -> None:
        """Advance both clocks by ``duration_ms`` milliseconds."""
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms


class LeapingClock(ManualClock):
    """A clock whose wall clock can also move alone, as after a suspension of the machine."""

    def __init__(self) -> None:
        super().__init__()
        self._leap_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._leap_ms

    def leap(self, duration_ms: int) -> None:
        self._leap_ms += duration_ms
