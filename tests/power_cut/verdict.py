"""Findings in a directory after a power cut: a server starts on it, then the job, which folds the rest of the log."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

import pyarrow.compute as pc
from deltalake import DeltaTable

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.settings import Settings
from namesrv_stream.tables.change_rows import FOLD_STATE_KIND, decode_changes
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from tests.power_cut import product
from tests.power_cut.made_up_log import RecordsOf
from tests.power_cut.truth import Truth, differing_rows

_RECORDS_A_BATCH: Final = 25
_SHOWN: Final = 300
_PANIC: Final = "PanicException"

#: Kinds of findings about what a server answers.
SERVED: Final = frozenset({"a server answers wrongly", "a server has lost what was durable"})
READER_FAILS: Final = "a reader of all rows fails"


class Finding(NamedTuple):
    """One finding.

    Attributes:
        kind: One of a few kinds, for counts.
        detail: A human-readable description.
        is_error: Whether the product raised an error; otherwise only this test has noticed it.
    """

    kind: str
    detail: str
    is_error: bool = False

    @classmethod
    def of_error(cls, kind: str, error: BaseException) -> "Finding":
        """Return the finding of an error that a part raised."""
        return cls(kind, f"{type(error).__name__}: {' '.join(str(error).split())}", is_error=True)

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail[:_SHOWN]}"


@contextmanager
def _caught(found: list[Finding], kind: str) -> Iterator[None]:
    """Convert any error of a part to a finding; a library in Rust may panic, which is no Exception."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        found.append(Finding.of_error(kind, error))


def findings_of_server(settings: Settings, truth: Truth, durable: Mapping[int, int] | None = None) -> list[Finding]:
    """Return the findings in the answers of a server that starts now.

    Args:
        settings: Settings of the directory.
        truth: The fold of the log.
        durable: The offsets that the product had promised to be durable.
    """
    found: list[Finding] = []
    loaded = None
    with _caught(found, "a server does not start"):
        loaded = product.load(settings)
    if loaded is None:
        return found
    for partition, offset in (durable or {}).items():
        claimed = loaded.next_offsets.get(partition, 0)
        if claimed < offset:
            text = f"partition {partition} at {claimed}, {offset} was durable"
            found.append(Finding("a server has lost what was durable", text))
    if difference := _difference(lambda: truth.table_difference(loaded.table, loaded.next_offsets)):
        found.append(Finding("a server answers wrongly", difference))
    return found


def _difference(compare: Callable[[], object]) -> str:
    """Return the difference that a comparison finds; "" if all is equal."""
    try:
        return str(compare() or "")
    except Exception as error:  # the table has invalid content, which only the comparison has noticed
        return f"cannot be compared: {type(error).__name__}: {error}"


def findings_of_job(settings: Settings, log: RecordsOf, earliest: Mapping[int, int]) -> list[Finding]:
    """Return the errors that keep the job from folding the rest of the log.

    Args:
        settings: Settings of the directory.
        log: The whole log.
        earliest: First offset of each partition that Kafka still has.
    """
    found: list[Finding] = []
    job = None
    with _caught(found, "the job does not start"):
        job = product.Job(settings, log, earliest)
    if job is not None:
        with _caught(found, "the job does not continue"):
            _finish(log, job)
    return found


def findings_of_end(settings: Settings, truth: Truth) -> list[Finding]:
    """Return the findings in both tables and in a server that starts now, after the job has folded the whole log."""
    found: list[Finding] = []
    with _caught(found, READER_FAILS):
        found += _findings_of_changes(settings, truth)
    with _caught(found, READER_FAILS):
        found += _findings_of_state(settings, truth)
    return [*found, *findings_of_server(settings, truth, durable=truth.ends())]


def _findings_of_changes(settings: Settings, truth: Truth) -> list[Finding]:
    rows, _ = _read(settings, ROUTE_CHANGES)
    return _of_rows(ROUTE_CHANGES, rows, truth.rows)


def _findings_of_state(settings: Settings, truth: Truth) -> list[Finding]:
    live, states = _read(settings, ROUTE_STATE)
    found = _of_rows(ROUTE_STATE, live, truth.live_rows(truth.ends()))
    offsets = {partition: offset for partition, (offset, _) in states.items()}
    if offsets != truth.ends():
        found.append(Finding("route_state: does not cover the log", str(offsets)))
    for partition, (offset, content) in states.items():
        if difference := _difference(partial(truth.state_difference, partition, offset, content)):
            found.append(Finding("route_state: a fold state differs", difference))
    return found


def _of_rows(table: str, stored: list[RouteChange], folded: list[RouteChange]) -> list[Finding]:
    """Return the first finding of each kind."""
    found: dict[str, Finding] = {}
    for what, row in differing_rows(stored, folded):
        found.setdefault(what, Finding(f"{table}: {what}", str(row)))
    return list(found.values())


def _finish(log: RecordsOf, job: product.Job) -> None:
    """Fold the rest of the log, with a compaction after the first batch and one at the end."""
    is_first = True
    while not job.is_done:
        job.run_batch(dict.fromkeys(log, _RECORDS_A_BATCH))
        if is_first:
            job.compact(job.fold_states())
        is_first = False
    job.compact(job.fold_states())


def _read(settings: Settings, name: str) -> tuple[list[RouteChange], dict[int, tuple[int, bytes]]]:
    """Read a table as any reader of Delta does: rows in log order, and the fold states with their offsets."""
    rows = DeltaTable(settings.data.tables_dir / name).to_pyarrow_table()
    is_state = pc.equal(rows["kind"], FOLD_STATE_KIND)
    states = {
        row["partition"]: (row["offset"], row["state"]) for row in rows.filter(is_state).to_pylist() if "state" in row
    }
    changes = decode_changes(rows.filter(pc.invert(is_state)))
    return sorted(changes, key=lambda row: row[:3]), states
