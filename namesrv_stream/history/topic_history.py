"""Changes of a topic's route: the tables that its questions need, and descriptions of changes for people."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from namesrv_stream.history.extent import Window
from namesrv_stream.history.past import Past
from namesrv_stream.route.model import PERM_READ, PERM_WRITE

_NO_QUEUES: Final[Mapping[str, int]] = {"read_queues": 0, "write_queues": 0, "perm": 0, "flag": 0}
Offer = Mapping[str, Any]


def set_topic(past: Past, topic: str, window: Window) -> bool:
    """Register the tables that ``topic_changes``, ``topic_intervals`` and ``topic_outages`` read; blocks.

    Args:
        past: The opened tables.
        topic: Any topic.
        window: The period. Changes after its start and up to its end are included.

    Returns:
        Whether the history contains the topic up to the end of the period.
    """
    offers = past.ask("topic_offers", topic=topic, **asdict(window))
    past.register("topic_offers", offers)
    past.register("topic_changes", past.ask("topic_changes", since_ms=window.since_ms))
    past.register("topic_intervals", past.ask("topic_intervals"))
    return bool(offers.num_rows)


def describe(change: Mapping[str, Any]) -> str:
    """Describe a row of ``topic_offers.sql``: ``-broker-a``, ``+broker-a 8/8 RW-``, ``broker-a perm RW- → R--``."""
    name, before, after = change["broker_name"], change["offer_before"] or {}, change["offer"] or {}
    served, serves = before.get("broker_addrs") is not None, after.get("broker_addrs") is not None
    if served and not serves:
        return f"-{name}"
    if serves and not served:
        return f"+{name} {queues_text(after['queues'])}"
    if not before or not after:
        return f"{name} without brokers: {'known' if after else 'forgotten'}"
    return f"{name} " + ", ".join(_differences(before, after))


def _differences(before: Offer, after: Offer) -> Iterator[str]:
    old, new = before["queues"] or _NO_QUEUES, after["queues"] or _NO_QUEUES
    counts, new_counts = (f"{queues['read_queues']}/{queues['write_queues']}" for queues in (old, new))
    old_addrs, new_addrs = dict(before["broker_addrs"] or ()), dict(after["broker_addrs"] or ())
    for text, was, now in (
        ("queues", counts, new_counts),
        ("perm", perm_text(old["perm"]), perm_text(new["perm"])),
        ("sysFlag", old["flag"], new["flag"]),
        *((f"id {i}", old_addrs.get(i, "none"), new_addrs.get(i, "none")) for i in sorted({*old_addrs, *new_addrs})),
        *((name.replace("_", " "), before[name], after[name]) for name in ("cluster", "zone", "acting_master")),
    ):
        if was != now:
            yield f"{text} {was} → {now}"
    if before["filter_servers"] != after["filter_servers"]:
        yield "filter servers"
    if before["mapping"] != after["mapping"]:
        yield "logical queues"


def queues_text(queues: Mapping[str, int]) -> str:
    """Return read and write queues and the permission as text: ``8/8 RW-``."""
    return f"{queues['read_queues']}/{queues['write_queues']} {perm_text(queues['perm'])}"


def perm_text(perm: int) -> str:
    """Return a permission as text: ``RW-``. Source: rocketmq 5.3.3, PermName.perm2String."""
    return ("R" if perm & PERM_READ else "-") + ("W" if perm & PERM_WRITE else "-") + ("X" if perm & 1 else "-")
