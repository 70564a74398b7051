"""Who is alive: observed clocks, expiry, silent servers, and how a broker ends.

A broker process is live while some server holds it. Each hold ages by the clock of its server, which moves only with
that server's records, by their LogAppendTime and at most ``max_gap_ms`` a record; so nothing ages that nobody could
have heard. A hold ends by expiry, by a goodbye or by a closed connection, and the broker with its last hold.

A server from which nothing came for ``server_silent_ms``, while others talked, cannot vouch: its holds go with a
broker that a talking server heard later and saw end. After ``server_lost_ms`` all its holds end.
"""

from collections.abc import Iterable
from dataclasses import replace

from namesrv_stream.route import group as rules
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.events import DIRECT, JOB, Event, ServerResumed
from namesrv_stream.route.fold_state import FoldState, Lease, LeaseHolder, LeaseKey, ServerClock
from namesrv_stream.route.fold_step import FoldStep
from namesrv_stream.route.group import BrokerGroup


def advance_clocks(step: FoldStep, event: Event) -> None:
    """Move the clock of the record's server and the partition's, then end what that makes due.

    Args:
        event: The record's first; all of a record have one origin.
    """
    state, at_ms, origin = step.state, step.record.at_ms, event.origin
    if origin.server_id == DIRECT:
        _clock(step, DIRECT, origin.server_epoch)
        return
    if origin.server_id != JOB:
        state.observed_ms += _gap_ms(state, state.previous_at_ms, at_ms)
        state.previous_at_ms = at_ms
    # Direct producers have no ticks of their own: they age by the job's, which move nothing else.
    server_id = DIRECT if origin.server_id == JOB else origin.server_id
    clock = _clock(step, server_id, origin.server_epoch)
    clock.observed_ms += _gap_ms(state, clock.previous_at_ms, at_ms)
    clock.previous_at_ms = at_ms
    clock.heard_ms = state.observed_ms
    if clock.silent:
        clock.silent = clock.lost = False
        step.server_row(server_id, Cause.SERVER_HEARD, "talking")
    if not isinstance(event, ServerResumed):
        # A server that resumes may have lost what kept its brokers young: they start again, and none goes before.
        _expire(step, server_id, clock)
    if origin.server_id != JOB:
        _watch_servers(step)
    _forget_gone(step)


def end_hold(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None) -> None:
    """End one server's hold; the broker goes with it unless another server can vouch for it."""
    ended = lease.holders[server_id]
    rest = {s: h for s, h in lease.holders.items() if s != server_id}
    if not _is_vouched_for(step.state, rest, ended.heard_ms):
        remove(step, key, cause, detail)
        return
    _drop_hold(step, key, lease, server_id, cause, detail)
    lease.ended_heard_ms = max(ended.heard_ms, lease.ended_heard_ms or 0)


def remove(step: FoldStep, key: LeaseKey, cause: Cause, detail: str | None) -> None:
    """End a broker process; its registration is retained for a while."""
    old = step.group(key.broker_name)
    step.change(old, rules.unregister(old, key.live_key), cause, detail)
    retire(step.state, key)


def retire(state: FoldState, key: LeaseKey) -> None:
    """The lease of a broker process that is gone from its group ends."""
    state.remove_lease(key)
    state.gone[key] = state.at_ms


def _clock(step: FoldStep, server_id: str, server_epoch: int) -> ServerClock:
    clock = step.state.servers.get(server_id)
    if clock is None:
        clock = ServerClock(server_epoch, 0, step.record.at_ms, step.state.observed_ms)
        step.state.servers[server_id] = clock
    clock.server_epoch = max(clock.server_epoch, server_epoch)
    return clock


def _gap_ms(state: FoldState, previous_ms: int, at_ms: int) -> int:
    if not previous_ms:
        return 0
    return max(0, min(at_ms - previous_ms, state.settings.max_gap_ms))


def _expire(step: FoldStep, server_id: str, clock: ServerClock) -> None:
    state = step.state
    for key in state.take_expired(server_id):
        lease = state.leases[key]
        unheard_ms = clock.observed_ms - lease.holders[server_id].seen_ms
        timeout_ms = state.timeout_ms(lease)
        detail = f"not heard for {unheard_ms} ms of observed time at {server_id}, timeout {timeout_ms} ms"
        end_hold(step, key, lease, server_id, Cause.EXPIRED, detail)


def _watch_servers(step: FoldStep) -> None:
    """Notice servers that fell silent, and give up on those that stay so."""
    state = step.state
    for server_id in sorted(state.servers):
        clock = state.servers[server_id]
        if server_id == DIRECT or clock.lost:
            continue
        quiet_ms = state.observed_ms - clock.heard_ms
        if not clock.silent and quiet_ms >= state.settings.server_silent_ms:
            clock.silent = True
            step.server_row(server_id, Cause.SERVER_SILENT, "silent")
            for key, lease in _held_by(state, server_id):
                if not _is_vouched_for(state, lease.holders, lease.ended_heard_ms):
                    detail = f"still heard only by {server_id}, which is silent"
                    remove(step, key, Cause.SERVER_SILENT, detail)
        if clock.silent and quiet_ms >= state.settings.server_lost_ms:
            clock.lost = True
            step.server_row(server_id, Cause.SERVER_LOST, "lost")
            for key, lease in _held_by(state, server_id):
                _lose(step, key, lease, server_id)


def _lose(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str) -> None:
    """End the hold of a lost server; nobody saw the broker end, so other holds stand as they stood without it."""
    rest = {s: h for s, h in lease.holders.items() if s != server_id}
    detail = f"nothing came from {server_id} for {step.state.settings.server_lost_ms} ms of observed time"
    if _is_vouched_for(step.state, rest, lease.ended_heard_ms):
        _drop_hold(step, key, lease, server_id, Cause.SERVER_LOST, detail)
    else:
        remove(step, key, Cause.SERVER_LOST, detail)


def _held_by(state: FoldState, server_id: str) -> Iterable[tuple[LeaseKey, Lease]]:
    return sorted(((k, v) for k, v in state.leases.items() if server_id in v.holders), key=lambda kv: kv[0])


def _is_vouched_for(state: FoldState, holders: dict[str, LeaseHolder], ended_heard_ms: int | None) -> bool:
    """Whether one of ``holders`` keeps a broker that ended elsewhere.

    Args:
        ended_heard_ms: When the server that saw it end had last heard it, partition time; None where none saw that.
    """
    if ended_heard_ms is None:
        return bool(holders)
    return any(not state.servers[s].silent or h.heard_ms > ended_heard_ms for s, h in holders.items())


def _drop_hold(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None) -> None:
    old = step.group(key.broker_name)
    step.change(old, rules.end_holder(old, key.live_key, server_id), cause, detail)
    lease.holders = {s: h for s, h in lease.holders.items() if s != server_id}


def _forget_gone(step: FoldStep) -> None:
    state = step.state
    while state.gone:
        key, gone_at_ms = next(iter(state.gone.items()))
        if state.at_ms - gone_at_ms <= state.settings.registration_retention_ms:
            return
        del state.gone[key]
        old = step.group(key.broker_name)
        registrations = {k: v for k, v in old.registrations.items() if k != key.live_key}
        new = replace(old, registrations=registrations)
        if not (new.registrations or new.lives or new.broker_addrs):
            new = BrokerGroup(key.broker_name)
        step.change(old, new, Cause.FORGOTTEN)
