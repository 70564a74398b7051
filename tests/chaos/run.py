"""One run: start an environment, apply a plan of faults, wait until it is stable, and judge it."""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.chaos import guard_scenario
from tests.chaos.environment import Environment, Scale
from tests.chaos.evidence import collect
from tests.chaos.fault_plan import Fault
from tests.chaos.faults import apply_faults
from tests.chaos.truth import now_ms
from tests.chaos.verdict import Verdict, judge
from tests.support.processes import wait_until

logger = logging.getLogger(__name__)

_SETTLE_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run and its verdict.

    Attributes:
        seconds: Stage → its duration.
    """

    seed: int
    kills: int
    disk: str
    seconds: dict[str, float]
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        head = {"seed": self.seed, "kills": self.kills, "disk": self.disk, "seconds": self.seconds}
        return head | self.verdict.as_json()


def run(work_dir: Path, scale: Scale, seed: int, plan: Sequence[Fault]) -> Outcome:
    """Execute a run. The verdict is also written to ``work_dir/verdict.json``.

    Raises:
        AssertionError: A part of the product, or of the rig, does not start.
    """
    watch = _Watch()
    with Environment(work_dir, scale, seed) as environment:
        wait_until(environment.is_settled, _SETTLE_S, "both servers have exactly the live brokers")
        wait_until(environment.has_tables, _SETTLE_S, "the tables contain brokers")
        watch.lap("start")
        apply_faults(environment, plan)
        watch.lap("faults")
        environment.parts.wait_well()
        watch.lap("recovery")
        # All parts run; in the other clusters, brokers continue to end, and their expiries are checked.
        guard_scenario.play(environment)
        watch.lap("guard")
        environment.calm()
        settled = _settle(environment)
        watch.lap("settling")
        environment.machine.stop()
        end_ms = now_ms()
        evidence = collect(environment)
        watch.lap("evidence")
        kills, disk, ended = environment.parts.kills, environment.disk.kind, environment.parts.ended
    verdict = judge(evidence, end_ms, ended)
    verdict.findings.extend(guard_scenario.check_guard(evidence, scale.size.guarded))
    if not settled:
        logger.warning("not settled within %.0f s", _SETTLE_S)
    watch.lap("verdict")
    outcome = Outcome(seed, kills, disk, watch.laps, verdict)
    (work_dir / "verdict.json").write_text(json.dumps(outcome.as_json(), indent=2) + "\n", encoding="utf-8")
    return outcome


def _settle(environment: Environment) -> bool:
    """Wait until the servers have exactly the live brokers; otherwise the verdict shows the difference."""
    until = time.monotonic() + _SETTLE_S
    while time.monotonic() < until:
        if environment.is_settled():
            return True
        environment.parts.wait(0.2)
    return False


class _Watch:
    """Measures the duration of each stage in seconds."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = round(now - self._since, 1)
        self._since = now
        logger.info("%s took %.1f s", name, self.laps[name])
