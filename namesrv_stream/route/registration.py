"""What a registration changes in a broker group, and whether it contradicts the last one with the same DataVersion.

A broker must increment its DataVersion whenever its topics change. If it does not (apache/rocketmq#10438), the Java
name server keeps the old queues and permissions, and does not report this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from namesrv_stream.route.group import (
    BrokerGroup,
    master_sets_topics_again,
    unregister,
    updated,
    without,
    without_write,
)
from namesrv_stream.route.model import (
    DEFAULT_REGISTRATION_SETTINGS,
    MASTER_ID,
    BrokerLive,
    DataVersion,
    Holder,
    LiveKey,
    QueueData,
    Registration,
    RegistrationSettings,
    TopicQueueMappingInfo,
)
from namesrv_stream.route.registration_json import RetainedRegistration, retained

#: The most live processes of one broker name, and the most registrations that are kept for it. Real names have some
#: ten. Each event of a name costs time, and each of its rows space, in proportion to this number.
MAX_PROCESSES: Final = 100
#: The most topics that a text names; a broker may have thousands.
_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class Registered:
    """The outcome of a registration.

    Attributes:
        group: The group afterwards; the same object if nothing changed.
        ignored: Why the registration was not applied; None if it was.
        refused: The remark with which the broker is answered SYSTEM_ERROR instead of SUCCESS; None if it is not.
        contradiction: What differs although the DataVersion is unchanged, as text; None if nothing differs, or if
            this was noted before.
    """

    group: BrokerGroup
    ignored: str | None = None
    refused: str | None = None
    contradiction: str | None = None


def register(
    group: BrokerGroup,
    registration: Registration,
    server_id: str,
    holder: Holder,
    settings: RegistrationSettings = DEFAULT_REGISTRATION_SETTINGS,
) -> Registered:
    """Apply one registration that ``server_id`` received over ``holder``.

    As in Java, a registration with the DataVersion of the last one adds topics, but changes none of those that exist.
    The same applies to static mappings. The topics that it would change are noted in the broker's live entry; with
    ``takes_over_contradictions`` they change.

    Differs from RocketMQ: static mappings and permissions of an acting master end (ADR 0067). A refused registration
    changes nothing (Java adds a cluster entry and removes an id). If another broker has the brokerId and a higher
    stateVersion, the process that registers is removed completely, where Java may leave an address in the route without
    a live entry. A name has at most ``MAX_PROCESSES`` live processes.

    Source: rocketmq 5.3.3, RouteInfoManager.registerBroker.
    """
    key, broker_id = registration.live_key, registration.broker_id
    addrs = {i: a for i, a in group.broker_addrs.items() if a != key.broker_addr or i == broker_id}
    if reason := _held_by_later_state(group, registration, addrs.get(broker_id)):
        return Registered(unregister(group, key), ignored=reason)
    if broker_id not in addrs and len(registration.topics) == 1:
        return Registered(group, ignored="one topic before any full registration", refused="register broker failed")
    if key not in group.live_brokers and len(group.live_brokers) >= MAX_PROCESSES:
        reason = f"{group.broker_name} has {MAX_PROCESSES} live processes, and may have no more"
        return Registered(group, ignored=reason, refused=reason)

    live = group.live_brokers.get(key)
    is_first = not group.is_registered or broker_id not in addrs
    addrs[broker_id] = key.broker_addr
    is_new = is_first or live is None or live.data_version != registration.data_version
    has_new_version = is_new or _ends_acting(group, registration, min(addrs))
    after = _topics_after(group, registration, has_new_version, min(addrs), settings)
    contradictions = _contradictions_after(live, registration, after)
    contradiction = None
    if after.differing and live is not None and (after.is_rewritten or contradictions != live.contradictions):
        contradiction = contradiction_text(registration.data_version, after.differing, is_taken_over=after.is_rewritten)
    registrations, last = group.registrations, group.registrations.get(key)
    # The same one is not compared, because that takes milliseconds.
    if len(registration.topics) != 1 and not (last is not None and last.has_content_of(registration)):
        if key not in registrations and len(registrations) >= MAX_PROCESSES:
            registrations = {k: r for k, r in registrations.items() if k in group.live_brokers}
        registrations = updated(registrations, {key: retained(registration)})
    next_live = replace(_live_after(live, registration, server_id, holder), contradictions=contradictions)
    next_group = replace(
        group,
        cluster=group.cluster if group.is_registered else registration.cluster,
        clusters=group.clusters if registration.cluster in group.clusters else group.clusters | {registration.cluster},
        zone_name=registration.zone_name,
        enable_acting_master=bool(registration.enable_acting_master),
        broker_addrs=group.broker_addrs if addrs == group.broker_addrs else addrs,
        live_brokers=updated(group.live_brokers, {key: next_live}),
        topics=after.topics,
        topic_mappings=after.mappings,
        registrations=registrations,
    )
    if broker_id != MASTER_ID:
        next_group = master_sets_topics_again(group, next_group)
    return Registered(group if next_group == group else next_group, contradiction=contradiction)


def _ends_acting(group: BrokerGroup, registration: Registration, lowest_id: int) -> bool:
    """Return whether a slave that acted as master has become the master, or does not act any more.

    The topics are still without the write permission then, and in Java they remain so until a restart.
    """
    if min(group.broker_addrs, default=MASTER_ID) == MASTER_ID:
        return False
    return lowest_id == MASTER_ID or (group.enable_acting_master and not registration.enable_acting_master)


def _held_by_later_state(group: BrokerGroup, registration: Registration, holder_addr: str | None) -> str:
    """Return why the broker at ``holder_addr`` keeps the brokerId of a registration; "" if it does not."""
    if holder_addr is None or holder_addr == registration.broker_addr:
        return ""
    live = group.live_brokers.get(LiveKey(registration.cluster, holder_addr))
    if live is None or live.data_version.state_version <= registration.data_version.state_version:
        return ""
    versions = f"{live.data_version.state_version} > {registration.data_version.state_version}"
    return f"brokerId {registration.broker_id} is held by {holder_addr} with a higher stateVersion {versions}"


class _TopicsAfter(NamedTuple):
    """The topics after a registration.

    Attributes:
        differing: The topics whose content differs although the DataVersion is unchanged.
        is_rewritten: Whether the registration also replaces topics that existed before.
    """

    topics: Mapping[str, QueueData]
    mappings: Mapping[str, TopicQueueMappingInfo]
    differing: tuple[str, ...]
    is_rewritten: bool


def _topics_after(
    group: BrokerGroup, registration: Registration, rewrite: bool, lowest_id: int, settings: RegistrationSettings
) -> _TopicsAfter:
    """Return the topics after a registration.

    Only the master, or the slave with the lowest id in a group without a master, changes them.
    """
    topics, mappings = group.topics, group.topic_mappings
    is_master = registration.broker_id == MASTER_ID
    is_prime_slave = registration.enable_acting_master is not None and registration.broker_id == lowest_id
    if not is_master and not is_prime_slave:
        return _TopicsAfter(topics, mappings, (), rewrite)
    payload = registration.topics
    if not is_master and registration.enable_acting_master:
        payload = {t: without_write(q) for t, q in payload.items()}
    differing: tuple[str, ...] = ()
    if not rewrite:
        key = registration.live_key
        known = group.live_brokers[key].contradictions
        differing = differing_topics(known, group.registrations.get(key), registration, payload, topics, mappings)
        rewrite = bool(differing) and settings.takes_over_contradictions
    drop_absent = settings.drops_absent_topics and not registration.topic_mappings
    topics = merge_topics(topics, payload, rewrite=rewrite, drop_absent=drop_absent)
    mappings = _mappings_after(group, registration, topics, rewrite=rewrite)
    return _TopicsAfter(topics, mappings, differing, rewrite)


def _mappings_after(
    group: BrokerGroup, registration: Registration, topics: Mapping[str, QueueData], *, rewrite: bool
) -> Mapping[str, TopicQueueMappingInfo]:
    """Return the static mappings after a registration, given the topics after it.

    A mapping ends if its topic ends, or if a registration with a new DataVersion has the topic without it. But a broker
    with ``enableSplitRegistration`` sends all mappings with the last part of its topics. So a mapping stays if the
    registration has several topics and no mapping, and the broker's last full registration lacks the topic: both may
    be such parts.

    Source: rocketmq 5.3.3, BrokerController.registerBrokerAll; Java removes no mapping, and adds none to a known
    DataVersion.
    """
    mappings = group.topic_mappings if group.is_registered else {}  # earlier releases kept those of ended brokers
    sent = registration.topic_mappings or {}
    ended = {t for t in mappings if t in group.topics and t not in topics}
    if rewrite and (omitted := (mappings.keys() - sent.keys()) & registration.topics.keys()):
        last = group.registrations.get(registration.live_key)
        if last is not None and not sent and len(registration.topics) > 1:
            omitted &= last.queues_of(omitted).keys()
        ended |= omitted
    added = sent if rewrite else {t: m for t, m in sent.items() if t not in mappings}
    return updated(without(mappings, ended), added)


def _contradictions_after(live: BrokerLive | None, registration: Registration, after: _TopicsAfter) -> tuple[str, ...]:
    """Return the topics whose content differs from the table although the broker has registered no new DataVersion."""
    contradictions = () if after.is_rewritten else after.differing
    if len(registration.topics) == 1 and live is not None:
        # The registration of a single topic says nothing about the others, whatever its DataVersion is.
        others = set(live.contradictions) - registration.topics.keys()
        contradictions = tuple(sorted({*contradictions, *others}))
    return contradictions


def _live_after(live: BrokerLive | None, registration: Registration, server_id: str, holder: Holder) -> BrokerLive:
    """Return a broker's live entry after a registration; a registration without filter servers keeps the known ones."""
    filter_servers = registration.filter_servers
    if filter_servers is None:
        filter_servers = live.filter_servers if live else ()
    return BrokerLive(
        data_version=registration.data_version,
        timeout_ms=registration.timeout_ms,
        ha_server_addr=registration.ha_server_addr,
        filter_servers=filter_servers,
        registration_hash=registration.registration_hash,
        holders=updated(live.holders if live else {}, {server_id: holder}),
    )


