"""The fold's state carried over to more partitions: each broker goes on where its name now belongs, as old as it was.

Every partition has clocks of its own, which began when a server first wrote to it. So that an age stays the same, what
a partition's clock has stamped is moved by what that clock is behind the one of the partition that has observed most.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from namesrv_stream.route.fold_state import FoldState
from namesrv_stream.route.lease import Lease, LeaseHolder, LeaseKey, ServerClock
from namesrv_stream.route.partitioner import partition_of


def repartitioned(states: Sequence[FoldState], partitions: int) -> list[FoldState]:
    """The states of as many partitions, from all states at the end of the log.

    Args:
        states: Of the partitions, in their order; left as they are.
        partitions: How many there shall be; no fewer.
    """
    observed_ms = max(state.observed_ms for state in states)
    newest = {server_id: _newest_clock(states, server_id, observed_ms) for server_id in _servers(states)}
    found = [_without_brokers(states, partition, partitions, observed_ms, newest) for partition in range(partitions)]
    gone: list[tuple[int, LeaseKey]] = []
    for state in states:
        behind_ms = observed_ms - state.observed_ms
        server_behind_ms = {s: newest[s].observed_ms - clock.observed_ms for s, clock in state.servers.items()}
        for key, lease in state.leases.items():
            new = found[partition_of(key.broker_name, partitions)]
            new.add_lease(key, _moved(lease, behind_ms, server_behind_ms))
        for server_id, clock in state.servers.items():
            for close in clock.closes:
                closes = found[partition_of(close.key.broker_name, partitions)].servers[server_id].closes
                lease = _moved(close.lease, behind_ms, server_behind_ms)
                closes.append(close._replace(closed_ms=close.closed_ms + server_behind_ms[server_id], lease=lease))
        gone += ((at_ms, key) for key, at_ms in state.gone.items())
    for at_ms, key in sorted(gone):
        found[partition_of(key.broker_name, partitions)].gone[key] = at_ms
    for new in found:
        for clock in new.servers.values():
            clock.closes.sort(key=lambda close: close.closed_ms)
        new.requeue()
    return found


def _servers(states: Iterable[FoldState]) -> list[str]:
    return sorted({server_id for state in states for server_id in state.servers})


def _newest_clock(states: Iterable[FoldState], server_id: str, observed_ms: int) -> ServerClock:
    """The clock of a server that has observed most, in any partition."""
    of_states = [(state, state.servers[server_id]) for state in states if server_id in state.servers]
    clocks = [clock for _, clock in of_states]
    return ServerClock(
        server_epoch=max(clock.server_epoch for clock in clocks),
        observed_ms=max(clock.observed_ms for clock in clocks),
        previous_at_ms=max(clock.previous_at_ms for clock in clocks),
        heard_ms=max(clock.heard_ms + observed_ms - state.observed_ms for state, clock in of_states),
        silent=all(clock.silent for clock in clocks),
        lost=all(clock.lost for clock in clocks),
    )


def _without_brokers(
    states: Sequence[FoldState], partition: int, partitions: int, observed_ms: int, clocks: Mapping[str, ServerClock]
) -> FoldState:
    """A partition's own offset, settings and servers' standing, those of the first one where it is new."""
    own = states[partition] if partition < len(states) else states[0]
    servers = {}
    for server_id, newest in clocks.items():
        standing = own.servers.get(server_id, newest)
        servers[server_id] = replace(newest, silent=standing.silent, lost=standing.lost, closes=[])
    return FoldState(
        partition,
        partitions,
        next_offset=own.next_offset if partition < len(states) else 0,
        at_ms=max(state.at_ms for state in states),
        observed_ms=observed_ms,
        previous_at_ms=max(state.previous_at_ms for state in states),
        settings=own.settings,
        servers=servers,
    )


def _moved(lease: Lease, behind_ms: int, server_behind_ms: Mapping[str, int]) -> Lease:
    holders = {
        server_id: LeaseHolder(held.holder, held.seen_ms + server_behind_ms[server_id], held.heard_ms + behind_ms)
        for server_id, held in lease.holders.items()
    }
    ended_ms = None if lease.ended_heard_ms is None else lease.ended_heard_ms + behind_ms
    return replace(lease, holders=holders, ended_heard_ms=ended_ms)
