"""Which servers hold a broker, and which of them can vouch for it."""

from collections.abc import Mapping

from namesrv_stream.route import group as rules
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.fold_state import FoldState
from namesrv_stream.route.fold_step import FoldStep
from namesrv_stream.route.lease import Lease, LeaseHolder, LeaseKey


def is_vouched_for(state: FoldState, holders: Mapping[str, LeaseHolder], ended_heard_ms: int | None) -> bool:
    """Whether one of ``holders`` keeps a broker that ended elsewhere.

    Args:
        state: Says which servers are silent.
        holders: By server.
        ended_heard_ms: When it was last heard by those that saw it end, partition time; None where none saw that.
    """
    if ended_heard_ms is None:
        return bool(holders)
    return any(not state.servers[s].silent or h.heard_ms > ended_heard_ms for s, h in holders.items())


def is_vouched_for_without(state: FoldState, lease: Lease, server_id: str) -> bool:
    """Whether another server keeps a broker that has just ended at this one."""
    ended_heard_ms = max(lease.holders[server_id].heard_ms, lease.ended_heard_ms or 0)
    return is_vouched_for(state, others(lease, server_id), ended_heard_ms)


def others(lease: Lease, server_id: str) -> dict[str, LeaseHolder]:
    """The holds of the other servers."""
    return {s: h for s, h in lease.holders.items() if s != server_id}


def held_by(state: FoldState, server_id: str) -> list[tuple[LeaseKey, Lease]]:
    """What a server holds, in the order of keys."""
    return sorted(((k, v) for k, v in state.leases.items() if server_id in v.holders), key=lambda kv: kv[0])


def drop_hold(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None) -> None:
    """One server no longer holds a broker, which stays with the others."""
    old = step.group(key.broker_name)
    step.change(old, rules.end_holder(old, key.live_key, server_id), cause, detail)
    lease.holders = others(lease, server_id)


def not_heard(state: FoldState, lease: Lease, server_id: str) -> str:
    """How long a server has not heard a broker, for people."""
    unheard_ms = state.servers[server_id].observed_ms - lease.holders[server_id].seen_ms
    timeout_ms = state.timeout_ms(lease)
    return f"not heard for {unheard_ms} ms of observed time at {server_id}, timeout {timeout_ms} ms"


def heard_only_by_silent(server_id: str) -> str:
    """Why nobody vouches for a broker, for people."""
    return f"still heard only by {server_id}, which is silent"