def merge_topics(
    topics: Mapping[str, QueueData],
    payload: Mapping[str, QueueData],
    *,
    rewrite: bool,
    drop_absent: bool,
) -> Mapping[str, QueueData]:
    """Return ``topics`` updated with all topics of ``payload`` if ``rewrite``, otherwise with the new ones only.

    With ``drop_absent``, the topics that ``payload`` lacks are removed.
    """
    kept = topics
    if drop_absent and not topics.keys() <= payload.keys():
        kept = {t: q for t, q in topics.items() if t in payload}
    # Operations on whole dicts take a tenth of the time of a loop over thousands of topics, of which few differ.
    if rewrite:
        merged = {**kept, **payload}
        return kept if merged == kept else merged
    if payload.keys() <= topics.keys():
        return kept
    return {**kept, **{t: q for t, q in payload.items() if t not in topics}}


def differing_topics(
    known: tuple[str, ...],
    last: RetainedRegistration | None,
    registration: Registration,
    payload: Mapping[str, QueueData],
    topics: Mapping[str, QueueData],
    mappings: Mapping[str, TopicQueueMappingInfo],
) -> tuple[str, ...]:
    """Return the topics that a registration would change if its DataVersion were a new one, sorted.

    An operator may have changed the table meanwhile (``wipeWritePerm``). So a topic counts only if it differs from the
    broker's last full registration as well, or if it counted before. Topics that a registration adds are applied in any
    case, and topics that it lacks are not removed by a new DataVersion either, so neither kind counts.

    Args:
        known: The topics that counted before.
        last: The broker's last full registration.
        registration: The registration, with the DataVersion of the broker's live entry.
        payload: Its topics as the table would store them.
        topics: The topics of the table.
        mappings: The static mappings of the table.
    """
    is_same = last is not None and last.has_content_of(registration)
    if is_same and not known:
        return ()
    new_mappings = registration.topic_mappings or {}
    differing = _changed(topics, payload) | _changed(mappings, new_mappings)
    counted, others = set(known), differing.difference(known)
    if others and last is not None and not is_same:
        # Only what differs is read, because the last registration can be megabytes.
        counted |= _changed(last.queues_of(others), registration.topics)
        if new_mappings:
            counted |= _changed(last.topic_mappings(), new_mappings)
    return tuple(sorted(counted & differing))


def contradiction_text(data_version: DataVersion, topics: tuple[str, ...], *, is_taken_over: bool) -> str:
    """Return which topics a registration changes although its DataVersion is unchanged, as human-readable text."""
    outcome = "taken over" if is_taken_over else "ignored"
    version = f"{data_version.counter} of {data_version.timestamp}"
    return f"other content with the same DataVersion ({version}): {some_of(topics)}; {outcome}"


def some_of(topics: tuple[str, ...]) -> str:
    """Return a text with the first topics and the number of the others."""
    more = f" and {len(topics) - _MOST_NAMES:,} more" if len(topics) > _MOST_NAMES else ""
    return ", ".join(topics[:_MOST_NAMES]) + more


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    """Return the keys of both mappings whose values differ."""
    return {key for key, value in new.items() if key in old and old[key] != value}
