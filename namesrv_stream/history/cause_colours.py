"""One colour a cause, in all pictures."""

from collections.abc import Mapping
from typing import Final

from namesrv_stream.route.changes import Cause

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


def colour_of(cause: str | None) -> str:
    """Of a session that ended for a cause, or goes on."""
    return UP if cause is None else COLOUR_OF_CAUSE.get(cause, _OTHER)
