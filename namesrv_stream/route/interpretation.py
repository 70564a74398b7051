"""What an event makes of a broker group, of a KV namespace and of the settings: the only place that interprets events.

The fold applies the events of the log with these functions, and a server's view the events that the server has
accepted. The view lets no time pass, and it does not apply closed connections: only the fold ends a broker that did not
say so itself.
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
)
from namesrv_stream.route.fencing import displaced, later_holder, superseded
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import Holder, Registration
from namesrv_stream.route.settings import setting_text

#: Whether another server keeps a broker of the group that has just ended at this one.
KeptByOthers = Callable[[BrokerGroup, LeaseKey, str], bool]


def is_heard_elsewhere(group: BrokerGroup, key: LeaseKey, server_id: str) -> bool:
    """Whether another server is known to hear a broker."""
    return any(s != server_id for s in group.lives[key.live_key].holders)


class Applied(NamedTuple):
    """What became of an event of a broker name.

    Attributes:
        group: The group afterwards; the same object where nothing changed.
        cause: The cause of the change.
        detail: More about the change, for people.
        ignored: Why the event, or what it says of the connection, does not count.
        heard: The connection over which its server hears the broker from now on; None where the event proves no life.
        registration: What the broker is registered with; None where the event does not register it.
        is_unknown: Nobody knows the registration that the event refers to by its hash.
    """

    group: BrokerGroup
    cause: Cause
    detail: str | None = None
    ignored: str | None = None
    heard: Holder | None = None
    registration: Registration | None = None
    is_unknown: bool = False


def apply_event(
    group: BrokerGroup,
    event: BrokerEvent | TopicDeleted,
    *,
    drops_absent_topics: bool = False,
    kept_by_others: KeptByOthers = is_heard_elsewhere,
) -> Applied:
    """Apply an event to the group of a broker name that it concerns.

    Args:
        group: The group before.
        event: No closed connection, which only the fold can judge (``liveness.close``).
        drops_absent_topics: The setting ``delete_topic_with_broker_registration``.
        kept_by_others: The fold knows which servers are silent and cannot vouch for a broker.
    """
    match event:
        case BrokerRegistered():
            return _register(group, event.origin, event.registration, Cause.REGISTERED, drops_absent_topics)
        case BrokerHeartbeat():
            return _heartbeat(group, event, drops_absent_topics)
        case BrokerUnregistered():
            return _unregister(group, event, kept_by_others)
        case BrokerDisconnected():
            return Applied(group, Cause.DISCONNECTED)
        case TopicRegistered():
            return Applied(rules.register_topic(group, event.topic, event.queue_data), Cause.TOPIC_REGISTERED)
        case TopicDeleted():
            is_meant = event.cluster is None or event.cluster in group.clusters
            return Applied(rules.delete_topic(group, event.topic) if is_meant else group, Cause.TOPIC_DELETED)
        case _ if event.writable:
            return Applied(rules.add_write_perm(group), Cause.WRITE_PERM_ADDED)
        case _:
            return Applied(rules.wipe_write_perm(group), Cause.WRITE_PERM_WIPED)


def holder_of(group: BrokerGroup, key: LeaseKey, server_id: str) -> Holder | None:
    """The connection over which a server hears a broker; None where it does not hear it."""
    live = group.lives.get(key.live_key)
    return live.holders.get(server_id) if live else None


def refusal_of_end(group: BrokerGroup, event: BrokerUnregistered | BrokerDisconnected) -> str | None:
    """Why the end of a broker does not count, for people; None where it does.

    A goodbye counts over the connection of the registration or a later one, a close only of exactly that connection.
    """
    origin = event.origin
    held = holder_of(group, event.lease_key, origin.server_id)
    if held is None:
        return f"not heard at {origin.server_id}"
    is_later_close = isinstance(event, BrokerDisconnected) and origin.holder > held
    return superseded(origin, held) if origin.holder < held or is_later_close else None


def end_hold(
    group: BrokerGroup, key: LeaseKey, server_id: str, *, is_kept: bool, detail: str | None
) -> tuple[BrokerGroup, str | None]:
    """One server no longer hears a broker.

    Args:
        group: In which the server hears it.
        key: The broker process.
        server_id: The server.
        is_kept: Another server keeps the broker.
        detail: What the server saw, for people.

    Returns:
        The next group, and what to tell people.
    """
    if not is_kept:
        return rules.unregister(group, key.live_key), detail
    others = sorted(s for s in group.lives[key.live_key].holders if s != server_id)
    still = f"still held by {', '.join(others)}"
    return rules.end_holder(group, key.live_key, server_id), f"{detail}; {still}" if detail else still


def kv_differences(event: KvPut | KvDeleted) -> Iterator[Difference]:
    """What an operator's change of a KV entry makes; a namespace has a row of its own, and outlives its last key."""
    if isinstance(event, KvPut):
        yield Difference(ChangeKind.KV, False, {"namespace": event.namespace})
        columns = {"namespace": event.namespace, "key": event.key, "value": event.value}
        yield Difference(ChangeKind.KV, False, columns)
    else:
        yield Difference(ChangeKind.KV, True, {"namespace": event.namespace, "key": event.key})


