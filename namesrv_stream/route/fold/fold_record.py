"""The fold of one record: it updates the state and the broker groups, and appends the changes to the output.

The outcome depends on the records alone, not on how they are cut into batches. The fold reads no clock, and settings
arrive as ``settings_changed`` events. ``state`` and ``groups`` are changed in place, because copying them for each
record would cost more than the fold itself. An item that fails changes nothing and becomes a dead letter.

The order within a record: the clocks advance, due leases expire if the record is a tick, and then the events apply one
by one.
"""

from collections.abc import Sequence
from dataclasses import asdict

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.event_json import decode_record
from namesrv_stream.route.events import (
    JOB,
    BrokerDisconnected,
    BrokerEvent,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    GuardReleased,
    KvDeleted,
    KvPut,
    Proof,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    SettingsChanged,
    Tick,
    TopicDeleted,
    partition_of,
    routing_key,
)
from namesrv_stream.route.fold import guard, liveness
from namesrv_stream.route.fold.lease import Lease, LeaseHolder
from namesrv_stream.route.fold.liveness import advance_clocks, close, holder_ended, release_cluster, renew, retire
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.fold.step import (
    DeadLetter,
    FoldOutput,
    FoldStep,
    GroupStore,
    Record,
    is_vouched_for_without,
)
from namesrv_stream.route.group import BrokerGroup, set_holder
from namesrv_stream.route.interpretation import (
    Applied,
    apply_event,
    kv_differences,
    refusal_of_end,
    setting_differences,
)
from namesrv_stream.route.liveness_settings import change_detail, setting_text
from namesrv_stream.route.model import LeaseKey


def fold(state: FoldState, groups: GroupStore, record: Record, output: FoldOutput) -> None:
    """Fold one record and append to ``output``. A record at an offset that was folded before is skipped."""
    if record.offset < state.next_offset:
        return
    events: Sequence[Event | EventDecodeError] = ()
    try:
        events = decode_record(record.value)
    except EventDecodeError as error:
        output.dead_letters.append(DeadLetter(record.partition, record.offset, -1, error.reason))
    fold_events(state, groups, record, events, output)


def fold_events(
    state: FoldState,
    groups: GroupStore,
    record: Record,
    events: Sequence[Event | EventDecodeError],
    output: FoldOutput,
) -> None:
    """Fold the decoded events of a record, without reading its value.

    Args:
        state: The fold's state, changed in place.
        groups: The broker groups, changed in place.
        record: The record, of which only position and time are used; its offset must not have been folded before.
        events: The record's events, and the errors of invalid items; empty if the whole record is invalid.
        output: Receives changes and dead letters.
    """
    state.next_offset = record.offset + 1
    state.at_ms = max(state.at_ms, record.at_ms)
    step = FoldStep(state, groups, record, output)
    first = next((e for e in events if not isinstance(e, EventDecodeError)), None)
    if first is not None:
        advance_clocks(step, first)
        step.commit()
    for item, event in enumerate(events):
        if isinstance(event, EventDecodeError):
            step.reject(item, event.reason)
            continue
        try:
            _apply(step, event)
        except EventDecodeError as error:
            step.reject(item, error.reason)
        except Exception as error:
            if step.is_reading:
                raise
            step.reject(item, f"{type(error).__name__}: {error}")
        else:
            step.commit()
    step.end()


def _apply(step: FoldStep, event: Event) -> None:
    """Apply one event.

    Raises:
        EventDecodeError: The event belongs in another partition, or its origin may not log it.
    """
    if isinstance(event, BrokerHeartbeat) and _renew_unchanged(step, event):  # Nearly all events are of this kind.
        return
    _check_partition(step, event)
    match event:
        case Tick():
            liveness.advertise(step, event)
        case BrokerDisconnected():
            _close(step, event)
        case TopicDeleted():
            for name in step.names():
                _change_group(step, name, event)
        case KvPut() | KvDeleted():
            cause = Cause.KV_PUT if isinstance(event, KvPut) else Cause.KV_DELETED
            for kind, gone, columns in kv_differences(event):
                step.row(kind, gone, cause, **columns)
        case SettingsChanged():
            _change_settings(step, event)
        case GuardReleased():
            _release_guard(step, event)
        case ServerStarted():
            step.server_row(event.origin.server_id, Cause.SERVER_STARTED, "talking")
        case ServerResumed():
            step.server_row(event.origin.server_id, Cause.SERVER_RESUMED, "talking")
        case ServerStopped():
            step.server_row(event.origin.server_id, Cause.SERVER_STOPPED, "stopped")
        case BrokerRegistered() | BrokerHeartbeat() | BrokerUnregistered():
            _change_broker(step, event)
        case _:
            _change_group(step, event.broker_name, event)


