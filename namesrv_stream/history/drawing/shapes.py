"""The shapes of charts, in per cent of their width and height, which fit any screen; the templates draw them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_stream.history.extent import Window

#: Per cent of the width: what is shorter could not be seen.
_LEAST_WIDTH: Final = 0.15


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle; x and y from the upper left.

    Attributes:
        title: Shown when it is pointed at, and read out.
        is_pale: Whether it matters less, or lies behind the others.
    """

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str = ""
    is_pale: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points (x, y)."""

    points: Sequence[tuple[float, float]]
    colour: str
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """A text at an axis.

    Attributes:
        at: From the left or from the top.
        is_minor: Whether it is left out where there is little room.
    """

    at: float
    text: str
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars and lines, mostly over time.

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
class Track:
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


@dataclass(frozen=True, slots=True)
class Tracks:
    """Rows of bars over the same time."""

    title: str
    tracks: Sequence[Track]
    x_labels: Sequence[Label]
    legend: Sequence[tuple[str, str]]


def x_of(window: Window, at_ms: float) -> float:
    """Where an instant is."""
    return (at_ms - window.since_ms) / (window.until_ms - window.since_ms) * 100


def span(
    window: Window,
    begin_ms: int,
    end_ms: int,
    colour: str,
    title: str = "",
    *,
    is_pale: bool = False,
    height: float = 100,
) -> Bar:
    """A bar from the top for a span of time: what of it is in the window, and never too narrow to be seen."""
    begin, end = x_of(window, max(begin_ms, window.since_ms)), x_of(window, min(end_ms, window.until_ms))
    width = max(end - begin, _LEAST_WIDTH)
    return Bar(min(begin, 100 - width), 0, width, height, colour, title, is_pale)
