"""The fold: one record of the log in, the next state and the changes out.

Its outcome is a function of the records alone, however they are cut into batches: it reads no clock, and what is
configurable comes as ``settings_changed`` events. ``state`` and ``groups`` are changed in place, for a copy of either
per record would cost more than the fold; an item that fails changes nothing and becomes a dead letter.

Order within a record: the clocks move, what that makes due expires, then the events apply one by one.
"""

from collections.abc import Sequence

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route import guard
from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.event_json import decode_record, routing_key
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
)
from namesrv_stream.route.fold_state import FoldState
from namesrv_stream.route.fold_step import DeadLetter, FoldOutput, FoldStep, Record
from namesrv_stream.route.group_store import GroupDict, GroupStore
from namesrv_stream.route.holders import held_by, is_vouched_for_without
from namesrv_stream.route.interpretation import Applied, apply_event, kv_differences, refusal_of_end
from namesrv_stream.route.interventions import change_settings, release_guard
from namesrv_stream.route.lease import Lease, LeaseHolder, LeaseKey
from namesrv_stream.route.liveness import advance_clocks, close, heard, hold_ended, retire
from namesrv_stream.route.partitioner import partition_of

__all__ = ["DeadLetter", "FoldOutput", "GroupDict", "GroupStore", "Record", "fold", "fold_events"]


