"""What accepted events make of a group, a KV namespace and a partition's settings, as the fold will decide it.

Time aside: nothing expires here, and an end that another server could contradict ends this server's hold only.
"""

from collections.abc import Iterable, Mapping

from namesrv_stream.route import group as rules
from namesrv_stream.route.events import (
    BrokerDisconnected,
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
from namesrv_stream.route.mass import CloseOfMany, PendingEvent, bring_back
from namesrv_stream.route.model import Holder, LiveKey
from namesrv_stream.route.settings import setting_text

#: (namespace "effective" or "config", name) to JSON text.
Settings = Mapping[tuple[str, str], str]

_DROPS_ABSENT_TOPICS = ("effective", "delete_topic_with_broker_registration")


def group_after(group: BrokerGroup, events: Iterable[PendingEvent], settings: Settings) -> BrokerGroup:
    """The group after events of its name or of all names, in order.

    Args:
        settings: Of the group's partition, before the first of the events.
    """
    drops_absent = settings.get(_DROPS_ABSENT_TOPICS) == "true"
    for event in events:
        if isinstance(event, SettingsChanged):
            settings = settings_after(settings, [event])
            drops_absent = settings.get(_DROPS_ABSENT_TOPICS) == "true"
        else:
            group = _applied(group, event, drops_absent)
    return group


def namespace_after(entries: dict[str, str] | None, events: Iterable[PendingEvent]) -> dict[str, str] | None:
    """A copy of a KV namespace after events; None as long as nobody wrote to it. It outlives its last key."""
    after = None if entries is None else dict(entries)
    for event in events:
        if isinstance(event, KvPut):
            after = {} if after is None else after
            after[event.key] = event.value
        elif isinstance(event, KvDeleted) and after is not None:
            after.pop(event.key, None)
    return after


def settings_after(settings: Settings, events: Iterable[PendingEvent]) -> Settings:
    """A partition's settings after events."""
    after = dict(settings)
    for event in events:
        if isinstance(event, SettingsChanged):
            for namespace in ("effective", "config") if event.source == "config" else ("effective",):
                after |= {(namespace, name): setting_text(value) for name, value in event.values}
    return after


def _applied(group: BrokerGroup, event: PendingEvent, drops_absent: bool) -> BrokerGroup:
    if isinstance(event, CloseOfMany):
        return _undone(group, event.undone, drops_absent)
    origin = event.origin
    match event:
        case BrokerRegistered():
            return rules.register(
                group,
                event.registration,
                origin.server_id,
                _later_holder(_holder(group, event.registration.live_key, origin.server_id), origin),
                delete_topic_with_broker_registration=drops_absent,
            ).group
        case BrokerHeartbeat():
            return _heard(group, event, drops_absent)
        case BrokerUnregistered():
            held = _holder(group, event.live_key, origin.server_id)
            if held is None or origin.holder < held:
                return group
            return _end(group, event.live_key, origin.server_id)
        case BrokerDisconnected():
            if _holder(group, event.live_key, origin.server_id) != origin.holder:
                return group
            return _end(group, event.live_key, origin.server_id)
        case TopicRegistered():
            return rules.register_topic(group, event.topic, event.queue_data)
        case TopicDeleted():
            is_meant = not event.cluster or event.cluster in group.clusters
            return rules.delete_topic(group, event.topic) if is_meant else group
        case WritePermChanged():
            return rules.add_write_perm(group) if event.writable else rules.wipe_write_perm(group)
        case _:
            return group


def _heard(group: BrokerGroup, event: BrokerHeartbeat, drops_absent: bool) -> BrokerGroup:
    """An unchanged registration stands for the one it repeats; of another one, only the connection is known."""
    if event.proof is Proof.HEARTBEAT:
        return group
    retained = group.registrations.get(event.live_key)
    if retained is not None and retained.registration_hash == event.registration_hash:
        return _applied(group, BrokerRegistered(event.origin, retained.read()), drops_absent)
    held = _holder(group, event.live_key, event.origin.server_id)
    if held is None:
        return group
    return rules.hold(group, event.live_key, event.origin.server_id, _later_holder(held, event.origin))


def _undone(group: BrokerGroup, closes: Iterable[BrokerDisconnected], drops_absent: bool) -> BrokerGroup:
    """As if the connections were open still: who went by that is brought back, who stayed has its holder again."""
    for close in closes:
        key, server_id, holder = close.live_key, close.origin.server_id, close.origin.holder
        if close.broker_name != group.broker_name or _holder(group, key, server_id) is not None:
            continue
        if key in group.lives:
            group = rules.hold(group, key, server_id, holder)
        else:
            group = bring_back(group, key, server_id, holder, delete_topic_with_broker_registration=drops_absent).group
    return group


def _later_holder(held: Holder | None, origin: Origin) -> Holder:
    """The connection that holds from now on; see ``fencing.later_holder``."""
    return held if held is not None and origin.server_epoch < held.server_epoch else origin.holder


def _holder(group: BrokerGroup, key: LiveKey, server_id: str) -> Holder | None:
    live = group.lives.get(key)
    return live.holders.get(server_id) if live else None


def _end(group: BrokerGroup, key: LiveKey, server_id: str) -> BrokerGroup:
    """End one server's hold; the broker stays while another server is known to hear it."""
    if len(group.lives[key].holders) > 1:
        return rules.end_holder(group, key, server_id)
    return rules.unregister(group, key)
