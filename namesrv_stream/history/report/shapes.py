"""Shapes of the page's pictures: plain geometry in per cent, which fits any width; the template draws it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from namesrv_stream.history.cause_colours import COLOUR_OF_CAUSE
from namesrv_stream.history.report.buckets import Buckets

_MOST_LABELS: Final = 8
#: The colour of text, light or dark as the page is.
TEXT_COLOUR: Final = "currentColor"


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle; x and y from the upper left, all in per cent of the picture.

    Attributes:
        title: Shown when it is pointed at, and read out.
    """

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points in per cent of the picture."""

    points: Sequence[tuple[float, float]]
    colour: str
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """A text at an axis.

    Attributes:
        at: In per cent, from the left or from the top.
        is_minor: Whether it is left out where there is little room.
    """

    at: float
    text: str
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars and lines over time.

    Attributes:
        title: Above it.
        summary: For those who do not see it.
        legend: What colours mean.
    """

    title: str
    summary: str
    bars: Sequence[Bar]
    lines: Sequence[Line]
    x_labels: Sequence[Label]
    y_labels: Sequence[Label]
    legend: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of bars that fill its height.

    Attributes:
        label: Its name.
        note: Behind it.
        summary: For those who do not see it.
    """

    label: str
    note: str
    summary: str
    bars: Sequence[Bar]


def time_labels(buckets: Buckets) -> list[Label]:
    """The borders of the pieces, as many as have room; on a phone every other one."""
    inner = list(buckets.bounds_ms[1:-1]) or [buckets.bounds_ms[0]]
    step = -(-len(inner) // _MOST_LABELS)
    shown = inner[::step]
    pattern = "%H:%M" if buckets.unit == "hour" else "%d %b"
    return [
        Label(x_of(buckets, at_ms), datetime.fromtimestamp(at_ms / 1000, UTC).strftime(pattern), n % 3 != 0)
        for n, at_ms in enumerate(shown)
    ]


def piece_name(buckets: Buckets, number: int) -> str:
    """An hour, day or week, for people."""
    at = datetime.fromtimestamp(buckets.bounds_ms[number] / 1000, UTC)
    return at.strftime("%Y-%m-%d %H:%M" if buckets.unit == "hour" else "%Y-%m-%d")


def in_order(causes: Iterable[str]) -> list[str]:
    """As everywhere: what nobody wanted first; unknown ones last."""
    causes = set(causes)
    known = [str(cause) for cause in COLOUR_OF_CAUSE if cause in causes]
    return [*known, *sorted(causes - set(known))]


def x_of(buckets: Buckets, at_ms: int) -> float:
    first, last = buckets.bounds_ms[0], buckets.bounds_ms[-1]
    return (at_ms - first) / (last - first) * 100


def place_of(buckets: Buckets, number: int) -> tuple[float, float]:
    """Where a piece is: x and width, with a gap to the next."""
    x = x_of(buckets, buckets.bounds_ms[number])
    width = x_of(buckets, buckets.bounds_ms[number + 1]) - x
    return x, width * 0.86
