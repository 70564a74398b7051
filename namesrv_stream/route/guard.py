"""The mass-expiry guard: too many brokers of a cluster that end at once are kept a while.

So many rarely die together; more often it is the way between them and the name servers. A broker seems to end when no
server has heard it for half its timeout (a silent one vouches for what it alone heard last), when its last connection
was closed at a server within ``guard_close_window_ms`` of that server's observed time, or when it is held already.
Where more than ``guard_share_percent`` of a cluster's brokers in this partition seem to end, all of them are held: each
lives for ``guard_hold_timeouts`` more timeouts since it was heard last, and then goes with its own cause. It is
released by being heard, by an operator, or by a change of the settings.

The first closes of many take effect at once, for one alone is the surest sign of a death; when later ones show that
they were many, the brokers are brought back, as their last registration says.

Everything is counted from the log: brokers by their leases, time by the clocks of the servers.
"""

from typing import NamedTuple

from namesrv_stream.route import group as rules
from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.events import Origin
from namesrv_stream.route.fold_state import FoldState
from namesrv_stream.route.fold_step import FoldStep
from namesrv_stream.route.hold import Hold, encode_hold
from namesrv_stream.route.holders import heard_only_by_silent, not_heard
from namesrv_stream.route.lease import Lease, LeaseKey, RecentClose


class Mass(NamedTuple):
    """So many of a cluster's brokers in one partition seem to end at once."""

    ending: int
    brokers: int


def keep(step: FoldStep, key: LeaseKey, server_id: str, cause: Cause, reason: str) -> bool:
    """Whether the guard keeps a broker that would go now; holds it then, and all others that seem to end.

    Args:
        step: The record.
        key: The broker, whose last hold ends.
        server_id: Where it ends.
        cause: With which it would go: also with which it goes when its hold ends.
        reason: For people.
    """
    state, cluster = step.state, key.live_key.cluster
    if state.leases[key].released or not state.settings.is_guarded(cluster):
        return False
    mass = _mass_of(state, cluster, server_id, key)
    if mass is None:
        return False
    _bring_back(step, cluster, server_id, mass)
    _hold(step, key, server_id, cause, reason, mass)
    leases = state.leases_of_cluster(cluster).items()
    fading = [(k, v) for k, v in leases if v.hold is None and not v.released and is_fading(state, v)]
    for other, lease in sorted(fading, key=lambda kv: kv[0]):
        is_silent, _, heard_at = min(
            (state.servers[s].silent, state.servers[s].observed_ms - h.seen_ms, s) for s, h in lease.holders.items()
        )
        if is_silent:
            _hold(step, other, heard_at, Cause.SERVER_SILENT, heard_only_by_silent(heard_at), mass)
        else:
            _hold(step, other, heard_at, Cause.EXPIRED, not_heard(state, lease, heard_at), mass)
    return True


def is_fading(state: FoldState, lease: Lease) -> bool:
    """Whether no talking server has heard a broker for half its timeout, and no silent one heard it after those."""
    timeout_ms = state.timeout_ms(lease)
    heard_ms = lease.ended_heard_ms
    of_silent = []
    for server_id, held in lease.holders.items():
        clock = state.servers[server_id]
        if clock.silent:
            of_silent.append(held)
        elif 2 * (clock.observed_ms - held.seen_ms) <= timeout_ms:
            return False
        else:
            heard_ms = max(held.heard_ms, heard_ms or 0)
    return heard_ms is not None and all(held.heard_ms <= heard_ms for held in of_silent)


def is_closed(lease: Lease, server_id: str) -> bool:
    """Whether a broker is held whose connection at this server was closed."""
    hold = lease.hold
    return hold is not None and hold.goes_with == Cause.DISCONNECTED and hold.server_id == server_id


def release(step: FoldStep, key: LeaseKey, lease: Lease, cause: Cause, detail: str | None) -> None:
    """The guard holds a broker no longer."""
    if lease.hold is not None:
        columns = {"broker_name": key.broker_name, **key.live_key._asdict(), "server_id": lease.hold.server_id}
        lease.hold = None
        step.state.requeue_lease(key, lease)
        step.row(ChangeKind.GUARD, True, cause, detail, **columns)