def _check_partition(step: FoldStep, event: Event) -> None:
    state = step.state
    # The job holds no leases. Its ticks advance the clock of the direct publishers.
    if event.origin.server_id == JOB and not isinstance(event, Tick | SettingsChanged):
        raise EventDecodeError(f"server_id: {JOB} logs ticks and settings only")
    key = routing_key(event)
    if key is not None:
        partition = partition_of(key, state.partitions)
        if partition != step.record.partition:
            raise EventDecodeError(f"{key!r} belongs in partition {partition} of {state.partitions}")


def _renew_unchanged(step: FoldStep, event: BrokerHeartbeat) -> bool:
    """Return whether a heartbeat can at most renew a lease; if so, fold it without reading its broker group."""
    state, server_id = step.state, event.origin.server_id
    key = event.lease_key
    lease = state.leases.get(key)
    if lease is None or server_id == JOB:  # A broker with a lease is in the right partition.
        _check_partition(step, event)
    held = lease.holders.get(server_id) if lease else None
    if lease is None or held is None:
        return event.proof is Proof.HEARTBEAT
    if event.proof is Proof.HEARTBEAT or (held.holder == event.origin.holder and _is_same(lease, event)):
        renew(step, key, lease, server_id, Cause.HEARD)
        return True
    return False


def _is_same(lease: Lease, event: BrokerHeartbeat) -> bool:
    """Return whether the registration of a heartbeat was the broker's last one, and would change nothing again."""
    return lease.is_up_to_date and lease.registration_hash == event.registration_hash


def _change_broker(step: FoldStep, event: BrokerRegistered | BrokerHeartbeat | BrokerUnregistered) -> None:
    """Apply an event of a broker process to its group and its lease."""
    state, origin, key = step.state, event.origin, event.lease_key
    lease = state.leases.get(key)
    old = step.group(key.broker_name)
    is_same = isinstance(event, BrokerHeartbeat) and lease is not None and _is_same(lease, event)
    applied = apply_event(
        old,
        event,
        settings=state.settings.of_registrations,
        held_by_others=lambda _, k, server_id: is_vouched_for_without(state, state.leases[k], server_id),
        is_up_to_date=is_same,
    )
    if applied.ignored is not None:
        step.ignored(key, origin, applied.cause, applied.ignored)
    changed = step.change(old, applied.group, applied.cause, applied.detail)
    if isinstance(event, BrokerUnregistered):
        if changed and lease is not None:
            holder_ended(step, key, lease, origin.server_id, applied.cause, applied.detail)
        elif lease is None:
            state.drop_recent_closes(key)
    elif applied.holder is not None:
        is_applied = is_same or applied.registration is not None
        is_up_to_date = is_applied and (not changed or _moves_only(old, applied, key, origin.server_id))
        _renew_or_create(step, key, lease, origin.server_id, applied, is_up_to_date=is_up_to_date)
    elif lease is not None and key.live_key not in applied.group.live_brokers:
        retire(step, key, applied.cause, applied.detail)
    if applied.is_unknown and isinstance(event, BrokerHeartbeat):
        _request_registration(step, event)


def _moves_only(old: BrokerGroup, applied: Applied, key: LeaseKey, server_id: str) -> bool:
    """Return whether a registration of a live broker changes only the connection over which a server hears it."""
    if applied.holder is None or key.live_key not in old.live_brokers:
        return False
    return applied.group == set_holder(old, key.live_key, server_id, applied.holder)


