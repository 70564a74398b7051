"""Counts the faults after power cuts and damage by kind, with an example of each.

For example: python -m tests.power_cut --seeds 1 2 --cuts 100 --flips 500
"""

import argparse
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.power_cut.flips import HealthyTables
from tests.power_cut.recording import Recording

_SHOWN: Final = 200


class _Counts:
    """How often each kind of finding occurred, and its first example."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def add(self, what: str, example: str) -> None:
        self._counts[what] += 1
        self._examples.setdefault(what, example)

    def print(self) -> None:
        for what, count in self._counts.most_common():
            print(f"{count:6} {what}\n         {self._examples[what][:_SHOWN]}")


def survey_cuts(folder: Path, seed: int, cuts: int) -> None:
    """Cut the power of one recorded run ``cuts`` times."""
    recording = Recording(folder / f"run-{seed}", seed)
    counts = _Counts()
    for cut in recording.cuts(cuts):
        place = folder / f"cut-{cut.position}"
        findings = recording.findings_after(cut, place)
        for kind, finding in {finding.kind: finding for finding in findings}.items():
            counts.add(kind, f"{cut}: {finding.detail}")
        if not findings:
            counts.add("nothing is wrong", str(cut))
        shutil.rmtree(place)
    print(f"seed {seed}: {cuts} cuts of a run of {len(recording.operations)} operations")
    counts.print()


def survey_flips(folder: Path, seed: int, flips: int) -> None:
    """Damage intact tables ``flips`` times."""
    tables = HealthyTables(folder / f"healthy-{seed}", seed)
    counts = _Counts()
    for damage in tables.damages(flips):
        place = folder / "damaged"
        verdict = tables.verdict(damage, place)
        what = f"{verdict.outcome.name:12} {damage.table} {damage.group}{'' if damage.mask else ', cut short'}"
        counts.add(what, f"{damage}: {'; '.join(map(str, verdict.findings[:1]))}")
        shutil.rmtree(place)
    print(f"seed {seed}: {flips} damages")
    counts.print()


def main() -> None:
    """Run both surveys."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--flips", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="power-cut-") as folder:
        for seed in options.seeds:
            survey_cuts(Path(folder), seed, options.cuts)
            survey_flips(Path(folder), seed, options.flips)


if __name__ == "__main__":
    main()
