"""Charts over time as inline SVG, the colours of causes, and self-contained HTML pages.

Pages send no requests to other addresses and contain no scripts. Colours of causes are the same in all charts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.errors import ConfigError
from namesrv_stream.history.answer import Window
from namesrv_stream.instants import COMMAND_LINE, duration
from namesrv_stream.route.changes import Cause

UP: Final = "#4c9f70"
#: The colour of text, which depends on the page's light or dark mode.
TEXT: Final = "currentColor"
#: Colours of lines in one chart.
LINES: Final = ("#c0392b", "#4a79b8", "#e67e22", "#8e44ad", "#2a9d8f", "#b8860b", "#34495e", "#8c6d4f")
_OTHER: Final = "#8c6d4f"
#: Cause → colour. Red and orange are failures, blue is intended.
COLOUR_OF_CAUSE: Final[Mapping[str, str]] = {
    Cause.EXPIRED: "#c0392b",
    Cause.DISCONNECTED: "#e67e22",
    Cause.SERVER_LOST: "#8e44ad",
    Cause.SERVER_SILENT: "#b07cc6",
    Cause.UNREGISTERED: "#4a79b8",
    Cause.TOPIC_DELETED: "#34495e",
    Cause.WRITE_PERM_WIPED: "#b8860b",
    Cause.WRITE_PERM_ADDED: "#2a9d8f",
}


def colour_of(cause: str | None) -> str:
    """Return the colour for a session that ended by this cause; None stands for a session that has not ended."""
    return UP if cause is None else COLOUR_OF_CAUSE.get(cause, _OTHER)


def in_order(causes: Iterable[str]) -> list[str]:
    """Return causes in the order of legends: failures first, unknown ones last."""
    found = set(causes)
    known = [str(cause) for cause in COLOUR_OF_CAUSE if cause in found]
    return [*known, *sorted(found - set(known))]


def down_legend(causes: Iterable[str]) -> list[tuple[str, str]]:
    """Return the legend of tracks that show these causes: (text, colour) pairs."""
    return [("up", UP), *((f"down: {cause}", colour_of(cause)) for cause in in_order(causes))]


#: The smallest visible width, percent.
_MIN_WIDTH: Final = 0.15


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle. Position and size are in percent of the chart, measured from its upper left corner.

    Attributes:
        title: Tooltip, which screen readers read as well.
        is_pale: Whether the bar is drawn pale, because it is less important or behind other bars.
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
    """A line through points (x, y), in the same units as those of ``Bar``."""

    points: Sequence[tuple[float, float]]
    colour: str
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """A text at an axis.

    Attributes:
        at: Distance from the left or from the top, percent.
        is_minor: Whether it is left out on small screens.
    """

    at: float
    text: str
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars and lines, mostly over time.

    Attributes:
        title: Title above the chart.
        summary: Description for screen readers.
        legend: (text, colour) pairs.
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
    """A row of bars, which are as high as the row.

    Attributes:
        label: Label before the bars.
        note: Text after the bars.
        summary: Description for screen readers.
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
    """Return the x coordinate of a time, percent of the window's width."""
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
    """Return a bar for the part of a time span within the window: at the top, and wide enough to be visible."""
    begin, end = x_of(window, max(begin_ms, window.since_ms)), x_of(window, min(end_ms, window.until_ms))
    width = max(end - begin, _MIN_WIDTH)
    return Bar(min(begin, 100 - width), 0, width, height, colour, title, is_pale)


_MAX_LABELS: Final = 8
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
#: Round durations whose halves are round, too.
_DURATIONS_MS: Final = (
    *(2_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, _HOUR_MS, 2 * _HOUR_MS),
    *(h * _HOUR_MS for h in (4, 6, 8, 12, 16)),
    *(n * step * _DAY_MS for n in (1, 10, 100, 1_000) for step in (1, 2, 3, 4, 6, 8)),
)
_COUNTS: Final = tuple(sorted(2 * 10**n * step for n in range(12) for step in (1, 2, 3, 5)))


@dataclass(frozen=True, slots=True)
class Scale:
    """A vertical axis from 0 to a round value, which is at least the highest value."""

    top: float
    is_duration: bool

    def text(self, value: float) -> str:
        return duration(value) if self.is_duration else f"{value:,.0f}"

    def height(self, value: float) -> float:
        """Return the height at which a value is drawn, percent of the chart."""
        return value / self.top * 100

    def labels(self) -> list[Label]:
        """Return labels at the top, the middle and zero."""
        return [Label(0, self._short(self.top)), Label(50, self._short(self.top / 2)), Label(100, "0")]

    def _short(self, value: float) -> str:
        if not self.is_duration:
            return f"{value:,.0f}"
        unit_ms, unit = next((unit for unit in _UNITS if value >= unit[0]), (_SECOND_MS, "s"))
        return f"{value / unit_ms:,.3g} {unit}"


def scale(highest: float, *, is_duration: bool = False) -> Scale:
    """Return the axis for values from 0 to ``highest``: counts, or durations in milliseconds."""
    steps = _DURATIONS_MS if is_duration else _COUNTS
    return Scale(next((float(step) for step in steps if step >= highest), highest), is_duration)


def time_labels(window: Window) -> list[Label]:
    """Return labels at round times. On small screens, only every third one is shown."""
    span_ms = window.until_ms - window.since_ms
    step_ms = next((step for step in _TIME_STEPS_MS if span_ms // step < _MAX_LABELS), _TIME_STEPS_MS[-1])
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


#: Longer texts are truncated. Names of brokers are short unless they are malicious.
_MAX_CHARS: Final = 160


def render(template: str, **values: Any) -> str:
    """Return a page as HTML. ``template`` is a file in ``templates``."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    """Return the environment of Jinja, which compiles each template only once."""
    return Environment(
        loader=PackageLoader("namesrv_stream.history"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def cut(text: str) -> str:
    """Return a text, truncated if it is too long for a page."""
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def write_plot(path: Path, title: str, figures: Sequence[Chart | Tracks]) -> None:
    """Write a page with charts, one below the other.

    Raises:
        ConfigError: The file cannot be written.
    """
    write_page("--plot", path, render("plot.html.jinja", title=cut(title), figures=figures))


def write_page(flag: str, path: Path, text: str) -> None:
    """Write a page to the file that a flag names.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(COMMAND_LINE, flag, f"{path} cannot be written: {error.strerror}") from None


def check_plot_file(path: Path) -> None:
    """Refuse an unsuitable file for a plot before any work is done.

    Raises:
        ConfigError: The name does not end in .html, or the directory does not exist.
    """
    if path.suffix.lower() != ".html":
        raise ConfigError(COMMAND_LINE, "--plot", f"{path} does not end in .html: plots are HTML pages")
    if not path.absolute().parent.is_dir():
        raise ConfigError(COMMAND_LINE, "--plot", f"{path.absolute().parent} is not a directory")


def _printed(value: Any) -> Any:
    """Return a value that a template prints, with control characters escaped, such as those that reverse text."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
