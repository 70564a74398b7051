"""Applies the faults of a plan to an environment."""

import logging
from collections.abc import Iterable

from tests.chaos import fault_plan
from tests.chaos.environment import Environment
from tests.chaos.fault_plan import Fault
from tests.chaos.parts import JOB

logger = logging.getLogger(__name__)


def apply_faults(environment: Environment, plan: Iterable[Fault]) -> None:
    """Apply faults one after another; parts may still be starting when the next fault begins."""
    for fault in plan:
        logger.info("%s %s for %.1f s, then %.1f s", fault.kind, ",".join(fault.parts), fault.hold_s, fault.pause_s)
        _apply(environment, fault)
        environment.parts.wait(fault.pause_s)


def _apply(environment: Environment, fault: Fault) -> None:
    parts = environment.parts
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
                environment.cut(server)
            parts.wait(fault.hold_s)
            for server in fault.parts:
                environment.heal(server)
        case fault_plan.DISK_FULL:
            _fill_disk(environment, fault.hold_s)
        case fault_plan.QUIET:
            parts.wait_well()
            parts.wait(fault.hold_s)
        case _:
            _produce_faulty_records(environment, fault.kind)


def _fill_disk(environment: Environment, hold_s: float) -> None:
    mend = environment.parts.mark_broken(JOB, fault_plan.DISK_FULL)
    environment.disk.fill(environment.parts.pids(JOB))
    environment.parts.wait(hold_s)
    environment.disk.free(environment.parts.pids(JOB))
    mend()


def _produce_faulty_records(environment: Environment, kind: str) -> None:
    # A copied tick of a stopped server adds observed time, at most one gap, although that server observed nothing. This
    # is the only fault that ages a broker. While all parts run, the servers' own ticks have already added that time.
    environment.parts.wait_well()
    match kind:
        case fault_plan.DUPLICATE:
            environment.faulty_producer.duplicate()
        case fault_plan.REORDER:
            environment.faulty_producer.reorder()
        case fault_plan.POISON:
            environment.faulty_producer.poison()
