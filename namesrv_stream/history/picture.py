"""What all pictures of the history share: the axis of time, lanes, legends, the file."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, Final

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from namesrv_stream.client.mqadmin_tables import printable
from namesrv_stream.errors import ConfigError
from namesrv_stream.history.cause_colours import UP, colour_of
from namesrv_stream.instants import COMMAND_LINE

#: A picture with more lanes could not be read.
MOST_LANES: Final = 60

_WIDTH_IN: Final = 13.0
_LANE_IN: Final = 0.27
_FRAME_IN: Final = 1.1
_LANE_HEIGHT: Final = 0.78  # of the 1.0 that each has
#: What is shorter than this part of the time is drawn as long: a line of two or three dots.
_LEAST_PART: Final = 1 / 600
_MOST_LABEL_CHARS: Final = 48
_LEGEND_CHARS: Final = 120
#: Years, months, days, hours, minutes, seconds at the axis, and what stands beside it.
_TICKS: Final = ["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S"]
#: The same where the smaller units are zero.
_ZERO_TICKS: Final = ["%Y", "%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M"]
_OFFSETS: Final = ["", "%Y", "%Y", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d"]
_PALE: Final = 0.4


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a lane, epoch milliseconds.

    Attributes:
        text: Written into it where there is room.
        is_pale: Whether it matters less.
    """

    begin_ms: int
    end_ms: int
    colour: str
    text: str = ""
    is_pale: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of bars; later ones lie above earlier ones. The label is ``plain``."""

    label: str
    bars: Sequence[Bar]


def lanes_figure(lanes: int) -> tuple[Figure, Any]:
    """A picture of so many lanes, and the axes for them."""
    figure = Figure(figsize=(_WIDTH_IN, _LANE_IN * lanes + _FRAME_IN), layout="constrained")
    return figure, figure.add_subplot()


def lanes_and_chart_figure(lanes: int, chart_in: float) -> tuple[Figure, Any, Any]:
    """A picture of so many lanes, with axes for them and, below, for a chart of some inches over the same time."""
    lanes_in = _LANE_IN * lanes + _FRAME_IN
    figure = Figure(figsize=(_WIDTH_IN, lanes_in + chart_in), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[lanes_in, chart_in])
    return figure, upper, lower


def draw_lanes(axes: Any, lanes: Sequence[Lane], since_ms: int, until_ms: int) -> None:
    """Bars on a grey ground, the first lane at the top."""
    for number, lane in enumerate(lanes):
        row = (number - _LANE_HEIGHT / 2, _LANE_HEIGHT)
        axes.broken_barh([(days(since_ms), days(until_ms - since_ms))], row, facecolor="#f1f1ef", linewidth=0)
        for bar in lane.bars:
            _draw_bar(axes, bar, row, since_ms, until_ms)
    axes.set_yticks(range(len(lanes)), [lane.label for lane in lanes])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _draw_bar(axes: Any, bar: Bar, row: tuple[float, float], since_ms: int, until_ms: int) -> None:
    begin_ms, length_ms = shown_span(bar.begin_ms, bar.end_ms, since_ms, until_ms)
    alpha = _PALE if bar.is_pale else 1.0
    axes.broken_barh([(days(begin_ms), days(length_ms))], row, facecolor=bar.colour, alpha=alpha, linewidth=0)
    if bar.text and length_ms > (until_ms - since_ms) * 0.011 * len(bar.text):
        at, middle = days(begin_ms + length_ms / 2), row[0] + row[1] / 2
        axes.text(at, middle, bar.text, ha="center", va="center", fontsize=7, color="white", parse_math=False)


def shown_span(begin_ms: int, end_ms: int, since_ms: int, until_ms: int) -> tuple[int, float]:
    """Begin and length of a span as it is drawn: within the time, and long enough to be seen; milliseconds."""
    begin_ms, end_ms = max(begin_ms, since_ms), min(end_ms, until_ms)
    return begin_ms, max(end_ms - begin_ms, (until_ms - since_ms) * _LEAST_PART)


def time_axis(axes: Any, since_ms: int, until_ms: int, *, is_labelled: bool = True) -> None:
    """Instants in UTC, unless axes below say them."""
    locator = AutoDateLocator(tz=UTC, minticks=5, maxticks=18)  # type: ignore[no-untyped-call] # has no types
    formatter = ConciseDateFormatter(locator, tz=UTC, formats=_TICKS, zero_formats=_ZERO_TICKS, offset_formats=_OFFSETS)  # type: ignore[no-untyped-call] # has no types
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)
    axes.set_xlim(days(since_ms), days(until_ms))
    axes.tick_params(axis="x", labelsize=8, length=3 if is_labelled else 0)
    axes.tick_params(axis="y", labelsize=8)
    if is_labelled:
        axes.set_xlabel("log time (UTC)", fontsize=8)
        axes.xaxis.get_offset_text().set_size(8)
    for side in ("top", "right", "left") if is_labelled else ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def days(at_ms: float) -> float:
    """An instant as the axis counts it."""
    return at_ms / 86_400_000  # matplotlib's dates are days since 1970


def plain(text: str) -> str:
    """A name as it may stand in a picture: one line, not too long."""
    text = printable(text)
    return text if len(text) <= _MOST_LABEL_CHARS else f"{text[:_MOST_LABEL_CHARS]}…"


def legend(axes: Any, handles: Sequence[Any]) -> None:
    """What lines and colours mean, above the axes, on the right: in several lines where one would reach the title."""
    if not handles:
        return
    chars = sum(len(handle.get_label()) + 6 for handle in handles)  # 6: the mark and the space around
    lines = -(-chars // _LEGEND_CHARS)
    found = axes.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=-(-len(handles) // lines),
        frameon=False,
        fontsize=8,
        borderaxespad=0.2,
        handlelength=1.2,
        columnspacing=1.2,
    )
    for text in found.get_texts():
        text.set_parse_math(False)


def patches(colours: Iterable[tuple[str, str]]) -> list[Any]:
    """Of names and their colours, for ``legend``."""
    return [Patch(facecolor=colour, label=label) for label, colour in colours]


def absence_patches(causes: Iterable[str]) -> list[Any]:
    """Why something was gone, of the causes that there are, for ``legend``."""
    return patches((f"gone: {cause}", colour_of(cause)) for cause in sorted(set(causes)))


def up_patches() -> list[Any]:
    """What is up, for ``legend``."""
    return patches([("up", UP)])


def heading(axes: Any, text: str) -> None:
    """A title on the left; names of brokers and topics are no formulas."""
    axes.set_title(text, loc="left", fontsize=10, fontweight="bold", parse_math=False)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        with warnings.catch_warnings():
            # A box stands for a character that the font has not.
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
            figure.savefig(path, format="png", dpi=130, facecolor="white")
    except OSError as error:
        raise ConfigError(COMMAND_LINE, "--plot", f"{path} cannot be written: {error.strerror}") from None