def fold(state: FoldState, groups: GroupStore, record: Record, output: FoldOutput) -> None:
    """Fold one record, appending to ``output``; a record at an offset already folded is skipped."""
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
    """Fold what a record says, whatever its value is; for whoever has decoded it already.

    Args:
        state: The fold's state.
        groups: The broker groups.
        record: Where and when it was logged; not at an offset already folded.
        events: Its items, or why one is none; nothing where the record cannot be read.
        output: Appended to.
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


def _apply(step: FoldStep, event: Event) -> None:
    """Apply one event.

    Raises:
        EventDecodeError: The event is not for this partition, or not for its origin to tell.
    """
    if isinstance(event, BrokerHeartbeat) and _is_settled(step, event):  # Nearly every event is one.
        return
    _check_place(step, event)
    match event:
        case Tick():
            pass
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
            change_settings(step, event)
        case GuardReleased():
            release_guard(step, event)
        case ServerStarted():
            step.server_row(event.origin.server_id, Cause.SERVER_STARTED, "talking")
        case ServerResumed():
            _resume(step, event.origin.server_id)
        case ServerStopped():
            step.server_row(event.origin.server_id, Cause.SERVER_STOPPED, "stopped")
        case BrokerRegistered() | BrokerHeartbeat() | BrokerUnregistered():
            _change_broker(step, event)
        case _:
            _change_group(step, event.broker_name, event)


def _check_place(step: FoldStep, event: Event) -> None:
    state = step.state
    # The job holds no brokers: its clock is that of the direct producers.
    if event.origin.server_id == JOB and not isinstance(event, Tick | SettingsChanged):
        raise EventDecodeError(f"server_id: {JOB} logs ticks and settings only")
    key = routing_key(event)
    if key is not None:
        partition = partition_of(key, state.partitions)
        if partition != step.record.partition:
            raise EventDecodeError(f"{key!r} belongs into partition {partition} of {state.partitions}")


def _is_settled(step: FoldStep, event: BrokerHeartbeat) -> bool:
    """Fold a heartbeat that changes nothing, without its group; False for any other."""
    state, server_id = step.state, event.origin.server_id
    key = event.lease_key
    lease = state.leases.get(key)
    if lease is None or server_id == JOB:  # Who is known here belongs here: no need to hash the name.
        _check_place(step, event)
    held = lease.holders.get(server_id) if lease else None
    if lease is None or held is None:
        return event.proof is Proof.HEARTBEAT
    is_same = lease.registration_hash == event.registration_hash and held.holder == event.origin.holder
    if event.proof is Proof.HEARTBEAT or (lease.settled and is_same):
        heard(step, key, lease, server_id, Cause.HEARD)
        return True
    return False


def _change_broker(step: FoldStep, event: BrokerRegistered | BrokerHeartbeat | BrokerUnregistered) -> None:
    """Apply an event of a broker process, and bring its lease up to date."""
    state, origin, key = step.state, event.origin, event.lease_key
    lease = state.leases.get(key)
    old = step.group(key.broker_name)
    applied = apply_event(
        old,
        event,
        drops_absent_topics=state.settings.delete_topic_with_broker_registration,
        kept_by_others=lambda _, k, server_id: is_vouched_for_without(state, state.leases[k], server_id),
    )
    if applied.ignored is not None:
        step.ignored(key, origin, applied.cause, applied.ignored)
    is_registered = applied.registration is not None and lease is not None
    if applied.cause is Cause.RETURNED and is_registered and applied.group.topics is old.topics:
        # Nothing returned: another connection, or another broker of the name moved.
        applied = applied._replace(cause=Cause.REGISTERED)
    changed = step.change(old, applied.group, applied.cause, applied.detail)
    if isinstance(event, BrokerUnregistered):
        if changed and lease is not None:
            hold_ended(step, key, lease, origin.server_id, applied.cause, applied.detail)
        elif lease is None:
            state.forget_closes(key)
    elif applied.heard is not None:
        _hear(step, key, lease, origin.server_id, applied, is_settled=not changed)
    elif lease is not None and key.live_key not in applied.group.lives:
        retire(step, key, applied.cause, applied.detail)
    if applied.is_unknown and isinstance(event, BrokerHeartbeat):
        _want_registration(step, event)


def _hear(
    step: FoldStep, key: LeaseKey, lease: Lease | None, server_id: str, applied: Applied, *, is_settled: bool
) -> None:
    """A server heard a broker over a connection, perhaps with a registration."""
    state, registration = step.state, applied.registration
    assert applied.heard is not None
    if lease is None:
        assert registration is not None  # Nothing else creates a broker.
        lease = Lease(registration.timeout_ms, registration.registration_hash)
        state.add_lease(key, lease)
        state.gone.pop(key, None)
        state.forget_closes(key)
    if registration is not None:
        state.set_timeout(key, lease, registration.timeout_ms)
        lease.registration_hash = registration.registration_hash
        lease.settled = is_settled
    held = lease.holders.get(server_id)
    if held is None:
        lease.holders[server_id] = LeaseHolder(applied.heard, 0, 0)
    else:
        held.holder = applied.heard
    heard(step, key, lease, server_id, applied.cause if registration is not None else Cause.HEARD)


def _want_registration(step: FoldStep, event: BrokerHeartbeat) -> None:
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
    """Apply an event that is about no broker process."""
    old = step.group(name)
    applied = apply_event(old, event)
    step.change(old, applied.group, applied.cause, applied.detail)


def _close(step: FoldStep, event: BrokerDisconnected) -> None:
    """The close of the very connection over which the server hears the broker ends the hold."""
    origin, key = event.origin, event.lease_key
    lease = step.state.leases.get(key)
    refusal = refusal_of_end(step.group(key.broker_name), event)
    if lease is None or refusal is not None:
        step.ignored(key, origin, Cause.DISCONNECTED, refusal or f"not heard at {origin.server_id}")
    elif guard.is_closed(lease, origin.server_id):
        step.ignored(key, origin, Cause.DISCONNECTED, "closed already: the guard holds the broker")
    else:
        close(step, key, lease, origin.server_id, event.reason)


def _resume(step: FoldStep, server_id: str) -> None:
    for key, lease in held_by(step.state, server_id):
        heard(step, key, lease, server_id, Cause.SERVER_RESUMED, f"{server_id} lost records")
    step.server_row(server_id, Cause.SERVER_RESUMED, "talking")
