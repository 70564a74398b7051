"""Does to a world what a plan says."""

import logging
from collections.abc import Iterable

from tests.chaos import fault_plan
from tests.chaos.fault_plan import Fault
from tests.chaos.parts import JOB
from tests.chaos.world import World

logger = logging.getLogger(__name__)


def suffer(world: World, plan: Iterable[Fault]) -> None:
    """Apply faults one after another; parts of one may still be starting when the next comes."""
    for fault in plan:
        logger.info("%s %s for %.1f s, then %.1f s", fault.kind, ",".join(fault.parts), fault.hold_s, fault.pause_s)
        _apply(world, fault)
        world.parts.wait(fault.pause_s)


def _apply(world: World, fault: Fault) -> None:
    parts = world.parts
    match fault.kind:
        case fault_plan.KILL:
            parts.kill(fault.parts)
            parts.wait(fault.hold_s)
            parts.revive(fault.parts)
        case fault_plan.KILL_JVM:
            parts.kill_jvm()
        case fault_plan.FREEZE:
            parts.freeze(fault.parts)
            parts.wait(fault.hold_s)
            parts.thaw(fault.parts)
        case fault_plan.CUT:
            for server in fault.parts:
                world.cut(server)
            parts.wait(fault.hold_s)
            for server in fault.parts:
                world.heal(server)
        case fault_plan.DISK_FULL:
            _fill_disk(world, fault.hold_s)
        case fault_plan.QUIET:
            parts.wait_well()
            parts.wait(fault.hold_s)
        case _:
            _lie(world, fault.kind)


def _fill_disk(world: World, hold_s: float) -> None:
    mend = world.parts.suffer(JOB, fault_plan.DISK_FULL)
    world.disk.fill(world.parts.pids(JOB))
    world.parts.wait(hold_s)
    world.disk.free(world.parts.pids(JOB))
    mend()


def _lie(world: World, kind: str) -> None:
    # A copied tick of a server that is away says that time passed which nobody observed, a gap at most: the one lie
    # that ages a broker. With all parts there the servers' own ticks have said so already.
    world.parts.wait_well()
    match kind:
        case fault_plan.DUPLICATE:
            world.liar.duplicate()
        case fault_plan.REORDER:
            world.liar.reorder()
        case fault_plan.POISON:
            world.liar.poison()
