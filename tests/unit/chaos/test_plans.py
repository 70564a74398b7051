"""Plans and fleets are determined by their seed and contain what a run needs."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from tests.chaos import fault_plan
from tests.chaos.evidence import Evidence
from tests.chaos.fault_plan import long_plan, short_plan
from tests.chaos.fleet_plan import CLUSTERS, GUARDED, FleetSize, SlotDraws, slots
from tests.chaos.guard_scenario import check_guard
from tests.chaos.parts import ALL, KAFKA
from tests.chaos.truth import BrokerKey, Journal, Span, Truth, read_truth

SERVERS = ("a", "b")


@pytest.mark.parametrize("seed", range(20))
def test_a_short_plan_has_every_kind_of_fault_that_does_not_need_a_restart_of_its_own(seed: int) -> None:
    plan = short_plan(seed, 5.0)
    kinds = Counter(fault.kind for fault in plan)
    assert set(kinds) == {fault_plan.KILL, fault_plan.FREEZE, fault_plan.CUT, *fault_plan.LIES}
    assert {part for fault in plan if fault.kind == fault_plan.KILL for part in fault.parts} == set(ALL)
    assert any(fault.parts == (KAFKA,) and fault.hold_s >= 1.5 * 5 for fault in plan)
    assert any(fault.parts == ALL for fault in plan)
    assert plan == short_plan(seed, 5.0)


def test_different_seeds_make_different_plans() -> None:
    assert len({short_plan(seed, 5.0) for seed in range(10)}) > 5
    assert len({long_plan(seed, 20, 10.0) for seed in range(10)}) == 10


def test_long_plans_have_the_requested_kills_and_every_kind_of_fault() -> None:
    plans = [long_plan(seed, 20, 10.0) for seed in range(10)]
    assert all(sum(fault.kills for fault in plan) >= 20 for plan in plans)
    assert {fault.kind for plan in plans for fault in plan} == {
        fault_plan.KILL,
        fault_plan.KILL_JVM,
        fault_plan.FREEZE,
        fault_plan.CUT,
        fault_plan.DISK_FULL,
        fault_plan.QUIET,
        *fault_plan.LIES,
    }
    assert long_plan(3, 20, 10.0) == plans[3]


def test_fleet_has_its_size_and_every_kind_of_broker() -> None:
    fleet = list(slots(FleetSize(), SERVERS, 1))
    assert Counter(slot.cluster == GUARDED for slot in fleet) == {False: 200, True: 12}
    assert {slot.cluster for slot in fleet} == {*CLUSTERS, GUARDED}
    assert {slot.servers for slot in fleet} == {("a",), ("b",), ("a", "b")}
    assert {slot.effective_ms for slot in fleet} == {4_000, 5_000, 6_000}
    assert any(slot.timeout_ms is None for slot in fleet)
    assert all(slot.is_immortal and slot.servers == SERVERS for slot in fleet if slot.cluster == GUARDED)
    masters = {slot.broker_name: slot for slot in fleet if slot.broker_id == 0}
    slaves = [slot for slot in fleet if slot.broker_id]
    assert len(slaves) > 50
    assert all(masters[slave.broker_name].cluster == slave.cluster for slave in slaves)


def test_no_two_broker_processes_share_an_address() -> None:
    addrs = [slot.addr(incarnation) for slot in slots(FleetSize(), SERVERS, 1) for incarnation in range(3)]
    assert len(addrs) == len(set(addrs))


def test_the_events_of_a_brokers_life_are_determined_by_the_seed() -> None:
    slot = next(slots(FleetSize(), SERVERS, 1))

    def draws(seed: int) -> list[object]:
        fate = SlotDraws(slot, FleetSize(), seed)
        return [fate.up_s(), fate.death(), fate.down_s(), fate.restart()]

    assert draws(1) == draws(1) != draws(2)


def test_fleet_size_survives_serialisation() -> None:
    assert FleetSize.from_json(json.loads(json.dumps(asdict(FleetSize())))) == FleetSize()


def test_the_actual_lives_of_brokers_are_read_from_journals(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    fields = {"broker_name": "n", "cluster": "c", "broker_addr": "x", "broker_id": 1, "timeout_ms": 5, "servers": ["a"]}
    journal.write("up", life=1, at=100, **fields)
    for at_ms in (130, 120):
        journal.write("ack", life=1, server="a", at=at_ms)
    journal.write("stall", ms=700, part="fleet", at=900)
    journal.write("down", life=1, at=150, how="silent")
    journal.write("up", life=2, at=160, **fields)
    journal.close()
    truth = read_truth([tmp_path / "j.jsonl"], [Span("kill", "job", 10, 20)])
    key = BrokerKey("n", "c", "x")
    assert [(life.up_ms, life.down_ms, life.how) for life in truth.of(key)] == [(100, 150, "silent"), (160, None, "")]
    assert [truth.last_ack_ms(key, "a", at) for at in (120, 121, 999)] == [None, 120, 130]
    assert truth.broken(0, 15) == [Span("kill", "job", 10, 20)]
    assert truth.broken(200, 300, "fleet") == [Span("stall", "fleet", 200, 900)]


# ---- the check of the guard ----


def _row(offset: int, kind: ChangeKind, cause: Cause, *, gone: bool = False, addr: str = "x") -> RouteChange:
    return RouteChange(0, offset, 0, 0, kind, gone, cause, None, GUARDED, "n", addr)


_SWITCH = RouteChange(
    0,
    1,
    0,
    0,
    ChangeKind.SETTING,
    False,
    Cause.SETTINGS_CHANGED,
    namespace="effective",
    key="guard_share_percent",
    value="50",
)
_HELD = _row(2, ChangeKind.GUARD, Cause.GUARD_HELD)
_HEARD = _row(3, ChangeKind.GUARD, Cause.HEARD, gone=True)
_GONE = _row(4, ChangeKind.BROKER_LIVE, Cause.EXPIRED, gone=True)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        pytest.param([_SWITCH, _HELD, _HEARD], 0, id="held and heard again"),
        pytest.param([_HELD, _HEARD], 1, id="the guard was not enabled"),
        pytest.param([_SWITCH], 1, id="no broker was held"),
        pytest.param([_SWITCH, _HELD], 1, id="held forever"),
        pytest.param([_SWITCH, _HELD, _HEARD, _GONE], 1, id="removed after the hold"),
        pytest.param(
            [_SWITCH, _HELD._replace(offset=9), _HEARD._replace(offset=10), _GONE], 0, id="removed before the hold"
        ),
    ],
)
def test_guard_check_finds_runs_in_which_brokers_were_not_held_and_kept(rows: list[RouteChange], wrong: int) -> None:
    assert len(check_guard(Evidence(Truth(()), 1_000, stored=rows), 1)) == wrong
