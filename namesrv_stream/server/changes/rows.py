"""Rows of ``route_changes`` as followers get them: which they want, as JSON objects without unused columns."""

from typing import Final, NamedTuple

import orjson

from namesrv_stream.route.changes import ChangeKind, Difference, RouteChange

#: Without a choice: all but what the fold keeps for itself, a broker's whole last registration (megabytes, perhaps).
USUAL_KINDS: Final[frozenset[str]] = frozenset(ChangeKind) - {ChangeKind.REGISTRATION}
_ALWAYS: Final = frozenset({"partition", "offset", "seq", "at_ms", "kind", "gone", "cause"})
_COLUMNS: Final = ("cluster", "broker_name", "topic")


class RowFilter(NamedTuple):
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


def encode_row(row: RouteChange) -> bytes:
    """A change with its place in the log, its time and its cause."""
    return orjson.dumps({k: v for k, v in zip(row._fields, row, strict=True) if v is not None or k in _ALWAYS})


def encode_state_row(partition: int, row: Difference) -> bytes:
    """What a key is, without when and why it became so."""
    columns = {k: v for k, v in row.columns.items() if v is not None}
    return orjson.dumps({"partition": partition, "kind": row.kind, "gone": False, **columns})
