"""One run: start a world, break it by a plan, let it calm down, judge it."""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.chaos import guard_scene
from tests.chaos.evidence import collect
from tests.chaos.fault_plan import Fault
from tests.chaos.faults import suffer
from tests.chaos.truth import now_ms
from tests.chaos.verdict import Verdict, judge
from tests.chaos.world import Scale, World
from tests.support.processes import wait_until

logger = logging.getLogger(__name__)

_SETTLE_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run and its verdict.

    Attributes:
        seconds: What took how long.
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
    """All of it; blocks. The verdict is in ``work_dir/verdict.json`` too.

    Raises:
        AssertionError: A part of the product, or of the rig, does not come up.
    """
    watch = _Watch()
    with World(work_dir, scale, seed) as world:
        wait_until(world.is_settled, _SETTLE_S, "the whole fleet is served")
        wait_until(world.has_tables, _SETTLE_S, "the job has written brokers")
        watch.lap("start")
        suffer(world, plan)
        watch.lap("faults")
        world.parts.wait_well()
        watch.lap("recovery")
        # All parts run; in the other clusters brokers go on dying, and are seen to.
        guard_scene.play(world)
        watch.lap("guard")
        world.calm()
        settled = _settle(world)
        watch.lap("settling")
        world.machine.stop()
        end_ms = now_ms()
        evidence = collect(world)
        watch.lap("evidence")
        kills, disk, ended = world.parts.kills, world.disk.kind, world.parts.ended
    verdict = judge(evidence, end_ms, ended)
    verdict.findings.extend(guard_scene.check_guard(evidence, scale.size.guarded))
    if not settled:
        logger.warning("not settled within %.0f s", _SETTLE_S)
    watch.lap("verdict")
    outcome = Outcome(seed, kills, disk, watch.laps, verdict)
    (work_dir / "verdict.json").write_text(json.dumps(outcome.as_json(), indent=2) + "\n", encoding="utf-8")
    return outcome


def _settle(world: World) -> bool:
    """Wait until the servers have exactly who lives; the verdict says what differs if they do not come to that."""
    until = time.monotonic() + _SETTLE_S
    while time.monotonic() < until:
        if world.is_settled():
            return True
        world.parts.wait(0.2)
    return False


class _Watch:
    """How long each stage took, seconds."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name] = round(now - self._since, 1)
        self._since = now
        logger.info("%s took %.1f s", name, self.laps[name])
