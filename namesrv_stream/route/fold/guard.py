"""The mass-expiry guard: if too many brokers of a cluster seem to fail at once, it holds them for a while.

Many brokers rarely die together. More often, the network between them and the name servers has failed. A broker seems
to fail in three cases. (1) At every server that is not silent, its last heartbeat is older than half of its timeout,
and no silent server received a later one. (2) At the server at which another broker fails now, its last connection was
closed within the last ``guard_close_window_ms`` of observed time. (3) The guard holds it already.

Only known brokers count: those that were live for ``guard_known_ms`` of log time without interruption. A broker stays
known until its registration is forgotten. So brokers that come and go do not change the decision.

If at least ``guard_min_brokers_of(partitions)`` of a cluster's brokers in this partition seem to fail, and these are
more than ``guard_share_percent`` of them, the guard holds those that seem to fail. A held broker lives for
``1 + guard_hold_timeouts`` timeouts after its last heartbeat, and is then removed, for example as ``expired``. A
heartbeat, an operator, or settings that switch the guard off for its cluster release it.

If many connections are closed, the first ones take effect at once, because a single closed connection is reliable
evidence of a death. If later ones show that there are many, the guard restores the removed brokers from their last
registrations.

The guard depends on the log only: it counts brokers by their leases, and time by the clocks of the servers.
"""

from typing import NamedTuple

from namesrv_stream.route import group as rules
from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.events import Origin
from namesrv_stream.route.fold.lease import Lease, RecentClose
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.fold.step import FoldStep, silence_detail, silent_holder_detail
from namesrv_stream.route.model import Hold, LeaseKey, encode_hold
from namesrv_stream.route.registration import register


class MassFailure(NamedTuple):
    """``ending`` of the ``brokers`` that a cluster has in one partition seem to fail at once."""

    ending: int
    brokers: int


def hold_if_many_fail(step: FoldStep, key: LeaseKey, server_id: str, cause: Cause, reason: str) -> bool:
    """Hold a broker that would be removed now, and all others of its cluster that seem to fail, if these are too many.

    Args:
        key: The broker, whose last share in its lease ends.
        server_id: The server at which it ends.
        cause: The cause of its removal, now or at the end of the hold.
        reason: The reason, for people.

    Returns:
        Whether the guard holds the broker.
    """
    state, cluster = step.state, key.live_key.cluster
    if state.leases[key].released or not state.settings.is_guarded(cluster):
        return False
    failure = _mass_failure(state, cluster, server_id, key)
    if failure is None:
        return False
    _restore_closed(step, cluster, server_id, failure)
    _hold(step, key, server_id, cause, reason, failure)
    for other, lease in sorted(state.of_cluster(cluster).suspects.items(), key=lambda kv: kv[0]):
        is_silent, _, last_at = min(
            (state.servers[s].silent, state.servers[s].observed_ms - h.seen_ms, s) for s, h in lease.holders.items()
        )
        if is_silent:
            _hold(step, other, last_at, Cause.SERVER_SILENT, silent_holder_detail(last_at), failure)
        else:
            _hold(step, other, last_at, Cause.EXPIRED, silence_detail(state, lease, last_at), failure)
    return True


def is_closed(lease: Lease, server_id: str) -> bool:
    """Whether the guard holds a broker because its connection at this server was closed."""
    hold = lease.hold
    return hold is not None and hold.goes_with == Cause.DISCONNECTED and hold.server_id == server_id


def release(step: FoldStep, key: LeaseKey, lease: Lease, cause: Cause, detail: str | None) -> None:
    """End the hold of a broker, if the guard holds it."""
    if lease.hold is not None:
        columns = {"broker_name": key.broker_name, **key.live_key._asdict(), "server_id": lease.hold.server_id}
        lease.hold = None
        step.state.requeue_lease(key, lease)
        step.row(ChangeKind.GUARD, True, cause, detail, **columns)


