"""Who is alive: observed clocks, expiry, silent servers, and how a broker ends.

A broker process is live while some server holds it. Each hold ages by the clock of its server, which moves only with
that server's records, by their LogAppendTime and at most ``max_gap_ms`` a record, and not with those by which it says
that it was away; so nothing ages that nobody could have heard. A hold ends by expiry, by a goodbye or by a closed
connection, and the broker with its last hold.

A server from which nothing came for ``server_silent_ms``, while others talked, cannot vouch: its holds go with a
broker that a talking server heard later and saw end. After ``server_lost_ms`` all its holds end.
"""

from dataclasses import replace

from namesrv_stream.route import group as rules
from namesrv_stream.route import guard, interpretation
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.events import DIRECT, JOB, Event, ServerResumed, ServerStarted, Tick
from namesrv_stream.route.fold_state import FoldState
from namesrv_stream.route.fold_step import FoldStep
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.holders import (
    drop_hold,
    heard_only_by_silent,
    held_by,
    is_vouched_for,
    is_vouched_for_without,
    not_heard,
    others,
)
from namesrv_stream.route.lease import Lease, LeaseKey, RecentClose, ServerClock


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
    if not isinstance(event, ServerStarted | ServerResumed):
        # With these a server says that it did not listen before; what it heard meanwhile comes behind.
        clock.observed_ms += _gap_ms(state, clock.previous_at_ms, at_ms)
    clock.previous_at_ms = at_ms
    clock.heard_ms = state.observed_ms
    if clock.closes:
        since_ms = clock.observed_ms - state.settings.guard_close_window_ms
        clock.closes = [close for close in clock.closes if close.closed_ms >= since_ms]
    if clock.silent:
        clock.silent = clock.lost = False
        step.server_row(server_id, Cause.SERVER_HEARD, "talking")
    if isinstance(event, Tick):
        # All that its server heard before is in the log; before another record it may be not: after an outage of
        # Kafka's above all, when many come at once.
        _expire(step, server_id, clock)
    if origin.server_id != JOB:
        _watch_servers(step)
    _forget_gone(step)


def heard(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None = None) -> None:
    """A server heard a broker just now: its hold starts again from age zero, and the guard lets go of it."""
    step.state.refresh(key, lease, server_id)
    lease.released = False
    hold = lease.hold
    if hold is None:
        return
    guard.release(step, key, lease, cause, detail or f"heard at {server_id}")
    if hold.goes_with == Cause.DISCONNECTED and hold.server_id != server_id and hold.server_id in lease.holders:
        drop_hold(step, key, lease, hold.server_id, Cause.DISCONNECTED, hold.reason)


def close(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, reason: str) -> None:
    """The connection is closed over which a server heard a broker."""
    state = step.state
    clock = state.servers[server_id]
    is_last = not is_vouched_for_without(state, lease, server_id)
    if is_last and guard.keep(step, key, server_id, Cause.DISCONNECTED, reason):
        return
    is_doubtful = is_last and not lease.released and state.settings.is_guarded(key.live_key.cluster)
    end_hold(step, key, lease, server_id, Cause.DISCONNECTED, reason)
    if is_doubtful:
        clock.closes.append(RecentClose(key, clock.observed_ms, reason, lease))


def end_hold(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None) -> None:
    """End one server's hold; the broker goes with it unless another server can vouch for it."""
    old = step.group(key.broker_name)
    is_kept = is_vouched_for_without(step.state, lease, server_id)
    new, said = interpretation.end_hold(old, key, server_id, is_kept=is_kept, detail=detail)
    step.change(old, new, cause, said)
    hold_ended(step, key, lease, server_id, cause, said)


def hold_ended(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None) -> None:
    """The group says that one server no longer hears a broker: the lease follows it."""
    if key.live_key not in step.group(key.broker_name).lives:
        retire(step, key, cause, detail)
        return
    ended = lease.holders[server_id]
    lease.holders = others(lease, server_id)
    lease.ended_heard_ms = max(ended.heard_ms, lease.ended_heard_ms or 0)


