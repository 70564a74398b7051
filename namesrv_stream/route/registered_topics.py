"""The topics of a broker group after a registration, and what a registration changes under the DataVersion of the last.

A broker must count up its DataVersion whenever its topics change. If it does not (apache/rocketmq#10438), the Java name
server keeps the old queues and permissions, and does not report this.
"""

from collections.abc import Mapping
from typing import Any, Final

from namesrv_stream.route.model import (
    PERM_WRITE,
    DataVersion,
    QueueData,
    Registration,
    TopicQueueMappingInfo,
    shared_queue_data,
)
from namesrv_stream.route.registration_json import RetainedRegistration

#: Topics in a text; a broker has thousands.
_MOST_NAMES: Final = 5


def merge_topics(
    topics: Mapping[str, QueueData],
    payload: Mapping[str, QueueData],
    *,
    rewrite: bool,
    drop_absent: bool,
) -> Mapping[str, QueueData]:
    """Return the topics after a registration: all are written if ``rewrite``, otherwise only the new ones."""
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

    An operator may have changed the table meanwhile (``wipeWritePerm``). So a topic counts only if the broker's last
    full registration differs as well, or if the topic counted before. Topics that a registration adds are applied in
    any case, and topics that it lacks are not removed by a new DataVersion either, so both do not count.

    Args:
        known: The topics that counted before.
        last: The broker's last full registration.
        registration: The registration, with the DataVersion of the broker's live entry.
        payload: Its topics as the table should have them.
        topics: The topics of the table.
        mappings: The static mappings of the table.
    """
    new_mappings = registration.topic_mappings or {}
    names = set(known)
    if last is not None and (last.registration_hash != registration.registration_hash or not last.registration_hash):
        before = last.read()
        names |= _changed(before.topics, registration.topics) | _changed(before.topic_mappings or {}, new_mappings)
    if not names:
        return ()
    return tuple(sorted(names & (_changed(topics, payload) | _changed(mappings, new_mappings))))


def contradiction_text(data_version: DataVersion, topics: tuple[str, ...], *, is_taken_over: bool) -> str:
    """Return what a registration changes under the last DataVersion, for people."""
    outcome = "taken over" if is_taken_over else "ignored"
    version = f"{data_version.counter} of {data_version.timestamp}"
    return f"other content with the same DataVersion ({version}): {some_of(topics)}; {outcome}"


def some_of(topics: tuple[str, ...]) -> str:
    """Return the first topics, and how many there are besides, for people."""
    more = f" and {len(topics) - _MOST_NAMES:,} more" if len(topics) > _MOST_NAMES else ""
    return ", ".join(topics[:_MOST_NAMES]) + more


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    """Return the keys of both mappings whose values differ."""
    return {key for key, value in new.items() if key in old and old[key] != value}


def without_write(q: QueueData) -> QueueData:
    if not q.perm & PERM_WRITE:
        return q
    return shared_queue_data(q.read_queue_nums, q.write_queue_nums, q.perm & ~PERM_WRITE, q.topic_sys_flag)
