"""Liveness of brokers: the clocks of observed time, expiry, silent servers, and how a lease ends.

A broker process is live while at least one server holds its lease, which means that the server receives its heartbeats.
Every such server has a share in the lease (``LeaseHolder``), which ages by the clock of that server. The clock advances
only with the server's records, by their LogAppendTime and at most ``max_gap_ms`` per record. The records of
``ServerStarted`` and ``ServerResumed`` do not advance it, because the server was away before them. So a broker never
ages while its server could not have received a heartbeat. They renew no lease either: what the server heard meanwhile
follows before its next tick. A share ends by expiry, by unregistration or by a closed connection. The broker is removed
with its last share.

A server without a record for ``server_silent_ms``, while others wrote some, is silent. Its share then does not keep a
broker if another server, which heard the broker at least as recently, has ended its own share. After ``server_lost_ms``
the server is lost and all its shares end.
"""

from dataclasses import replace
from typing import Final

from namesrv_stream.route import group as rules
from namesrv_stream.route import interpretation
from namesrv_stream.route.changes import Cause
from namesrv_stream.route.events import DIRECT, JOB, Event, ServerResumed, ServerStarted, Tick
from namesrv_stream.route.fold import guard
from namesrv_stream.route.fold.lease import Lease, RecentClose, ServerClock
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.fold.step import (
    FoldStep,
    drop_holder,
    is_vouched_for,
    is_vouched_for_without,
    leases_held_by,
    other_holders,
    silence_detail,
    silent_holder_detail,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import LeaseKey

#: The most registrations of ended brokers that a partition retains; each batch reads and writes the list of them.
MAX_RETAINED: Final = 10_000


def advance_clocks(step: FoldStep, event: Event) -> None:
    """Advance the clocks of the record's server and of the partition, and end leases and registrations that are due.

    Args:
        event: The first event of the record; all events of a record have the same server.
    """
    state, at_ms, origin = step.state, step.record.at_ms, event.origin
    state.settle_new()
    if origin.server_id == DIRECT:
        _clock(step, DIRECT, origin.server_epoch)
        return
    if origin.server_id != JOB:
        state.observed_ms += _gap_ms(state, state.previous_at_ms, at_ms)
        state.previous_at_ms = at_ms
    # Direct publishers have no ticks. Their brokers age by the job's ticks, which have no other effect.
    server_id = DIRECT if origin.server_id == JOB else origin.server_id
    clock = _clock(step, server_id, origin.server_epoch)
    if not isinstance(event, ServerStarted | ServerResumed):
        # With these events, a server says that it was away until now.
        clock.observed_ms += _gap_ms(state, clock.previous_at_ms, at_ms)
    clock.previous_at_ms = at_ms
    clock.partition_ms = state.observed_ms
    state.advance(server_id)
    clock.closes.discard_older(clock.observed_ms - state.settings.guard_close_window_ms)
    if clock.silent:
        clock.silent = clock.lost = False
        step.server_row(server_id, Cause.SERVER_HEARD, "talking")
        for key, lease in leases_held_by(state, server_id):
            state.review(key, lease)
    if isinstance(event, Tick):
        # A tick says that everything that its server received is in the log. Before other records, heartbeats may be
        # missing, in particular after an outage of Kafka.
        _expire(step, server_id, clock)
    if origin.server_id != JOB:
        _watch_servers(step)
    _drop_old_registrations(step)


def advertise(step: FoldStep, tick: Tick) -> None:
    """Write a row if a tick adds its server to the list of name servers, changes its address there, or removes it."""
    server_id, server_epoch, _ = tick.origin
    clock = step.state.servers.get(server_id)
    # Neither the job nor a direct publisher is a name server, and ticks of an earlier start may arrive late.
    if clock is None or server_id == DIRECT or server_epoch != clock.server_epoch or tick.address == clock.address:
        return
    clock.address = tick.address
    step.server_row(server_id, Cause.SERVER_LISTED if tick.address else Cause.SERVER_UNLISTED, "talking")


def renew(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None = None) -> None:
    """Renew a server's share in a lease after a heartbeat, and end a hold of the guard."""
    step.state.renew(key, lease, server_id)
    lease.released = False
    hold = lease.hold
    if hold is None:
        return
    guard.release(step, key, lease, cause, detail or f"heard at {server_id}")
    if hold.goes_with == Cause.DISCONNECTED and hold.server_id != server_id and hold.server_id in lease.holders:
        drop_holder(step, key, lease, hold.server_id, Cause.DISCONNECTED, hold.reason)


def close(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, reason: str) -> None:
    """Apply a closed connection: end the server's share in a lease, or let the guard hold the broker."""
    state = step.state
    clock = state.servers[server_id]
    is_last = not is_vouched_for_without(state, lease, server_id)
    if is_last and guard.hold_if_many_fail(step, key, server_id, Cause.DISCONNECTED, reason):
        return
    may_be_restored = is_last and not lease.released and state.settings.is_guarded(key.live_key.cluster)
    end_holder(step, key, lease, server_id, Cause.DISCONNECTED, reason)
    if may_be_restored:
        clock.closes.add(RecentClose(key, clock.observed_ms, reason, lease, key not in state.new))


def end_holder(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None) -> None:
    """End one server's share in a lease, and remove the broker unless another server keeps it."""
    old = step.group(key.broker_name)
    is_kept = is_vouched_for_without(step.state, lease, server_id)
    new, full_detail = interpretation.end_holder(old, key, server_id, is_kept=is_kept, detail=detail)
    step.change(old, new, cause, full_detail)
    holder_ended(step, key, lease, server_id, cause, full_detail)


def holder_ended(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str, cause: Cause, detail: str | None) -> None:
    """Update a lease after its group has lost a holder of the broker, or the broker itself."""
    if key.live_key not in step.group(key.broker_name).live_brokers:
        retire(step, key, cause, detail)
        return
    ended = lease.holders[server_id]
    lease.holders = other_holders(lease, server_id)
    lease.ended_partition_ms = max(ended.partition_ms, lease.ended_partition_ms or 0)
    step.state.review(key, lease)


def release_cluster(step: FoldStep, cluster: str, cause: Cause, detail: str) -> bool:
    """Release all brokers of a cluster that the guard holds, and remove those that would have been removed without it.

    The guard does not hold any broker of the cluster that seems to fail now, until the broker sends another heartbeat.

    Returns:
        Whether the guard held any.
    """
    state = step.state
    was_any = False
    for key, lease in sorted(state.of_cluster(cluster).failing.items(), key=lambda kv: kv[0]):
        hold = lease.hold
        lease.released = True
        state.review(key, lease)
        if hold is None:
            continue
        was_any = True
        guard.release(step, key, lease, cause, detail)
        if hold.goes_with == Cause.DISCONNECTED and hold.server_id in lease.holders:
            end_holder(step, key, lease, hold.server_id, Cause.DISCONNECTED, hold.reason)
        elif not is_vouched_for(state, lease.holders, lease.ended_partition_ms):
            remove(step, key, Cause(hold.goes_with), hold.reason)
    for server_id in sorted(state.servers):
        _expire(step, server_id, state.servers[server_id])
    return was_any


def remove(step: FoldStep, key: LeaseKey, cause: Cause, detail: str | None) -> None:
    """Remove a broker process. Its registration is retained for a while."""
    old = step.group(key.broker_name)
    step.change(old, rules.unregister(old, key.live_key), cause, detail)
    retire(step, key, cause, detail)


def retire(step: FoldStep, key: LeaseKey, cause: Cause, detail: str | None) -> None:
    """End the lease of a broker process that its group no longer contains."""
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
    below_limit: set[str] = set()  # Clusters with few failures. Each removal lowers the number further.
    for key in state.pop_expired(server_id):
        lease = state.leases[key]
        if state.deadline_ms(lease, lease.holders[server_id]) >= clock.observed_ms:
            continue  # The guard has held it together with a broker earlier in this loop.
        cause, detail, hold = Cause.EXPIRED, silence_detail(state, lease, server_id), lease.hold
        if hold is not None:
            if guard.is_closed(lease, server_id):
                cause, detail = Cause.DISCONNECTED, hold.reason
            detail += "; the guard held it until now"
        elif key.live_key.cluster not in below_limit and not is_vouched_for_without(state, lease, server_id):
            if guard.hold_if_many_fail(step, key, server_id, cause, detail):
                continue
            if not lease.released:
                below_limit.add(key.live_key.cluster)
        end_holder(step, key, lease, server_id, cause, detail)


def _watch_servers(step: FoldStep) -> None:
    """Mark servers without recent records as silent, later as lost, and forget them after a day."""
    state = step.state
    silent, lost = [], []
    for server_id in sorted(state.servers):
        clock = state.servers[server_id]
        quiet_ms = state.observed_ms - clock.partition_ms
        if server_id == DIRECT or clock.lost:
            if clock.lost and quiet_ms >= state.settings.registration_retention_ms:
                del state.servers[server_id]  # it holds nothing, and starts as a new one if it returns
            continue
        if not clock.silent and quiet_ms >= state.settings.server_silent_ms:
            clock.silent = True
            step.server_row(server_id, Cause.SERVER_SILENT, "silent")
            silent.append(server_id)
        if clock.silent and quiet_ms >= state.settings.server_lost_ms:
            lost.append(server_id)
    # After the loop: of several servers that become silent at once, none may vouch for brokers of another.
    for key, lease in (kv for server_id in silent for kv in leases_held_by(state, server_id)):
        state.review(key, lease)
    for server_id in silent:
        _remove_unvouched(step, server_id)
    for server_id in lost:
        state.servers[server_id].lost = True
        step.server_row(server_id, Cause.SERVER_LOST, "lost")
        for key, lease in leases_held_by(state, server_id):
            _end_lost_holder(step, key, lease, server_id)


def _remove_unvouched(step: FoldStep, server_id: str) -> None:
    """Remove the brokers that ended at other servers and that only this server kept until it became silent."""
    state = step.state
    detail = silent_holder_detail(server_id)
    for key, lease in leases_held_by(state, server_id):
        if lease.hold is not None or is_vouched_for(state, lease.holders, lease.ended_partition_ms):
            continue
        if not guard.hold_if_many_fail(step, key, server_id, Cause.SERVER_SILENT, detail):
            remove(step, key, Cause.SERVER_SILENT, detail)


def _end_lost_holder(step: FoldStep, key: LeaseKey, lease: Lease, server_id: str) -> None:
    """End a lost server's share in a lease. The server saw no failure, so ``ended_partition_ms`` does not change."""
    detail = f"nothing came from {server_id} for {step.state.settings.server_lost_ms} ms of observed time"
    if is_vouched_for(step.state, other_holders(lease, server_id), lease.ended_partition_ms):
        drop_holder(step, key, lease, server_id, Cause.SERVER_LOST, detail)
    else:
        remove(step, key, Cause.SERVER_LOST, detail)


def _drop_old_registrations(step: FoldStep) -> None:
    """Delete retained registrations that are older than ``registration_retention_ms``, and the oldest of too many."""
    state = step.state
    while state.gone:
        key, gone_at_ms = next(iter(state.gone.items()))
        is_old = state.at_ms - gone_at_ms > state.settings.registration_retention_ms
        if not is_old and len(state.gone) <= MAX_RETAINED:
            return
        del state.gone[key]
        state.new.pop(key, None)
        old = step.group(key.broker_name)
        registrations = {k: v for k, v in old.registrations.items() if k != key.live_key}
        new = replace(old, registrations=registrations)
        if not (new.registrations or new.live_brokers or new.broker_addrs):
            new = BrokerGroup(key.broker_name)
        step.change(old, new, Cause.FORGOTTEN)
