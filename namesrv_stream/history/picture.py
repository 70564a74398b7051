"""What all pictures of the history share: colours of causes, the axis of time, lanes, the file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, Final

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from namesrv_stream.errors import ConfigError
from namesrv_stream.route.changes import Cause

WIDTH_IN: Final = 13.0
LANE_IN: Final = 0.27
#: A picture with more lanes could not be read.
MOST_LANES: Final = 60

UP: Final = "#4c9f70"
_OTHER: Final = "#8c6d4f"
#: Why a session ended. Red and orange: nobody wanted that; blue: somebody did.
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


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a lane, epoch milliseconds.

    Attributes:
        has_end: Whether its end is what matters: the bar is pale then, and its end is not.
    """

    begin_ms: int
    end_ms: int
    colour: str
    text: str = ""
    has_end: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of bars."""

    label: str
    bars: Sequence[Bar]


def colour_of(cause: str | None) -> str:
    """Of a session that ended for a cause, or goes on."""
    return UP if cause is None else COLOUR_OF_CAUSE.get(cause, _OTHER)


def draw_lanes(axes: Any, lanes: Sequence[Lane], since_ms: int, until_ms: int) -> None:
    """Bars on a grey ground, the first lane at the top; what is too short to see is as wide as a line."""
    span_ms = until_ms - since_ms
    for number, lane in enumerate(lanes):
        row = (number - 0.39, 0.78)
        axes.broken_barh([(days(since_ms), days(span_ms))], row, facecolor="#f1f1ef", linewidth=0)
        for bar in lane.bars:
            begin_ms, end_ms = max(bar.begin_ms, since_ms), min(bar.end_ms, until_ms)
            length_ms = max(end_ms - begin_ms, span_ms / 1_500)
            alpha = 0.4 if bar.has_end else 1.0
            axes.broken_barh([(days(begin_ms), days(length_ms))], row, facecolor=bar.colour, alpha=alpha, linewidth=0)
            if bar.has_end:
                cap_ms = min(length_ms, span_ms / 250)
                axes.broken_barh([(days(end_ms - cap_ms), days(cap_ms))], row, facecolor=bar.colour, linewidth=0)
            elif end_ms < until_ms:
                axes.vlines(days(end_ms), *(number - 0.39, number + 0.39), color="white", linewidth=0.8)
            if bar.text and length_ms > span_ms * 0.011 * len(bar.text):
                at = days(begin_ms + length_ms / 2)
                axes.text(at, number, bar.text, ha="center", va="center", fontsize=7, color="white", parse_math=False)
    axes.set_yticks(range(len(lanes)), [lane.label for lane in lanes])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def time_axis(axes: Any, since_ms: int, until_ms: int, *, is_labelled: bool = True) -> None:
    """Instants in this machine's zone, which is named, unless axes below say them."""
    zone = _zone(until_ms)
    locator = AutoDateLocator(tz=zone, minticks=4, maxticks=12)  # type: ignore[no-untyped-call] # has no types
    formatter = ConciseDateFormatter(locator, tz=zone)  # type: ignore[no-untyped-call] # has no types
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)
    axes.set_xlim(days(since_ms), days(until_ms))
    axes.tick_params(axis="x", labelsize=8, length=3 if is_labelled else 0)
    axes.tick_params(axis="y", labelsize=8)
    if is_labelled:
        axes.set_xlabel(f"log time ({zone})", fontsize=8)
        axes.xaxis.get_offset_text().set_size(8)
    for side in ("top", "right", "left") if is_labelled else ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)


def days(at_ms: float) -> float:
    """An instant as the axis counts it."""
    return at_ms / 86_400_000  # matplotlib's dates are days since 1970


def legend(axes: Any, handles: Sequence[Any]) -> None:
    """What lines and colours mean, in one line above the axes, on the right."""
    if handles:
        axes.legend(
            handles=handles,
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=len(handles),
            frameon=False,
            fontsize=8,
            borderaxespad=0.2,
            handlelength=1.2,
            columnspacing=1.2,
        )


def patches(colours: Iterable[tuple[str, str]]) -> list[Any]:
    """Of names and their colours, for ``legend``."""
    return [Patch(facecolor=colour, label=label) for label, colour in colours]


def heading(axes: Any, text: str) -> None:
    """A title on the left; names of brokers and topics are no formulas."""
    axes.set_title(text, loc="left", fontsize=10, fontweight="bold", parse_math=False)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        figure.savefig(path, format="png", dpi=130, facecolor="white")
    except OSError as error:
        raise ConfigError("command line", "--plot", f"{path} cannot be written: {error.strerror}") from None


def _zone(at_ms: int) -> tzinfo:
    zone = datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone().tzinfo
    return UTC if zone is None else zone
