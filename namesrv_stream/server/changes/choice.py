"""Which rows a follower wants."""

from typing import Final, NamedTuple

from namesrv_stream.route.changes import ChangeKind, Difference, RouteChange

#: Without a choice: all but what the fold keeps for itself, a broker's whole last registration (megabytes, perhaps).
USUAL_KINDS: Final[frozenset[str]] = frozenset(ChangeKind) - {ChangeKind.REGISTRATION}
_COLUMNS: Final = ("cluster", "broker_name", "topic")


class Choice(NamedTuple):
    """Rows of these kinds whose columns, where given, have this value; a row without the column has it not."""

    kinds: frozenset[str] = USUAL_KINDS
    cluster: str | None = None
    broker_name: str | None = None
    topic: str | None = None

    def wants(self, row: RouteChange) -> bool:
        """Whether a change is among them."""
        return (
            row.kind in self.kinds
            and self.cluster in (None, row.cluster)
            and self.broker_name in (None, row.broker_name)
            and self.topic in (None, row.topic)
        )

    def wants_state(self, row: Difference) -> bool:
        """Whether a row of the state is among them."""
        return row.kind in self.kinds and all(getattr(self, name) in (None, row.columns.get(name)) for name in _COLUMNS)


def parse_kinds(text: str) -> frozenset[str]:
    """Kinds with a comma between them, or ``*`` for all.

    Raises:
        ValueError: There is no such kind.
    """
    kinds = frozenset(ChangeKind if text == "*" else text.split(","))
    unknown = sorted(kinds - frozenset(ChangeKind))
    if unknown:
        raise ValueError(f"there is no {unknown[0]!r}; there are {', '.join(ChangeKind)}")
    return kinds
