"""Logs, fleets and queries that the tests of expiry and of the mass-expiry guard share."""

from collections.abc import Iterable

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import Registration
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from tests.support.builders import (
    CLUSTER,
    S1,
    S2,
    Log,
    a_registration,
    of_kind,
)

#: Timeout of the brokers, in milliseconds. Servers tick every 500 ms, and one record counts for 2,000 ms at most.
TIMEOUT_MS = 10_000
ADDR = "10.0.0.1:10911"
SETTINGS = FoldSettings(guard_known_ms=0, server_silent_ms=15_000, server_lost_ms=60_000)

broker = a_registration(timeout_ms=TIMEOUT_MS)


def a_liveness_log(settings: FoldSettings = SETTINGS) -> Log:
    return Log(settings)


def removal_causes(rows: list[RouteChange], kind: ChangeKind = ChangeKind.BROKER_LIVE) -> list[str]:
    return [row.cause for row in of_kind(rows, kind) if row.gone]


def details(rows: list[RouteChange], kind: ChangeKind = ChangeKind.BROKER_DATA) -> list[str | None]:
    return [row.detail for row in of_kind(rows, kind)]


def hold_at_both(log: Log) -> Log:
    log.register(broker, S1)
    log.register(broker, S2)
    return log


def a_fleet(brokers: int, cluster: str = CLUSTER, timeout_ms: int = TIMEOUT_MS) -> list[Registration]:
    return [
        a_registration(f"10.0.0.{n}:1", broker_name=f"{cluster}-{n}", cluster=cluster, timeout_ms=timeout_ms)
        for n in range(brokers)
    ]


def a_fleet_log(fleet: Iterable[Registration], settings: FoldSettings | None = None, partitions: int = 1) -> Log:
    log = Log(settings or FoldSettings(guard_known_ms=0), partitions=partitions)
    for registration in fleet:
        log.register(registration)
    return log


def pass_time_with_heartbeats(log: Log, ms: int, hearing: Iterable[Registration] = ()) -> list[RouteChange]:
    """Let the server tick every half second; the brokers in ``hearing`` send a heartbeat at every tick."""
    rows: list[RouteChange] = []
    for step in [500] * (ms // 500) + [ms % 500] * (ms % 500 > 0):
        rows += log.tick(step)
        for registration in hearing:
            rows += log.beat(registration)
    return rows


def held_addrs(log: Log) -> set[str]:
    """Return the addresses of held brokers; asserts that the rows agree with the fold."""
    table = RouteTable()
    apply(table, log.output.changes)
    assert table.held == {key: lease.hold for key, lease in log.state.leases.items() if lease.hold}
    return {key.live_key.broker_addr for key in table.held}


def addrs(fleet: Iterable[Registration]) -> set[str]:
    return {registration.broker_addr for registration in fleet}


def removals(rows: Iterable[RouteChange]) -> list[tuple[str, str]]:
    return [(row.broker_addr or "", row.cause) for row in of_kind(rows, ChangeKind.BROKER_LIVE) if row.gone]


def close_all(log: Log, fleet: Iterable[Registration], every_ms: int = 0) -> list[RouteChange]:
    rows: list[RouteChange] = []
    for registration in fleet:
        rows += log.tick(every_ms)
        rows += log.disconnect(registration)
    return rows
