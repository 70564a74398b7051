"""`make chaos`: executes runs with random faults until enough processes were killed (``python -m tests.chaos --help``).

Seed and number determine a run, so a failed run can be repeated by its number. An interrupted series continues when it
is started again with the same arguments.
"""

import argparse
import json
import logging
import random
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from tests.chaos.environment import Scale
from tests.chaos.fault_plan import Fault, long_plan
from tests.chaos.fleet_plan import FleetSize
from tests.chaos.log_checks import Finding
from tests.chaos.report import summary, text_of
from tests.chaos.run import Outcome, run
from tests.chaos.verdict import Figures, Verdict

logger = logging.getLogger(__name__)

_KILLS_A_RUN: Final = 20
#: A tenth of the real times: timeouts of 8 to 12 s instead of 120 s.
_SIZE: Final = FleetSize(timeouts_ms=(8_000, 10_000, 12_000, None), default_timeout_ms=10_000, up_ms=90_000)


def main() -> int:
    """Execute the runs; returns 0 if no run has findings."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices")
    parser.add_argument("--kills", type=int, default=100, help="minimum number of processes to kill in all runs")
    parser.add_argument("--only", type=int, help="repeat only this run")
    parser.add_argument("--dir", type=Path, default=Path("data/chaos"), help="folder of the runs")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell's background job has SIGINT ignored
        signal.signal(number, _stop)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    folder = args.dir.absolute() / f"seed-{args.seed}"
    if args.only is not None:
        outcome = play(folder, args.seed, args.only, is_new=True)
        print(text_of(outcome))
        return int(bool(outcome.verdict.findings))
    outcomes: list[Outcome] = []
    while sum(outcome.kills for outcome in outcomes) < args.kills:
        outcomes.append(play(folder, args.seed, len(outcomes), is_new=False))
        print(text_of(outcomes[-1]), flush=True)
    print(summary(outcomes))
    return int(any(outcome.verdict.findings for outcome in outcomes))


def _stop(number: int, _: FrameType | None) -> NoReturn:
    """Exit as on an error: end all processes and unmount the disk."""
    sys.exit(128 + number)


def play(folder: Path, seed: int, number: int, *, is_new: bool) -> Outcome:
    """Execute one run, or read its outcome if it was executed before."""
    work_dir = folder / f"run-{number}"
    if not is_new and (known := work_dir / "verdict.json").exists():
        return outcome_from(json.loads(known.read_text(encoding="utf-8")))
    shutil.rmtree(work_dir, ignore_errors=True)
    scale = Scale(size=_SIZE)
    own_seed = random.Random(f"{seed}/{number}").randrange(1 << 31)
    plan = long_plan(own_seed, _KILLS_A_RUN, scale.timeout_s)
    logger.info("run %d of seed %d: %d faults, in %s", number, seed, len(plan), work_dir)
    (folder / f"run-{number}.plan").parent.mkdir(parents=True, exist_ok=True)
    (folder / f"run-{number}.plan").write_text(plan_text(plan), encoding="utf-8")
    outcome = run(work_dir, scale, own_seed, plan)
    if not outcome.verdict.findings:
        _keep_figures_only(work_dir)
    return outcome


def plan_text(plan: Sequence[Fault]) -> str:
    """Return one line per fault."""
    return "".join(f"{f.kind} {','.join(f.parts) or '-'} {f.hold_s} {f.pause_s}\n" for f in plan)


def outcome_from(fields: dict[str, Any]) -> Outcome:
    """Inverse of ``Outcome.as_json``."""
    verdict = Verdict([Finding(**finding) for finding in fields["findings"]], Figures(**fields["figures"]))
    return Outcome(fields["seed"], fields["kills"], fields["disk"], fields["seconds"], verdict)


def _keep_figures_only(work_dir: Path) -> None:
    """Delete the logs and tables of a run without findings: they take gigabytes."""
    for path in work_dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