def let_go(step: FoldStep, cluster: str, cause: Cause, detail: str) -> bool:
    """Brokers of a cluster that the guard holds, or soon would, go as if there were no guard, until they are heard.

    Returns:
        Whether it held any.
    """
    state = step.state
    was_any = False
    leases = state.leases_of_cluster(cluster).items()
    ending = [(k, v) for k, v in leases if v.hold is not None or guard.is_fading(state, v)]
    for key, lease in sorted(ending, key=lambda kv: kv[0]):
        hold = lease.hold
        lease.released = True
        if hold is None:
            continue
        was_any = True
        guard.release(step, key, lease, cause, detail)
        if hold.goes_with == Cause.DISCONNECTED and hold.server_id in lease.holders:
            end_hold(step, key, lease, hold.server_id, Cause.DISCONNECTED, hold.reason)
        elif not is_vouched_for(state, lease.holders, lease.ended_heard_ms):
            remove(step, key, Cause(hold.goes_with), hold.reason)
    for server_id in sorted(state.servers):
        _expire(step, server_id, state.servers[server_id])
    return was_any


def remove(step: FoldStep, key: LeaseKey, cause: Cause, detail: str | None) -> None:
    """End a broker process; its registration is retained for a while."""
    old = step.group(key.broker_name)
    step.change(old, rules.unregister(old, key.live_key), cause, detail)
    retire(step, key, cause, detail)


def retire(step: FoldStep, key: LeaseKey, cause: Cause, detail: str | None) -> None:
    """The lease of a broker process that is gone from its group ends."""
    state = step.state
    guard.release(step, key, state.leases[key], cause, detail)
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
    few: set[str] = set()  # Clusters of which too few end at once: fewer still, when one of them is gone.
    for key in state.take_expired(server_id):
        lease = state.leases[key]
        if state.deadline_ms(lease, lease.holders[server_id]) >= clock.observed_ms:
            continue  # The guard holds it, since it looked at one of those before.
        cause, detail, hold = Cause.EXPIRED, not_heard(state, lease, server_id), lease.hold
        if hold is not None:
            if guard.is_closed(lease, server_id):
                cause, detail = Cause.DISCONNECTED, hold.reason
            detail += "; the guard held it until now"
        elif key.live_key.cluster not in few and not is_vouched_for_without(state, lease, server_id):
            if guard.keep(step, key, server_id, cause, detail):
                continue
            if not lease.released:
                few.add(key.live_key.cluster)
        end_hold(step, key, lease, server_id, cause, detail)


def _watch_servers(step: FoldStep) -> None:
    """Notice servers that fell silent, and give up on those that stay so."""
    state = step.state
    silent, lost = [], []
    for server_id in sorted(state.servers):
        clock = state.servers[server_id]
        if server_id == DIRECT or clock.lost:
            continue
        quiet_ms = state.observed_ms - clock.heard_ms
        if not clock.silent and quiet_ms >= state.settings.server_silent_ms:
            clock.silent = True
            step.server_row(server_id, Cause.SERVER_SILENT, "silent")
            silent.append(server_id)
        if clock.silent and quiet_ms >= state.settings.server_lost_ms:
            lost.append(server_id)
    # Only now, for of several that fell silent at once none vouches for what another held.
    for server_id in silent:
        _end_what_nobody_vouches_for(step, server_id)
    for server_id in lost:
        state.servers[server_id].lost = True
        step.server_row(server_id, Cause.SERVER_LOST, "lost")
        for key, lease in held_by(state, server_id):
            _lose(step, key, lease, server_id)


def _end_what_nobody_vouches_for(step: FoldStep, server_id: str) -> None:
    """A server fell silent: its word counts no more for brokers that others saw end."""
    state = step.state
    detail = heard_only_by_silent(server_id)
    for key, lease in held_by(state, server_id):
        if lease.hold is not None or is_vouched_for(state, lease.holders, lease.ended_heard_ms):
            continue
        if not guard.keep(step, key, server_id, Cause.SERVER_SILENT, detail):
            remove(step, key, Cause.SERVER_SILENT, detail)


def _lose(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str) -> None:
    """End the hold of a lost server; nobody saw the broker end, so other holds stand as they stood without it."""
    detail = f"nothing came from {server_id} for {step.state.settings.server_lost_ms} ms of observed time"
    if is_vouched_for(step.state, others(lease, server_id), lease.ended_heard_ms):
        drop_hold(step, key, lease, server_id, Cause.SERVER_LOST, detail)
    else:
        remove(step, key, Cause.SERVER_LOST, detail)


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