def _renew_or_create(
    step: FoldStep, key: LeaseKey, lease: Lease | None, server_id: str, applied: Applied, *, is_up_to_date: bool
) -> None:
    """Renew a server's share in a lease after a heartbeat or registration. A registration may create the lease."""
    state, registration = step.state, applied.registration
    assert applied.holder is not None
    if lease is None:
        assert registration is not None  # Only a registration creates a lease.
        lease = Lease(registration.timeout_ms, registration.registration_hash)
        is_known = not state.settings.guard_known_ms or (key in state.gone and key not in state.new)
        if not is_known:
            state.new[key] = state.at_ms
        state.add_lease(key, lease)
        state.gone.pop(key, None)
        state.drop_recent_closes(key)
    if registration is not None:
        state.set_timeout(key, lease, registration.timeout_ms)
        lease.registration_hash = registration.registration_hash
    lease.is_up_to_date = is_up_to_date
    held = lease.holders.get(server_id)
    if held is None:
        lease.holders[server_id] = LeaseHolder(applied.holder, 0, 0)
    else:
        held.holder = applied.holder
    renew(step, key, lease, server_id, applied.cause if registration is not None else Cause.HEARD)


def _request_registration(step: FoldStep, event: BrokerHeartbeat) -> None:
    """Write the row that makes the server log the broker's next registration in full."""
    step.row(
        ChangeKind.REGISTRATION_WANTED,
        False,
        Cause.UNKNOWN_HASH,
        broker_name=event.broker_name,
        **event.live_key._asdict(),
        server_id=event.origin.server_id,
        registration_hash=event.registration_hash,
    )


def _change_group(step: FoldStep, name: str, event: BrokerEvent | TopicDeleted) -> None:
    """Apply an event that concerns a broker name, but no single process."""
    old = step.group(name)
    applied = apply_event(old, event)
    step.change(old, applied.group, applied.cause, applied.detail)


def _close(step: FoldStep, event: BrokerDisconnected) -> None:
    """Apply a closed connection. It counts only for the connection over which the server receives heartbeats."""
    origin, key = event.origin, event.lease_key
    lease = step.state.leases.get(key)
    refusal = refusal_of_end(step.group(key.broker_name), event)
    if lease is None or refusal is not None:
        step.ignored(key, origin, Cause.DISCONNECTED, refusal or f"not heard at {origin.server_id}")
    elif guard.is_closed(lease, origin.server_id):
        step.ignored(key, origin, Cause.DISCONNECTED, "closed already: the guard holds the broker")
    else:
        close(step, key, lease, origin.server_id, event.reason)


def _change_settings(step: FoldStep, event: SettingsChanged) -> None:
    """Apply new values of settings and write their rows, and end holds in clusters that now have no guard."""
    state = step.state
    before = {name: setting_text(value) for name, value in asdict(state.settings).items()}
    state.settings = state.settings.with_values(dict(event.values))
    state.requeue()
    for lease in state.leases.values():
        lease.is_up_to_date = False  # The effect of a registration depends on the settings.
    for kind, gone, columns in setting_differences(event):
        detail = change_detail(event.source, before.get(columns["key"]))
        step.row(kind, gone, Cause.SETTINGS_CHANGED, detail, **columns)
    for cluster in sorted({key.live_key.cluster for key, lease in state.leases.items() if lease.hold}):
        if not state.settings.is_guarded(cluster):
            release_cluster(step, cluster, Cause.SETTINGS_CHANGED, f"by {event.source}")


def _release_guard(step: FoldStep, event: GuardReleased) -> None:
    """Release the held brokers of a cluster. If none is held, a row says so."""
    if not release_cluster(step, event.cluster, Cause.GUARD_RELEASED, f"by {event.source}"):
        detail = f"by {event.source}: no broker of {event.cluster} is held"
        step.row(ChangeKind.IGNORED, False, Cause.GUARD_RELEASED, detail, cluster=event.cluster)
