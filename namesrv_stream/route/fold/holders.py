"""Which servers hold the lease of a broker, and which of them can vouch for it."""

from collections.abc import Mapping

from namesrv_stream.route import group as rules
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.fold.lease import Lease, LeaseHolder
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.fold.step import FoldStep
from namesrv_stream.route.model import LeaseKey


def is_vouched_for(state: FoldState, holders: Mapping[str, LeaseHolder], ended_heard_ms: int | None) -> bool:
    """Whether one of ``holders`` keeps a broker that ended at other servers.

    A silent server keeps it only if its last heartbeat came later than the last one at the other servers.

    Args:
        state: The state, which knows the silent servers.
        holders: server_id → share in the lease.
        ended_heard_ms: The partition's observed time of the last heartbeat at servers that saw the broker end; None if
            no server saw it end.
    """
    if ended_heard_ms is None:
        return bool(holders)
    return any(not state.servers[s].silent or h.heard_ms > ended_heard_ms for s, h in holders.items())


def is_vouched_for_without(state: FoldState, lease: Lease, server_id: str) -> bool:
    """Whether another server keeps a broker that has just ended at this one."""
    ended_heard_ms = max(lease.holders[server_id].heard_ms, lease.ended_heard_ms or 0)
    return is_vouched_for(state, other_holders(lease, server_id), ended_heard_ms)


def other_holders(lease: Lease, server_id: str) -> dict[str, LeaseHolder]:
    """Return the shares of the other servers."""
    return {s: h for s, h in lease.holders.items() if s != server_id}


def leases_held_by(state: FoldState, server_id: str) -> list[tuple[LeaseKey, Lease]]:
    """Return the leases that a server holds, sorted by key."""
    return sorted(((k, v) for k, v in state.leases.items() if server_id in v.holders), key=lambda kv: kv[0])


def drop_holder(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None) -> None:
    """End one server's share in a lease that other servers keep."""
    old = step.group(key.broker_name)
    step.change(old, rules.remove_holder(old, key.live_key, server_id), cause, detail)
    lease.holders = other_holders(lease, server_id)


def silence_detail(state: FoldState, lease: Lease, server_id: str) -> str:
    """Return for how long a server has received no heartbeat of a broker, for people."""
    unheard_ms = state.servers[server_id].observed_ms - lease.holders[server_id].seen_ms
    timeout_ms = state.timeout_ms(lease)
    return f"not heard for {unheard_ms} ms of observed time at {server_id}, timeout {timeout_ms} ms"


def silent_holder_detail(server_id: str) -> str:
    """Return why no server vouches for a broker, for people."""
    return f"still heard only by {server_id}, which is silent"
