"""The colours of causes, the same in all charts."""

from collections.abc import Iterable, Mapping
from typing import Final

from namesrv_stream.route.changes import Cause

UP: Final = "#4c9f70"
#: The colour of text, light or dark as the page is.
TEXT: Final = "currentColor"
#: Of lines beside each other.
LINES: Final = ("#c0392b", "#4a79b8", "#e67e22", "#8e44ad", "#2a9d8f", "#b8860b", "#34495e", "#8c6d4f")
_OTHER: Final = "#8c6d4f"
#: Why a session ended. Red and orange: a failure; blue: intended.
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
    """Of a session that ended for a cause, or goes on."""
    return UP if cause is None else COLOUR_OF_CAUSE.get(cause, _OTHER)


def in_order(causes: Iterable[str]) -> list[str]:
    """Causes in the order of legends: failures first, unknown ones last."""
    found = set(causes)
    known = [str(cause) for cause in COLOUR_OF_CAUSE if cause in found]
    return [*known, *sorted(found - set(known))]


def down_legend(causes: Iterable[str]) -> list[tuple[str, str]]:
    """What the colours of tracks mean."""
    return [("up", UP), *((f"down: {cause}", colour_of(cause)) for cause in in_order(causes))]
