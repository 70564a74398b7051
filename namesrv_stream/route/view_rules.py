"""What pending events make of the committed state, in the order in which the server accepted them."""

from collections.abc import Iterable, Mapping

from namesrv_stream.route.events import AcceptedEvent, BrokerEvent, KvDeleted, KvPut, SettingsChanged, TopicDeleted
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.interpretation import apply_event, kv_differences, setting_differences
from namesrv_stream.route.reducer import apply_to_namespace

#: (namespace "effective" or "config", name) to JSON text.
Settings = Mapping[tuple[str, str], str]

_DROPS_ABSENT_TOPICS = ("effective", "delete_topic_with_broker_registration")


def group_after(group: BrokerGroup, events: Iterable[AcceptedEvent], settings: Settings) -> BrokerGroup:
    """The group after events of its name or of all names, in order.

    Args:
        group: The group before.
        events: Those of other things than groups change nothing.
        settings: Of the group's partition, before the first of the events.
    """
    drops_absent = settings.get(_DROPS_ABSENT_TOPICS) == "true"
    for event in events:
        if isinstance(event, SettingsChanged):
            settings = settings_after(settings, [event])
            drops_absent = settings.get(_DROPS_ABSENT_TOPICS) == "true"
        elif isinstance(event, BrokerEvent | TopicDeleted):
            group = apply_event(group, event, drops_absent_topics=drops_absent).group
    return group


def namespace_after(entries: dict[str, str] | None, events: Iterable[AcceptedEvent]) -> dict[str, str] | None:
    """A copy of a KV namespace after events; None as long as nobody wrote to it."""
    after = None if entries is None else dict(entries)
    for event in events:
        if isinstance(event, KvPut | KvDeleted):
            for _, gone, columns in kv_differences(event):
                after = apply_to_namespace(after, gone, columns.get("key"), columns.get("value"))
    return after


def settings_after(settings: Settings, events: Iterable[AcceptedEvent]) -> Settings:
    """A partition's settings after events."""
    after = dict(settings)
    for event in events:
        if isinstance(event, SettingsChanged):
            after |= {(c["namespace"], c["key"]): c["value"] for _, _, c in setting_differences(event)}
    return after
