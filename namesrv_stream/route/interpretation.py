"""The effect of an event on a broker group, a KV namespace and the settings. Only this module interprets events.

The fold applies the events of the log with these functions. A server's view applies the events that the server has
accepted. A view measures no time and does not apply closed connections: only the fold removes a broker that did not
unregister itself.

If the log has connections of a broker to two starts of the same server, the one to the newer start counts (fencing).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from namesrv_stream.route import group as rules
from namesrv_stream.route.changes import Cause, ChangeKind, Difference
from namesrv_stream.route.events import (
    BrokerDisconnected,
    BrokerEvent,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    KvDeleted,
    KvPut,
    Origin,
    Proof,
    SettingsChanged,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.liveness_settings import setting_text
from namesrv_stream.route.model import (
    DEFAULT_REGISTRATION_SETTINGS,
    Holder,
    LeaseKey,
    Registration,
    RegistrationSettings,
)
from namesrv_stream.route.registration import register

#: Returns whether another server keeps a broker of the group in the routes when the given server is no longer its
#: holder.
HeldByOthers = Callable[[BrokerGroup, LeaseKey, str], bool]


def is_held_elsewhere(group: BrokerGroup, key: LeaseKey, server_id: str) -> bool:
    """Whether a server other than ``server_id`` is a holder of a live broker."""
    return any(s != server_id for s in group.live_brokers[key.live_key].holders)


class Applied(NamedTuple):
    """The effect of an event on the group of a broker name.

    Attributes:
        group: The group afterwards; the same object if nothing changed.
        cause: The cause of the change.
        detail: More about the change, for people.
        ignored: Why the event, or only its connection, was ignored; None if it was not.
        holder: The server's connection to the broker from now on; None if the event does not prove that the broker is
            alive.
        registration: The registration that was applied; None if the event does not register the broker.
        is_unknown: Whether the event refers by its hash to a registration that is not known.
    """

    group: BrokerGroup
    cause: Cause
    detail: str | None = None
    ignored: str | None = None
    holder: Holder | None = None
    registration: Registration | None = None
    is_unknown: bool = False


def apply_event(
    group: BrokerGroup,
    event: BrokerEvent | TopicDeleted,
    *,
    settings: RegistrationSettings = DEFAULT_REGISTRATION_SETTINGS,
    held_by_others: HeldByOthers = is_held_elsewhere,
    is_up_to_date: bool = False,
) -> Applied:
    """Apply an event to the group of a broker name that it concerns.

    Args:
        group: The group before.
        event: A closed connection has no effect here; only the fold can judge it (``liveness.close``).
        settings: Those on which the effect of a registration depends.
        held_by_others: Decides whether another server keeps a broker that unregisters. The fold passes a function that
            also considers which servers are silent.
        is_up_to_date: Whether the registration of a heartbeat would change nothing if it were applied again.
    """
    match event:
        case BrokerRegistered():
            return _register(group, event.origin, event.registration, settings)
        case BrokerHeartbeat():
            return _heartbeat(group, event, settings, is_up_to_date)
        case BrokerUnregistered():
            return _unregister(group, event, held_by_others)
        case BrokerDisconnected():
            return Applied(group, Cause.DISCONNECTED)
        case TopicRegistered():
            after = rules.register_topic(group, event.topic, event.queue_data)
            return Applied(after, Cause.TOPIC_REGISTERED, _by(event))
        case TopicDeleted():
            # A name without brokers is in no cluster. All that it can have is a mapping that an earlier release kept.
            is_meant = event.cluster is None or event.cluster in group.clusters or not group.is_registered
            after = rules.delete_topic(group, event.topic) if is_meant else group
            return Applied(after, Cause.TOPIC_DELETED, _by(event))
        case WritePermChanged(writable=True):
            return Applied(rules.add_write_perm(group), Cause.WRITE_PERM_ADDED, _by(event))
        case WritePermChanged():
            return Applied(rules.wipe_write_perm(group), Cause.WRITE_PERM_WIPED, _by(event))


def _by(event: TopicRegistered | TopicDeleted | WritePermChanged) -> str | None:
    """Return who made a change of topics, for people; None for events of releases that did not record it."""
    return f"by {event.source} at {event.origin.server_id}" if event.source else None


def holder_of(group: BrokerGroup, key: LeaseKey, server_id: str) -> Holder | None:
    """Return the connection over which a server receives a broker's heartbeats; None if it receives none."""
    live = group.live_brokers.get(key.live_key)
    return live.holders.get(server_id) if live else None


def refusal_of_end(group: BrokerGroup, event: BrokerUnregistered | BrokerDisconnected) -> str | None:
    """Return why an unregistration or a closed connection does not count, for people; None if it counts.

    An unregistration counts if it came over the connection of the registration or over a later one. A closed
    connection counts only if it is exactly that one.
    """
    origin = event.origin
    held = holder_of(group, event.lease_key, origin.server_id)
    if held is None:
        return f"not heard at {origin.server_id}"
    is_later_close = isinstance(event, BrokerDisconnected) and origin.holder > held
    return superseded(origin, held) if origin.holder < held or is_later_close else None


