"""Damage to single files of intact tables: a changed byte, or a truncated file.

A file system without checksums passes such bytes to every reader. Every damage must be harmless, noticed or repaired;
it must never lead to a route that the log does not have.
"""

import json
import os
import random
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from deltalake import DeltaTable

from namesrv_stream.settings import Settings
from namesrv_stream.tables.layout import ROUTE_CHANGES, ROUTE_STATE
from tests.power_cut import product
from tests.power_cut.made_up_log import RecordsOf, made_up_log
from tests.power_cut.truth import Truth
from tests.power_cut.verdict import (
    READER_FAILS,
    SERVED,
    Finding,
    findings_of_end,
    findings_of_job,
    findings_of_server,
)

#: Records of the log in each partition.
_RECORDS: Final = 120
#: Number of these records that the job folds after a file has been damaged.
_REST: Final = 20
_RECORDS_A_BATCH: Final = 5
_BATCHES_A_COMPACTION: Final = 6


class Group(StrEnum):
    """A group of files with the same role in a table."""

    DATA = "data"
    OLD_DATA = "data of older versions"
    COMMIT = "commits"
    OLD_COMMIT = "commits before the checkpoint"
    CHECKPOINT = "the checkpoint"
    OLD_CHECKPOINT = "older checkpoints"
    HINT = "_last_checkpoint"


#: How often a group is damaged: files of the newest version more often than files that are not read.
_WEIGHTS: Final = {Group.DATA: 5, Group.COMMIT: 5, Group.CHECKPOINT: 3}


class Outcome(StrEnum):
    """The outcome of a damage."""

    HARMLESS = "harmless"
    OLDER = "the server has older data and says so; everything is correct after the job has run"
    REPAIRED = "noticed by the server; everything is correct after the job has run"
    NOTICED = "noticed, the file is named"
    UNREADABLE = "a reader of all rows notices it"
    UNNAMED = "noticed, the file is not named"
    WRONG_ROW = "unnoticed: route_changes or route_state differs at the end"
    WRONG_ROUTE = "unnoticed: a server answers wrongly"


