"""Scenario of the mass-expiry guard: the network of a cluster breaks; no broker is removed, and all return."""

import subprocess
import sys
from typing import Final

from namesrv_stream.route.changes import ChangeKind
from tests.chaos.environment import Environment
from tests.chaos.evidence import Evidence
from tests.chaos.fleet_plan import GUARDED
from tests.chaos.log_checks import Finding
from tests.chaos.parts import JOB, SERVERS
from tests.chaos.truth import BrokerKey
from tests.support.kafka import REPOSITORY
from tests.support.processes import wait_until

_SETTLE_S: Final = 120.0
_CHECK: Final = "the guard keeps a cluster that is cut off"


def play(environment: Environment) -> None:
    """Enable the guard, cut the cluster off from both servers until all its brokers are held, and repair the network.

    Raises:
        AssertionError: The guard does not hold them, or does not release them.
    """
    _switch_on(environment)
    for server in SERVERS:
        environment.cut(server, GUARDED)
    _wait_held(environment, True)
    for server in SERVERS:
        environment.heal(server, GUARDED)
    _wait_held(environment, False)


def _switch_on(environment: Environment) -> None:
    """Enable the guard by a setting at run time, as an operator does."""
    conf = environment.work_dir / f"{JOB}.toml"
    command = [sys.executable, "-m", "namesrv_stream", "config", "set", "liveness.guard_share_percent", "50"]
    done = subprocess.run(
        [*command, "--conf", str(conf)], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def _wait_held(environment: Environment, are_held: bool) -> None:
    def all_are() -> bool:
        environment.parts.tend()
        found = [environment.get(server, f"/brokers?cluster={GUARDED}") for server in SERVERS]
        return all(
            brokers is not None
            and len(brokers) == environment.scale.size.guarded
            and all((broker["held"] is not None) == are_held for broker in brokers)
            for brokers in found
        )

    wait_until(all_are, _SETTLE_S, f"all of {GUARDED} are {'held' if are_held else 'released'} at both servers")


def check_guard(evidence: Evidence, brokers: int) -> list[Finding]:
    """Check that every broker of the cluster was held and heard again, and none was removed while the guard was on."""
    rows = [row for row in evidence.stored if row.cluster == GUARDED]
    began = min((row.offset for row in evidence.stored if _is_switch(row.kind, row.key, row.value)), default=None)
    if began is None:
        return [Finding(_CHECK, "the guard was never switched on")]
    found = []
    held = {_key(r.broker_name, r.broker_addr) for r in rows if r.kind == ChangeKind.GUARD and not r.gone}
    heard = {
        _key(r.broker_name, r.broker_addr)
        for r in rows
        if r.kind == ChangeKind.GUARD and r.gone and r.cause in ("heard", "registered", "returned")
    }
    if len(held) != brokers:
        found.append(Finding(_CHECK, f"{len(held)} of {brokers} were held"))
    if heard != held:
        found.append(Finding(_CHECK, f"held, but not heard again: {sorted(held - heard)}"))
    first = {r.partition: r.offset for r in reversed(rows) if r.kind == ChangeKind.GUARD and not r.gone}
    gone = [
        r for r in rows if r.kind == ChangeKind.BROKER_LIVE and r.gone and r.offset >= first.get(r.partition, 1 << 62)
    ]
    found += [Finding(_CHECK, f"gone: {row}") for row in gone]
    return found


def _is_switch(kind: str, key: str | None, value: str | None) -> bool:
    return kind == ChangeKind.SETTING and key == "guard_share_percent" and value == "50"


def _key(broker_name: str | None, addr: str | None) -> BrokerKey:
    return BrokerKey(broker_name or "", GUARDED, addr or "")