def _mass_of(state: FoldState, cluster: str, server_id: str, key: LeaseKey) -> Mass | None:
    """How many seem to end, where that is too many.

    Args:
        state: Of the partition.
        cluster: Whose brokers are counted.
        server_id: The server whose closes count too.
        key: Ends in any case.
    """
    closed = sum(close.key.live_key.cluster == cluster for close in state.servers[server_id].closes)
    leases = state.leases_of_cluster(cluster)
    this = leases[key]
    brokers = closed + len(leases)
    ending = closed + sum(v is this or v.hold is not None or is_fading(state, v) for v in leases.values())
    is_mass = ending >= state.settings.guard_min_brokers_of(state.partitions) and (
        ending * 100 > brokers * state.settings.guard_share_percent
    )
    return Mass(ending, brokers) if is_mass else None


def _hold(step: FoldStep, key: LeaseKey, server_id: str, cause: Cause, reason: str, mass: Mass) -> None:
    state = step.state
    lease = state.leases[key]
    since_ms = lease.hold.since_ms if lease.hold else state.at_ms
    lease.hold = Hold(cause, reason, server_id, since_ms, 0, *mass)
    left_ms = state.deadline_ms(lease, lease.holders[server_id]) - state.servers[server_id].observed_ms
    lease.hold = hold = lease.hold._replace(until_ms=state.at_ms + max(0, left_ms))
    state.requeue_lease(key, lease)
    detail = f"{mass.ending} of {mass.brokers} brokers of {key.live_key.cluster} seem to end at once: {reason}"
    columns = {"broker_name": key.broker_name, **key.live_key._asdict(), "server_id": server_id}
    step.row(ChangeKind.GUARD, False, Cause.GUARD_HELD, detail, **columns, value=encode_hold(hold))


def _bring_back(step: FoldStep, cluster: str, server_id: str, mass: Mass) -> None:
    """Hold what went by the closes that were the first of many; masters first, so that topics are theirs."""
    clock = step.state.servers[server_id]
    closes = [c for c in clock.closes if c.key.live_key.cluster == cluster]
    clock.closes = [c for c in clock.closes if c.key.live_key.cluster != cluster]
    for close in sorted(closes, key=lambda c: (c.key.broker_name, _broker_id(step, c.key), c.key)):
        refusal = _restore(step, close, server_id)
        if refusal is None:
            _hold(step, close.key, server_id, Cause.DISCONNECTED, close.reason, mass)
        else:
            origin = Origin(server_id, *close.lease.holders[server_id].holder)
            step.ignored(close.key, origin, Cause.GUARD_HELD, f"not brought back: {refusal}")


def _broker_id(step: FoldStep, key: LeaseKey) -> int:
    registration = step.group(key.broker_name).registrations.get(key.live_key)
    return registration.broker_id if registration else 0


def _restore(step: FoldStep, close: RecentClose, server_id: str) -> str | None:
    """Register a broker anew as it was registered last; returns why not, where it cannot be."""
    state, key, lease = step.state, close.key, close.lease
    old = step.group(key.broker_name)
    registration = old.registrations.get(key.live_key)
    if registration is None:
        return "its registration was not kept"
    for broker_id, addr in old.broker_addrs.items():
        if (broker_id == registration.broker_id) != (addr == key.live_key.broker_addr):
            return f"brokerId {broker_id} is {addr} now"
    outcome = rules.register(
        old,
        registration.read(),
        server_id,
        lease.holders[server_id].holder,
        delete_topic_with_broker_registration=state.settings.delete_topic_with_broker_registration,
    )
    if outcome.ignored is not None:
        return outcome.ignored
    new = outcome.group
    lease.holders = {s: h for s, h in lease.holders.items() if not state.servers[s].lost}
    for other_id, held in lease.holders.items():
        held.queued_ms = -1
        new = rules.hold(new, key.live_key, other_id, held.holder)
    step.change(old, new, Cause.GUARD_HELD, close.reason)
    live = new.lives[key.live_key]
    lease.asked_timeout_ms, lease.registration_hash = live.timeout_ms, live.registration_hash
    lease.settled = False
    state.add_lease(key, lease)
    state.gone.pop(key, None)
    return None
