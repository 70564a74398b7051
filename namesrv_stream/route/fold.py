"""The fold: one record of the log in, the next state and the changes out.

Its outcome is a function of the records alone, however they are cut into batches: it reads no clock, and what is
configurable comes as ``settings_changed`` events. ``state`` and ``groups`` are changed in place, for a copy of either
per record would cost more than the fold; an item that fails changes nothing and becomes a dead letter.

Order within a record: the clocks move, what that makes due expires, then the events apply one by one.
"""

from collections.abc import Sequence

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route import group as rules
from namesrv_stream.route import guard
from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.event_json import decode_record, routing_key
from namesrv_stream.route.events import (
    JOB,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    GuardReleased,
    KvDeleted,
    KvPut,
    Origin,
    Proof,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    SettingsChanged,
    Tick,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.fencing import displaced, later_holder, superseded
from namesrv_stream.route.fold_state import FoldState
from namesrv_stream.route.fold_step import DeadLetter, FoldOutput, FoldStep, Record
from namesrv_stream.route.group_store import GroupDict, GroupStore
from namesrv_stream.route.holders import held_by
from namesrv_stream.route.interventions import change_settings, release_guard
from namesrv_stream.route.lease import Lease, LeaseHolder, LeaseKey
from namesrv_stream.route.liveness import advance_clocks, close, end_hold, heard, retire
from namesrv_stream.route.model import Registration
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
    if isinstance(event, BrokerHeartbeat):  # Nearly every event is one, and of a known broker.
        _heartbeat(step, event)
        return
    _check_place(step, event)
    match event:
        case Tick():
            pass
        case BrokerRegistered():
            _register(step, event.origin, event.registration, Cause.REGISTERED)
        case BrokerUnregistered() | BrokerDisconnected():
            _leave(step, event)
        case TopicRegistered():
            old = step.group(event.broker_name)
            step.change(old, rules.register_topic(old, event.topic, event.queue_data), Cause.TOPIC_REGISTERED)
        case TopicDeleted():
            _delete_topic(step, event)
        case WritePermChanged():
            old = step.group(event.broker_name)
            if event.writable:
                step.change(old, rules.add_write_perm(old), Cause.WRITE_PERM_ADDED)
            else:
                step.change(old, rules.wipe_write_perm(old), Cause.WRITE_PERM_WIPED)
        case KvPut():
            step.row(ChangeKind.KV, False, Cause.KV_PUT, namespace=event.namespace)
            columns = {"namespace": event.namespace, "key": event.key, "value": event.value}
            step.row(ChangeKind.KV, False, Cause.KV_PUT, **columns)
        case KvDeleted():
            step.row(ChangeKind.KV, True, Cause.KV_DELETED, namespace=event.namespace, key=event.key)
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


def _heartbeat(step: FoldStep, event: BrokerHeartbeat) -> None:
    state, server_id = step.state, event.origin.server_id
    key = LeaseKey(event.broker_name, event.live_key)
    lease = state.leases.get(key)
    if lease is None or server_id == JOB:  # Who is known here belongs here: no need to hash the name.
        _check_place(step, event)
    held = lease.holders.get(server_id) if lease else None
    if event.proof is Proof.HEARTBEAT:
        # Refreshes and never creates, nor changes the connection.
        if lease is not None and held is not None:
            heard(step, key, lease, server_id, Cause.HEARD)
        return
    if (
        lease is not None
        and held is not None
        and lease.settled
        and lease.registration_hash == event.registration_hash
        and held.holder == event.origin.holder
    ):
        heard(step, key, lease, server_id, Cause.HEARD)
        return
    group = step.group(event.broker_name)
    retained = group.registrations.get(event.live_key)
    if retained is not None and retained.registration_hash == event.registration_hash:
        _register(step, event.origin, retained.read(), Cause.RETURNED)
        return
    if lease is not None and held is not None:
        # Another hash still proves life, and over which connection.
        _say_if_late(step, key, held, event.origin, Cause.REGISTERED)
        held.holder = later_holder(held, event.origin)
        step.change(group, rules.hold(group, event.live_key, server_id, held.holder), Cause.REGISTERED)
        heard(step, key, lease, server_id, Cause.HEARD)
    step.row(
        ChangeKind.REGISTRATION_WANTED,
        False,
        Cause.UNKNOWN_HASH,
        broker_name=event.broker_name,
        **event.live_key._asdict(),
        server_id=server_id,
        registration_hash=event.registration_hash,
    )


def _register(step: FoldStep, origin: Origin, registration: Registration, cause: Cause) -> None:
    state = step.state
    key = LeaseKey(registration.broker_name, registration.live_key)
    lease = state.leases.get(key)
    held = lease.holders.get(origin.server_id) if lease else None
    holder = later_holder(held, origin)
    old = step.group(key.broker_name)
    outcome = rules.register(
        old,
        registration,
        origin.server_id,
        holder,
        delete_topic_with_broker_registration=state.settings.delete_topic_with_broker_registration,
    )
    if outcome.ignored is not None:
        step.ignored(key, origin, cause, outcome.ignored)
        step.change(old, outcome.group, cause, outcome.ignored)
        if lease is not None and key.live_key not in outcome.group.lives:
            retire(step, key, cause, outcome.ignored)
        return
    _say_if_late(step, key, held, origin, cause)
    if lease is not None and outcome.group.topics is old.topics and cause is Cause.RETURNED:
        cause = Cause.REGISTERED  # Nothing returned: another connection, or another broker of the name moved.
    changed = step.change(old, outcome.group, cause, displaced(old, registration))
    if lease is None:
        lease = Lease(registration.timeout_ms, registration.registration_hash)
        state.add_lease(key, lease)
        state.gone.pop(key, None)
        state.forget_closes(key)
    state.set_timeout(key, lease, registration.timeout_ms)
    lease.registration_hash = registration.registration_hash
    lease.settled = not changed
    if held is None:
        lease.holders[origin.server_id] = LeaseHolder(holder, 0, 0)
    else:
        held.holder = holder
    heard(step, key, lease, origin.server_id, cause)


def _say_if_late(step: FoldStep, key: LeaseKey, held: LeaseHolder | None, origin: Origin, cause: Cause) -> None:
    """A registration of a server's earlier start proves life and takes no connection, which leaves a row."""
    if held is not None and later_holder(held, origin) != origin.holder:
        step.ignored(key, origin, cause, f"the connection only: it {superseded(origin, held)}")


def _leave(step: FoldStep, event: BrokerUnregistered | BrokerDisconnected) -> None:
    """A goodbye over the holder's connection or a later one, or the close of exactly that connection, ends the hold."""
    origin, key = event.origin, LeaseKey(event.broker_name, event.live_key)
    lease = step.state.leases.get(key)
    held = lease.holders.get(origin.server_id) if lease else None
    is_close = isinstance(event, BrokerDisconnected)
    cause = Cause.DISCONNECTED if is_close else Cause.UNREGISTERED
    if lease is None or held is None:
        step.ignored(key, origin, cause, f"not heard at {origin.server_id}")
        if lease is None and not is_close:
            step.state.forget_closes(key)
    elif origin.holder < held.holder or (origin.holder > held.holder and is_close):
        step.ignored(key, origin, cause, superseded(origin, held))
    elif is_close and guard.is_closed(lease, origin.server_id):
        step.ignored(key, origin, cause, "closed already: the guard holds the broker")
    elif isinstance(event, BrokerDisconnected):
        close(step, key, lease, origin.server_id, event.reason)
    else:
        end_hold(step, key, lease, origin.server_id, cause, None)


def _delete_topic(step: FoldStep, event: TopicDeleted) -> None:
    for name in step.names():
        old = step.group(name)
        if event.cluster is None or event.cluster in old.clusters:
            step.change(old, rules.delete_topic(old, event.topic), Cause.TOPIC_DELETED)


def _resume(step: FoldStep, server_id: str) -> None:
    for key, lease in held_by(step.state, server_id):
        heard(step, key, lease, server_id, Cause.SERVER_RESUMED, f"{server_id} lost records")
    step.server_row(server_id, Cause.SERVER_RESUMED, "talking")