def _mass_failure(state: FoldState, cluster: str, server_id: str, key: LeaseKey) -> MassFailure | None:
    """Return how many brokers seem to fail, if these are too many; otherwise None.

    Args:
        state: The state of the partition.
        cluster: The cluster whose brokers are counted.
        server_id: The server whose recent closes count as well.
        key: A broker that counts as failed in any case, if it is known.
    """
    of_cluster, closed = state.of_cluster(cluster), state.servers[server_id].closes.known[cluster]
    brokers = closed + len(of_cluster.known)
    ending = closed + len(of_cluster.failing_known) + (key in of_cluster.known and key not in of_cluster.failing)
    are_many = ending >= state.settings.guard_min_brokers_of(state.partitions) and (
        ending * 100 > brokers * state.settings.guard_share_percent
    )
    return MassFailure(ending, brokers) if are_many else None


def _hold(step: FoldStep, key: LeaseKey, server_id: str, cause: Cause, reason: str, failure: MassFailure) -> None:
    state = step.state
    lease = state.leases[key]
    since_ms = lease.hold.since_ms if lease.hold else state.at_ms
    lease.hold = Hold(cause, reason, server_id, since_ms, 0, *failure)
    left_ms = state.deadline_ms(lease, lease.holders[server_id]) - state.servers[server_id].observed_ms
    lease.hold = hold = lease.hold._replace(until_ms=state.at_ms + max(0, left_ms))
    state.requeue_lease(key, lease)
    detail = f"{failure.ending} of {failure.brokers} brokers of {key.live_key.cluster} seem to end at once: {reason}"
    columns = {"broker_name": key.broker_name, **key.live_key._asdict(), "server_id": server_id}
    step.row(ChangeKind.GUARD, False, Cause.GUARD_HELD, detail, **columns, value=encode_hold(hold))


def _restore_closed(step: FoldStep, cluster: str, server_id: str, failure: MassFailure) -> None:
    """Restore and hold the brokers in ``closes``; masters first, because topics come from their registrations."""
    closes = step.state.servers[server_id].closes.take(cluster)
    for close in sorted(closes, key=lambda c: (c.key.broker_name, _broker_id(step, c.key), c.key)):
        refusal = _restore(step, close, server_id)
        if refusal is None:
            _hold(step, close.key, server_id, Cause.DISCONNECTED, close.reason, failure)
        else:
            origin = Origin(server_id, *close.lease.holders[server_id].holder)
            step.ignored(close.key, origin, Cause.GUARD_HELD, f"not brought back: {refusal}")


def _broker_id(step: FoldStep, key: LeaseKey) -> int:
    registration = step.group(key.broker_name).registrations.get(key.live_key)
    return registration.broker_id if registration else 0


def _restore(step: FoldStep, close: RecentClose, server_id: str) -> str | None:
    """Register a broker again with its last registration. Return why this is not possible, otherwise None."""
    state, key, lease = step.state, close.key, close.lease
    old = step.group(key.broker_name)
    registration = old.registrations.get(key.live_key)
    if registration is None:
        return "its registration was not kept"
    for broker_id, addr in old.broker_addrs.items():
        if (broker_id == registration.broker_id) != (addr == key.live_key.broker_addr):
            return f"brokerId {broker_id} is {addr} now"
    outcome = register(
        old,
        registration.read(),
        server_id,
        lease.holders[server_id].holder,
        state.settings.of_registrations,
    )
    if outcome.ignored is not None:
        return outcome.ignored
    new = outcome.group
    servers = state.servers  # without those that were lost a day ago
    lease.holders = {s: h for s, h in lease.holders.items() if s in servers and not servers[s].lost}
    for other_id, held in lease.holders.items():
        held.queued_ms = -1
        new = rules.set_holder(new, key.live_key, other_id, held.holder)
    step.change(old, new, Cause.GUARD_HELD, close.reason)
    live = new.live_brokers[key.live_key]
    lease.requested_timeout_ms, lease.registration_hash = live.timeout_ms, live.registration_hash
    lease.is_up_to_date = False
    state.add_lease(key, lease)
    state.gone.pop(key, None)
    return None
