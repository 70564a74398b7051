"""The colours of causes, the same in all charts."""

from collections.abc import Iterable, Mapping
from typing import Final

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
    """Return the colour of a session that ended by a cause; None means that it has not ended."""
    return UP if cause is None else COLOUR_OF_CAUSE.get(cause, _OTHER)


def in_order(causes: Iterable[str]) -> list[str]:
    """Return causes in the order of legends: failures first, unknown ones last."""
    found = set(causes)
    known = [str(cause) for cause in COLOUR_OF_CAUSE if cause in found]
    return [*known, *sorted(found - set(known))]


def down_legend(causes: Iterable[str]) -> list[tuple[str, str]]:
    """Return the legend of tracks."""
    return [("up", UP), *((f"down: {cause}", colour_of(cause)) for cause in in_order(causes))]