#: Outcomes that no damage may have.
FORBIDDEN: Final = frozenset({Outcome.UNNAMED, Outcome.WRONG_ROW, Outcome.WRONG_ROUTE})


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage to one file.

    Attributes:
        table: Name of the table.
        group: Group of the file.
        path: Path of the file, relative to the data directory.
        position: Position of the byte, or the new size.
        mask: The bits that differ; 0 truncates the file.
    """

    table: str
    group: Group
    path: Path
    position: int
    mask: int

    def __str__(self) -> str:
        what = f"byte {self.position} ^ {self.mask:#04x}" if self.mask else f"cut to {self.position} bytes"
        return f"{self.path}: {what}"

    def content(self, healthy: bytes) -> bytes:
        """Return the content of the file with the damage."""
        if not self.mask:
            return healthy[: self.position]
        damaged = bytearray(healthy)
        damaged[self.position] ^= self.mask
        return bytes(damaged)


class Verdict(NamedTuple):
    """The outcome of a damage, and how it was noticed."""

    outcome: Outcome
    findings: list[Finding]


class HealthyTables:
    """Tables that the job has written up to shortly before the end of the log.

    Args:
        data_dir: An empty directory for them.
        seed: Seed of the log and of all damages.
    """

    def __init__(self, data_dir: Path, seed: int) -> None:
        self._dir = data_dir
        self._seed = seed
        self._log = made_up_log(seed, _RECORDS)
        self._truth = Truth(self._log)
        settings = product.settings_in(data_dir)
        self._offsets = _write(settings, self._log)
        assert findings_of_server(settings, self._truth, durable=self._offsets) == []
        self._groups = {
            (name, group): sorted(paths)
            for name in (ROUTE_CHANGES, ROUTE_STATE)
            for group, paths in _files_of(settings.data.tables_dir / name).items()
        }

    def failures(self, damages: Iterable[Damage], folder: Path) -> list[str]:
        """Describe the damages with a forbidden outcome; only their copies of the tables are kept."""
        failures = []
        for number, damage in enumerate(damages):
            place = folder / str(number)
            outcome, findings = self.verdict(damage, place)
            if outcome in FORBIDDEN:
                failures.append("\n  ".join([f"{place}: {damage}: {outcome}", *map(str, findings)]))
            else:
                shutil.rmtree(place)
        return failures

    def damages(self, count: int) -> Iterator[Damage]:
        """Return ``count`` damages, spread over all groups of files."""
        draw = random.Random(f"damages {self._seed}")
        groups = [key for key in sorted(self._groups) for _ in range(_WEIGHTS.get(key[1], 1))]
        for number in range(count):
            table, group = groups[number % len(groups)]
            path = draw.choice(self._groups[table, group])
            size = path.stat().st_size
            position = draw.randrange(size)
            mask = draw.randint(1, 255) if draw.random() < 0.8 else 0
            yield Damage(table, group, path.relative_to(self._dir), position, mask)

    def verdict(self, damage: Damage, data_dir: Path) -> Verdict:
        """Try a damage in a copy of the tables at ``data_dir``, which is kept; returns the verdict."""
        shutil.copytree(self._dir, data_dir, copy_function=os.link)  # Delta changes no file in place
        damaged = data_dir / damage.path
        content = damage.content(damaged.read_bytes())
        damaged.unlink()
        damaged.write_bytes(content)
        settings = product.settings_in(data_dir)
        server = findings_of_server(settings, self._truth)
        age = findings_of_server(settings, self._truth, durable=self._offsets) if not server else []
        job = findings_of_job(settings, self._log, dict.fromkeys(self._log, 0))
        end = job or findings_of_end(settings, self._truth)
        return Verdict(_outcome(damage, server, age, end), [*server, *age, *end])


def _outcome(damage: Damage, server: list[Finding], age: list[Finding], end: list[Finding]) -> Outcome:
    """Derive the outcome from the findings at the start of the server, about its age, and after the job has run."""
    unnoticed = [finding for finding in (*server, *end) if not finding.is_error]
    if unnoticed:
        is_route = any(finding.kind in SERVED for finding in unnoticed)
        return Outcome.WRONG_ROUTE if is_route else Outcome.WRONG_ROW
    errors = [finding for finding in (*server, *end) if finding.kind != READER_FAILS]
    if any(damage.path.name not in error.detail for error in errors):
        return Outcome.UNNAMED
    if end:
        return Outcome.NOTICED if errors else Outcome.UNREADABLE
    if server:
        return Outcome.REPAIRED
    return Outcome.OLDER if age else Outcome.HARMLESS


def _write(settings: Settings, log: RecordsOf) -> dict[int, int]:
    """Write the tables; returns the offsets up to which they cover the log."""
    most = {partition: records[: len(records) - _REST] for partition, records in log.items()}
    job = product.Job(settings, most, dict.fromkeys(log, 0))
    batches = 0
    while not job.is_done:
        job.run_batch(dict.fromkeys(log, _RECORDS_A_BATCH))
        batches += 1
        if batches % _BATCHES_A_COMPACTION == 0:
            job.compact(job.fold_states())
        if batches % (2 * _BATCHES_A_COMPACTION) == 0:
            job.clean_up()
    return dict(job.offsets)


def _files_of(table: Path) -> dict[Group, list[Path]]:
    """Return the files of a table by group; groups without files are omitted."""
    log = table / "_delta_log"
    hint = log / "_last_checkpoint"
    newest = json.loads(hint.read_text())["version"]
    live = {Path(uri.removeprefix("file://")).name for uri in DeltaTable(table).file_uris()}
    groups: dict[Group, list[Path]] = {Group.HINT: [hint]}
    for path in table.glob("*.parquet"):
        groups.setdefault(Group.DATA if path.name in live else Group.OLD_DATA, []).append(path)
    for path in log.glob("*.json"):
        groups.setdefault(Group.COMMIT if int(path.stem) > newest else Group.OLD_COMMIT, []).append(path)
    for path in log.glob("*.checkpoint.parquet"):
        is_newest = int(path.name.split(".")[0]) == newest
        groups.setdefault(Group.CHECKPOINT if is_newest else Group.OLD_CHECKPOINT, []).append(path)
    return groups
