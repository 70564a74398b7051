"""Whether this process ran, and for how long it could listen: observed time."""

import logging

from namesrv_stream.clock import Clock

logger = logging.getLogger(__name__)


class LoopWatch:
    """Fed by one beat each tick interval.

    Attributes:
        observed_ms: Time for which the event loop ran; a beat adds ``max_gap_ms`` at most.
    """

    def __init__(self, clock: Clock, max_gap_ms: int) -> None:
        self.observed_ms = 0
        self._clock = clock
        self._max_gap_ms = max_gap_ms
        self._alive_ms = clock.monotonic_ms()
        self._alive_wall_ms = clock.now_ms()
        self._stalled_ms = self._alive_ms - max_gap_ms

    @property
    def stood_still(self) -> bool:
        """Whether the loop stands still, or did less than ``max_gap_ms`` ago."""
        now_ms = self._clock.monotonic_ms()
        return self._pause_ms() > self._max_gap_ms or now_ms - self._stalled_ms < self._max_gap_ms

    def beat(self) -> None:
        pause_ms = self._pause_ms()
        now_ms = self._clock.monotonic_ms()
        if pause_ms > self._max_gap_ms:
            self._stalled_ms = now_ms
            logger.warning("event loop stood still for %d ms", pause_ms)
        self.observed_ms += min(now_ms - self._alive_ms, self._max_gap_ms)
        self._alive_ms = now_ms
        self._alive_wall_ms = self._clock.now_ms()

    def _pause_ms(self) -> int:
        # The monotonic clock stands still while the machine is suspended; only the wall clock tells of that. Where
        # that one was merely set, the server counts as blind for a moment, which does no harm.
        wall_ms = self._clock.now_ms() - self._alive_wall_ms
        return max(self._clock.monotonic_ms() - self._alive_ms, wall_ms)
