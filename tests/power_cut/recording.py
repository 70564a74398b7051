"""A recorded run of the workload, and the findings after power cuts during it."""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.power_cut import product
from tests.power_cut.disk import PowerCut, draw_cut, image_after, write_image
from tests.power_cut.made_up_log import made_up_log
from tests.power_cut.trace import Kind, Operation, mark, read_trace, recording_environment
from tests.power_cut.truth import Truth
from tests.power_cut.verdict import Finding, findings_of_end, findings_of_job, findings_of_server

#: Marks in the trace: the offsets that the product promises to be durable from now on, and those that ``route_state``
#: covers.
DURABLE: Final = "durable"
COVERED: Final = "covered"

#: Records of the log in each partition: writing them takes two seconds, with many commits of every kind.
RECORDS: Final = 300
_LIMIT_S: Final = 300
_DATA: Final = "data"


def say(what: str, offsets: Mapping[int, int]) -> None:
    """Write a mark into the trace of this process."""
    mark(json.dumps([what, sorted(offsets.items())]))


class Recording:
    """The recorded operations of the workload with a seed.

    Args:
        folder: Folder for its directory and its trace.
        seed: Seed of the log and of its batches.

    Attributes:
        data_dir: The directory after the workload.
        operations: All operations of the workload in it.
        truth: The fold of its log.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.data_dir = folder / _DATA
        self.data_dir.mkdir(parents=True)
        trace = folder / "trace"
        command = [sys.executable, "-m", "tests.power_cut.workload", str(self.data_dir), str(seed), str(RECORDS)]
        environment = recording_environment(self.data_dir, trace)
        subprocess.run(command, check=True, env=environment, timeout=_LIMIT_S)
        self.operations = read_trace(trace)
        self._log = made_up_log(seed, RECORDS)
        self.truth = Truth(self._log)

    def names_made(self) -> Counter[str]:
        """Return the number of files that the run created, by the last part of their names."""
        made = [o.target or o.path for o in self.operations if o.kind in (Kind.LINK, Kind.RENAME, Kind.CREATE)]
        return Counter("".join(Path(name).suffixes) or Path(name).name for name in made)

    def cuts(self, count: int) -> list[PowerCut]:
        """Return ``count`` cuts at random positions.

        Most writes are small parts of one file, and the model covers cuts between two of them anyway. Most cuts are
        therefore made after other operations.
        """
        draw = random.Random(f"positions {self.seed}")
        behind = [number for number, operation in enumerate(self.operations, 1) if operation.kind is not Kind.WRITE]
        positions: set[int] = set()
        while len(positions) < count:
            positions.add(draw.choice(behind) if draw.random() < 0.9 else draw.randint(0, len(self.operations)))
        return [draw_cut(position, self.seed) for position in sorted(positions)]

    def findings_after(self, cut: PowerCut, folder: Path, *, syncs_count: bool = True) -> list[Finding]:
        """Return the findings after a cut.

        Args:
            cut: The cut.
            folder: An empty folder; ``cut`` in it is the state after the cut, ``data`` that after the parts have run.
            syncs_count: Whether a sync makes anything durable.
        """
        image = image_after(self.operations, cut, syncs_count=syncs_count)
        for name in ("cut", _DATA):
            write_image(image, folder / name)
        settings = product.settings_in(folder / _DATA)
        server = findings_of_server(settings, self.truth, _newest_mark(DURABLE, self.operations[: cut.position]))
        job = findings_of_job(settings, self._log, self._kept_from(cut))
        return server + (job or findings_of_end(settings, self.truth))

    def _kept_from(self, cut: PowerCut) -> dict[int, int]:
        """Return the first offset of each partition in Kafka; the beginning of some logs is past its retention.

        The retention is days, in which the kernel writes back everything, so what ``route_state`` covered then is on
        the disk.
        """
        covered = _newest_mark(COVERED, self.operations[: cut.written_back]) if cut.is_log_trimmed else {}
        return {partition: covered.get(partition, 0) for partition in self._log}


def _newest_mark(what: str, operations: list[Operation]) -> Mapping[int, int]:
    """Return the newest mark of a kind."""
    for operation in reversed(operations):
        if operation.kind is Kind.MARK:
            kind, offsets = json.loads(operation.path)
            if kind == what:
                return dict(offsets)
    return {}
