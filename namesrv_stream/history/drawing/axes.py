"""Labels of axes: instants in UTC, durations and counts, all at round values."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from namesrv_stream.history.drawing.shapes import Label, x_of
from namesrv_stream.history.extent import Window
from namesrv_stream.instants import duration

_MOST_LABELS: Final = 8
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
_TIME_STEPS_MS: Final = (
    *(n * _SECOND_MS for n in (1, 5, 15, 30)),
    *(n * _MINUTE_MS for n in (1, 5, 15, 30)),
    *(n * _HOUR_MS for n in (1, 3, 6, 12)),
    *(n * _DAY_MS for n in (1, 2, 4, 7, 14, 28, 56, 112, 364)),
)
_UNITS: Final = ((_DAY_MS, "d"), (_HOUR_MS, "h"), (_MINUTE_MS, "min"))
#: Round, and so are their halves.
_DURATIONS_MS: Final = (
    *(2_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, _HOUR_MS, 2 * _HOUR_MS),
    *(h * _HOUR_MS for h in (4, 6, 8, 12, 16)),
    *(n * step * _DAY_MS for n in (1, 10, 100, 1_000) for step in (1, 2, 3, 4, 6, 8)),
)
_COUNTS: Final = tuple(sorted(2 * 10**n * step for n in range(12) for step in (1, 2, 3, 5)))


@dataclass(frozen=True, slots=True)
class Scale:
    """A vertical axis from 0 to a round value that is as high as the highest value, or higher."""

    top: float
    is_duration: bool

    def text(self, value: float) -> str:
        return duration(value) if self.is_duration else f"{value:,.0f}"

    def height(self, value: float) -> float:
        """Per cent of the chart's height."""
        return value / self.top * 100

    def labels(self) -> list[Label]:
        """The top, the middle and zero."""
        return [Label(0, self._short(self.top)), Label(50, self._short(self.top / 2)), Label(100, "0")]

    def _short(self, value: float) -> str:
        if not self.is_duration:
            return f"{value:,.0f}"
        unit_ms, unit = next((unit for unit in _UNITS if value >= unit[0]), (_SECOND_MS, "s"))
        return f"{value / unit_ms:,.3g} {unit}"


def scale(highest: float, *, is_duration: bool = False) -> Scale:
    """For values up to ``highest``: counts, or durations in milliseconds."""
    steps = _DURATIONS_MS if is_duration else _COUNTS
    return Scale(next((float(step) for step in steps if step >= highest), highest), is_duration)


def time_labels(window: Window) -> list[Label]:
    """Round instants, as many as have room; on a phone every third one."""
    span_ms = window.until_ms - window.since_ms
    step_ms = next((step for step in _TIME_STEPS_MS if span_ms // step < _MOST_LABELS), _TIME_STEPS_MS[-1])
    first_ms = -(-window.since_ms // step_ms) * step_ms
    return [
        Label(x_of(window, at_ms), _time_text(at_ms, step_ms), is_minor=number % 3 != 0)
        for number, at_ms in enumerate(range(first_ms, window.until_ms, step_ms))
    ]


def _time_text(at_ms: int, step_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    if step_ms >= _DAY_MS or at_ms % _DAY_MS == 0:
        return at.strftime("%d %b")
    return at.strftime("%H:%M" if step_ms >= _MINUTE_MS else "%H:%M:%S")
