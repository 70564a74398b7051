"""States of the fold that are derived from the tables, or from the states of fewer partitions, without the log."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from namesrv_stream.route.events import partition_of
from namesrv_stream.route.fold.lease import Lease, LeaseHolder, RecentClose, RecentCloses, ServerClock
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.liveness_settings import effective_texts
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.table import RouteTable


def rebuilt_state(partition: int, partitions: int, next_offset: int, at_ms: int, table: RouteTable) -> FoldState:
    """Return the state of a partition of which only the tables are left.

    The tables contain the live brokers, the holders of their leases and the settings, but not the age of each lease. So
    all leases start again from age zero: a broker that died meanwhile expires up to one timeout late, and none expires
    early. The same applies to brokers that the guard holds.

    Args:
        next_offset: The first offset that ``table`` does not cover.
        at_ms: Highest LogAppendTime in the tables for this partition, epoch milliseconds.
        table: A table of the rows of this partition only.
    """
    state = FoldState(partition, partitions, next_offset, at_ms)
    state.settings = state.settings.with_texts(effective_texts(table.settings))
    for (_, server_id), (epoch, value) in table.servers.items():
        status, _, address = value.partition(" ")
        is_lost, is_silent = status == "lost", status in ("lost", "silent")
        state.servers[server_id] = ServerClock(epoch, 0, 0, 0, silent=is_silent, lost=is_lost, address=address)
    for name, group in table.groups.items():
        for live_key, live in group.live_brokers.items():
            key = LeaseKey(name, live_key)
            lease = Lease(live.timeout_ms, live.registration_hash, hold=table.held.get(key))
            for server_id, holder in live.holders.items():
                state.servers.setdefault(server_id, ServerClock(holder.server_epoch, 0, 0, 0))
                lease.holders[server_id] = LeaseHolder(holder, 0, 0)
            state.add_lease(key, lease)
        for live_key in group.registrations.keys() - group.live_brokers.keys():
            state.gone[LeaseKey(name, live_key)] = at_ms
    return state


def repartitioned(states: Sequence[FoldState], partitions: int) -> list[FoldState]:
    """Return the states for more partitions. Each broker moves to the partition of its name, and keeps its age.

    Every partition has its own clocks, which start when a server first writes to it. To keep the ages, the
    difference between the most advanced clock and a partition's clock is added to all times of that partition.

    Args:
        states: The states of all partitions at the end of the log, by partition; not changed.
        partitions: The new number of partitions; not lower than the old one.
    """
    observed_ms = max(state.observed_ms for state in states)
    newest = {server_id: _newest_clock(states, server_id, observed_ms) for server_id in _servers(states)}
    found = [_without_brokers(states, partition, partitions, observed_ms, newest) for partition in range(partitions)]
    gone: list[tuple[int, LeaseKey]] = []
    closes: list[tuple[str, RecentClose]] = []
    for state in states:
        behind_ms = observed_ms - state.observed_ms
        server_behind_ms = {s: newest[s].observed_ms - clock.observed_ms for s, clock in state.servers.items()}
        for key, came_ms in state.new.items():
            found[partition_of(key.broker_name, partitions)].new[key] = came_ms
        for key, lease in state.leases.items():
            new = found[partition_of(key.broker_name, partitions)]
            new.add_lease(key, _moved(lease, behind_ms, server_behind_ms))
        for server_id, clock in state.servers.items():
            for close in clock.closes:
                lease = _moved(close.lease, behind_ms, server_behind_ms)
                closed_ms = close.closed_ms + server_behind_ms[server_id]
                closes.append((server_id, close._replace(closed_ms=closed_ms, lease=lease)))
        gone += ((at_ms, key) for key, at_ms in state.gone.items())
    for at_ms, key in sorted(gone):
        found[partition_of(key.broker_name, partitions)].gone[key] = at_ms
    for server_id, close in sorted(closes, key=lambda of_server: of_server[1].closed_ms):
        found[partition_of(close.key.broker_name, partitions)].servers[server_id].closes.add(close)
    return found


def _servers(states: Iterable[FoldState]) -> list[str]:
    return sorted({server_id for state in states for server_id in state.servers})


def _newest_clock(states: Iterable[FoldState], server_id: str, observed_ms: int) -> ServerClock:
    """Return one clock for a server, with the highest values of its clocks in all partitions."""
    of_states = [(state, state.servers[server_id]) for state in states if server_id in state.servers]
    clocks = [clock for _, clock in of_states]
    return ServerClock(
        server_epoch=max(clock.server_epoch for clock in clocks),
        observed_ms=max(clock.observed_ms for clock in clocks),
        previous_at_ms=max(clock.previous_at_ms for clock in clocks),
        partition_ms=max(clock.partition_ms + observed_ms - state.observed_ms for state, clock in of_states),
        silent=all(clock.silent for clock in clocks),
        lost=all(clock.lost for clock in clocks),
    )


def _without_brokers(
    states: Sequence[FoldState], partition: int, partitions: int, observed_ms: int, clocks: Mapping[str, ServerClock]
) -> FoldState:
    """Return a partition's state without brokers: its offset, settings and status of servers.

    A new partition has offset 0, and the settings and status of partition 0.
    """
    own = states[partition] if partition < len(states) else states[0]
    servers = {}
    for server_id, newest in clocks.items():
        status = own.servers.get(server_id, newest)
        servers[server_id] = replace(newest, silent=status.silent, lost=status.lost, closes=RecentCloses())
    return FoldState(
        partition,
        partitions,
        next_offset=own.next_offset if partition < len(states) else 0,
        # Later than all rows so far, so that a key's next row is its newest one, in whichever partition it was before.
        at_ms=max(state.at_ms for state in states) + 1,
        observed_ms=observed_ms,
        previous_at_ms=max(state.previous_at_ms for state in states),
        settings=own.settings,
        servers=servers,
    )


def _moved(lease: Lease, behind_ms: int, server_behind_ms: Mapping[str, int]) -> Lease:
    holders = {
        server_id: LeaseHolder(held.holder, held.seen_ms + server_behind_ms[server_id], held.partition_ms + behind_ms)
        for server_id, held in lease.holders.items()
    }
    ended_ms = None if lease.ended_partition_ms is None else lease.ended_partition_ms + behind_ms
    return replace(lease, holders=holders, ended_partition_ms=ended_ms)