def setting_differences(event: SettingsChanged) -> Iterator[Difference]:
    """What a change of settings makes; the values of a configuration file are kept beside those in effect."""
    namespaces = ("effective", "config") if event.source == "config" else ("effective",)
    for name, value in event.values:
        for namespace in namespaces:
            columns = {"namespace": namespace, "key": name, "value": setting_text(value)}
            yield Difference(ChangeKind.SETTING, False, columns)


def _register(
    group: BrokerGroup, origin: Origin, registration: Registration, cause: Cause, drops_absent_topics: bool
) -> Applied:
    key = registration.live_key
    held = holder_of(group, LeaseKey(registration.broker_name, key), origin.server_id)
    holder = later_holder(held, origin)
    outcome = rules.register(
        group,
        registration,
        origin.server_id,
        holder,
        delete_topic_with_broker_registration=drops_absent_topics,
    )
    if outcome.ignored is not None:
        return Applied(outcome.group, cause, outcome.ignored, outcome.ignored)
    return Applied(
        outcome.group, cause, displaced(group, registration), _of_earlier_start(held, origin), holder, registration
    )


def _heartbeat(group: BrokerGroup, event: BrokerHeartbeat, drops_absent_topics: bool) -> Applied:
    """An unchanged registration stands for the one that it repeats; of any other, only the connection is known."""
    origin = event.origin
    held = holder_of(group, event.lease_key, origin.server_id)
    if event.proof is Proof.HEARTBEAT:  # It refreshes, and never creates nor changes the connection.
        return Applied(group, Cause.HEARD, heard=held)
    retained = group.registrations.get(event.live_key)
    if retained is not None and retained.registration_hash == event.registration_hash:
        return _register(group, origin, retained.read(), Cause.RETURNED, drops_absent_topics)
    if held is None:
        return Applied(group, Cause.REGISTERED, is_unknown=True)
    holder = later_holder(held, origin)
    return Applied(
        rules.hold(group, event.live_key, origin.server_id, holder),
        Cause.REGISTERED,
        ignored=_of_earlier_start(held, origin),
        heard=holder,
        is_unknown=True,
    )


def _unregister(group: BrokerGroup, event: BrokerUnregistered, kept_by_others: KeptByOthers) -> Applied:
    refusal = refusal_of_end(group, event)
    if refusal is not None:
        return Applied(group, Cause.UNREGISTERED, ignored=refusal)
    key, server_id = event.lease_key, event.origin.server_id
    is_kept = kept_by_others(group, key, server_id)
    after, detail = end_hold(group, key, server_id, is_kept=is_kept, detail=None)
    return Applied(after, Cause.UNREGISTERED, detail)


def _of_earlier_start(held: Holder | None, origin: Origin) -> str | None:
    """A registration of a server's earlier start proves life and takes no connection: why not, for people."""
    if held is None or later_holder(held, origin) == origin.holder:
        return None
    return f"the connection only: it {superseded(origin, held)}"