def end_holder(
    group: BrokerGroup, key: LeaseKey, server_id: str, *, is_kept: bool, detail: str | None
) -> tuple[BrokerGroup, str | None]:
    """Remove a server from the holders of a broker, or the broker itself if no other server keeps it.

    Args:
        group: A group in which the server is a holder of the broker.
        key: The broker process.
        server_id: The server.
        is_kept: Whether another server keeps the broker.
        detail: What the server observed, for people.

    Returns:
        The next group, and the detail for the rows of the change.
    """
    if not is_kept:
        return rules.unregister(group, key.live_key), detail
    others = sorted(s for s in group.live_brokers[key.live_key].holders if s != server_id)
    still = f"still held by {', '.join(others)}"
    return rules.remove_holder(group, key.live_key, server_id), f"{detail}; {still}" if detail else still


def kv_differences(event: KvPut | KvDeleted) -> Iterator[Difference]:
    """Yield the rows of a change of a KV entry. A namespace has a row of its own, and outlives its last key."""
    if isinstance(event, KvPut):
        yield Difference(ChangeKind.KV, False, {"namespace": event.namespace})
        columns = {"namespace": event.namespace, "key": event.key, "value": event.value}
        yield Difference(ChangeKind.KV, False, columns)
    else:
        yield Difference(ChangeKind.KV, True, {"namespace": event.namespace, "key": event.key})


def setting_differences(event: SettingsChanged) -> Iterator[Difference]:
    """Yield the rows of a change of settings.

    Values from a configuration file are in the namespaces "effective" and "config", all others only in "effective".
    """
    namespaces = ("effective", "config") if event.source == "config" else ("effective",)
    for name, value in event.values:
        for namespace in namespaces:
            columns = {"namespace": namespace, "key": name, "value": setting_text(value)}
            yield Difference(ChangeKind.SETTING, False, columns)


def _register(
    group: BrokerGroup, origin: Origin, registration: Registration, settings: RegistrationSettings
) -> Applied:
    key = registration.live_key
    held = holder_of(group, LeaseKey(registration.broker_name, key), origin.server_id)
    holder = later_holder(held, origin)
    outcome = register(group, registration, origin.server_id, holder, settings)
    last = group.registrations.get(key)
    is_unchanged = last is not None and last.registration_hash == registration.registration_hash != ""
    restores = key not in group.live_brokers or outcome.group.topics is not group.topics
    cause = Cause.RETURNED if is_unchanged and restores else Cause.REGISTERED
    if outcome.ignored is not None:
        return Applied(outcome.group, cause, outcome.ignored, outcome.ignored)
    detail = displaced(group, registration)
    if outcome.contradiction is not None:
        cause, detail = Cause.CONTRADICTION, outcome.contradiction
    return Applied(outcome.group, cause, detail, _of_earlier_start(held, origin), holder, registration)


def _heartbeat(
    group: BrokerGroup, event: BrokerHeartbeat, settings: RegistrationSettings, is_up_to_date: bool
) -> Applied:
    """Apply a heartbeat. If it has an unknown registration hash, only its connection has an effect."""
    origin = event.origin
    held = holder_of(group, event.lease_key, origin.server_id)
    if event.proof is Proof.HEARTBEAT:  # It renews a lease, but neither creates one nor changes its connection.
        return Applied(group, Cause.HEARD, holder=held)
    retained = group.registrations.get(event.live_key)
    is_known = retained is not None and retained.registration_hash == event.registration_hash
    if retained is not None and is_known and not (is_up_to_date and held):
        return _register(group, origin, retained.read(), settings)
    if held is None:
        return Applied(group, Cause.REGISTERED, is_unknown=True)
    holder = later_holder(held, origin)
    return Applied(
        rules.set_holder(group, event.live_key, origin.server_id, holder),
        Cause.REGISTERED,
        ignored=_of_earlier_start(held, origin),
        holder=holder,
        is_unknown=not is_known,
    )


def _unregister(group: BrokerGroup, event: BrokerUnregistered, held_by_others: HeldByOthers) -> Applied:
    refusal = refusal_of_end(group, event)
    if refusal is not None:
        return Applied(group, Cause.UNREGISTERED, ignored=refusal)
    key, server_id = event.lease_key, event.origin.server_id
    is_kept = held_by_others(group, key, server_id)
    after, detail = end_holder(group, key, server_id, is_kept=is_kept, detail=None)
    return Applied(after, Cause.UNREGISTERED, detail)


def _of_earlier_start(held: Holder | None, origin: Origin) -> str | None:
    """Return why a registration logged by an earlier start of the server does not set the connection; None if it does.

    Such a registration still proves that the broker is alive.
    """
    if held is None or later_holder(held, origin) == origin.holder:
        return None
    return f"the connection only: it {superseded(origin, held)}"


def later_holder(held: Holder | None, origin: Origin) -> Holder:
    """Return the connection that counts from now on: that of the server's newest start, even if records arrive late."""
    if held is not None and origin.server_epoch < held.server_epoch:
        return held
    return origin.holder


def superseded(origin: Origin, held: Holder) -> str:
    """Return why an event over another connection than the holder's does not count, for people."""
    return (
        f"came over connection {origin.connection_id} of epoch {origin.server_epoch}, but the broker is held over"
        f" {held.connection_id} of epoch {held.server_epoch}"
    )


def displaced(old: BrokerGroup, registration: Registration) -> str | None:
    """Return which brokerIds and addresses a registration reassigns, for people; None if it reassigns none."""
    addr, broker_id = registration.broker_addr, registration.broker_id
    before = old.broker_addrs.get(broker_id, addr)
    changes = [f"brokerId {broker_id} was {before}"] if before != addr else []
    changes += [f"{addr} was brokerId {i}" for i, a in old.broker_addrs.items() if a == addr and i != broker_id]
    return ", ".join(changes) or None
