"""The outcome of ``replay``, ``rebuild`` and ``repartition``, as text and as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from namesrv_stream.logs import safe
from namesrv_stream.text_table import counted
from namesrv_stream.tools.replay.comparison import Difference
from namesrv_stream.tools.replay.log_source import Store, read_from_text
from namesrv_stream.tools.replay.replay import PartitionReplay, Replay

_HEADINGS: Final = ("partition", "folded from", "compared", "records", "rows", "dead letters", "state", "digest")


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The outcome of a rebuild.

    Attributes:
        origins: Partition → start of its fold, as text.
        losses: A sentence for everything that could not be rebuilt.
        proof: The replay of the new tables.
        difference: The first row that differs from the old tables; None if there is none.
        kept: The folders that now contain the old tables.
    """

    origins: dict[int, str]
    losses: tuple[str, ...]
    proof: Replay
    difference: Difference | None
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Repartition:
    """The outcome of a repartition.

    Attributes:
        before: Former number of partitions.
        partitions: Present number of partitions.
        begins: Partition → first offset written for that number; {} if an earlier run had added the partitions.
        broker_names: Number of broker names.
        closed_s: Seconds for which the topic was closed.
    """

    before: int
    partitions: int
    begins: dict[int, int]
    broker_names: int
    closed_s: float


def replay_text(replay: Replay) -> str:
    """Return the outcome: a line for every partition, then the first difference of those that have one."""
    cells = [_HEADINGS, *(_cells(part) for part in replay.partitions)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADINGS))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    for part in replay.partitions:
        lines += [f"partition {part.partition}: folded from {part.origin}"]
        if any(piece.store is Store.ARCHIVE for piece in part.read_from):
            lines += [f"partition {part.partition}: records {read_from_text(part.read_from)}"]
        if part.rows_past_retention:
            lines += [f"partition {part.partition}: {part.rows_past_retention} rows are past their retention"]
        if part.difference is not None:
            lines += ["", *_difference_lines(part.difference)]
    lines += replay.notes
    if replay.is_equal:
        digest = replay.digest
        lines += ["", f"equal, digest {digest}" if digest else "equal, as far as rows are kept"]
    else:
        lines += ["", "NOT equal"]
    return "\n".join(lines) + "\n"


def replay_json(replay: Replay) -> dict[str, Any]:
    """Return the outcome as JSON."""
    first = replay.difference
    return {
        "equal": replay.is_equal,
        "digest": replay.digest,
        "first_difference": asdict(first) if first else None,
        "notes": list(replay.notes),
        "partitions": [_part_json(part) for part in replay.partitions],
    }


def _part_json(part: PartitionReplay) -> dict[str, Any]:
    return {**asdict(part), "read_from": [piece._asdict() for piece in part.read_from]}


def difference_line(difference: Difference) -> str:
    """Return the difference in one line."""
    return "; ".join(line.strip() for line in _difference_lines(difference))


def _cells(part: PartitionReplay) -> tuple[str, ...]:
    outcome = part.stored_digest if part.difference is None else "differs"
    return (
        str(part.partition),
        str(part.folded_from),
        f"{part.compared_from} to {part.end}",
        str(part.records),
        str(part.rows),
        str(part.dead_letters),
        "equal" if part.is_state_compared and part.difference is None else "-",
        outcome or "-",
    )


def _difference_lines(difference: Difference) -> list[str]:
    where = f"partition {difference.partition} offset {difference.offset}"
    if difference.seq is not None:
        where += f" seq {difference.seq}"
    what = {
        "route_changes": "first difference in route_changes",
        "table": "the rows are equal, the tables at the end are not: first difference before",
        "fold_state": "the rows are equal, the fold state in route_state is not: before",
    }[difference.where]
    lines = [f"{what} {where}: {difference.kind} {_pairs(difference.key)}".rstrip()]
    for name, row in (("stored", difference.stored), ("folded", difference.folded)):
        if row is None:
            lines.append(f"  {name}: no row")
        else:
            shown = {column: row.get(column) for column in difference.columns} if difference.columns else row
            lines.append(f"  {name}: {_pairs(shown)}")
    return lines


def _pairs(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={safe(str(value))}" for name, value in values.items())


def rebuild_text(rebuild: Rebuild) -> str:
    """Return the outcome of a rebuild: starts, losses, where the old tables are, and the digest of the new ones."""
    lines = [f"partition {p}: folded from {origin}" for p, origin in sorted(rebuild.origins.items())]
    lines += [f"lost: {loss}" for loss in rebuild.losses]
    if rebuild.difference is not None:
        lines += ["different from the old tables:", *_difference_lines(rebuild.difference)]
    lines += [f"kept: {path}" for path in rebuild.kept]
    rows = sum(part.rows for part in rebuild.proof.partitions)
    lines += [f"rebuilt and verified: {rows} rows, digest {rebuild.proof.digest}; the job can be started"]
    return "\n".join(lines) + "\n"


def rebuild_json(rebuild: Rebuild) -> dict[str, Any]:
    """Return the outcome of a rebuild as JSON."""
    return {**asdict(rebuild), "digest": rebuild.proof.digest, "proof": replay_json(rebuild.proof)}


def repartition_text(done: Repartition) -> str:
    """Return the outcome of a repartition, and what the operator must do next."""
    names = counted(done.broker_names, "broker name")
    if not done.begins:
        text = f"the topic already has {done.partitions} partitions, for {names}; it is open"
    else:
        text = (
            f"the topic now has {done.partitions} partitions instead of {done.before}, for {names}; it was closed for"
        )
        text += f" {done.closed_s:.0f} s"
    return (
        f"{text}\nset kafka.partitions = {done.partitions} in every configuration, restart the name servers one after"
        " another, then start the job and the history\n"
    )
