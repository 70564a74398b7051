"""Finds the causes of a missing or unusable route in the facts about one topic or one broker name.

The routes at the moment in question show what is wrong. The rows of ``route_changes`` show since when, and why.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange, lease_key
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import DRAINED_BROKERS, MASTER_ID, PERM_READ, PERM_WRITE, decode_drain
from namesrv_stream.route.registration import some_of
from namesrv_stream.route.topic_route import broker_data_of, is_in_zone
from namesrv_stream.route.why.facts import Facts
from namesrv_stream.route.why.findings import Explanation, Finding, Why, finding

#: Brokers that create topics automatically have this topic. Source: rocketmq 5.3.3, TopicValidator.
DEFAULT_TOPIC: Final = "TBW102"
#: Interval at which clients query the routes that they use. Source: rocketmq 5.3.3, ClientConfig.
CLIENT_CACHE_MS: Final = 30_000
#: The namespace of order configurations, ``broker-a:8;broker-b:8`` by topic. Source: rocketmq 5.3.3, NamesrvUtil.
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
_WHY_GONE: Final[Mapping[str, Why]] = {
    Cause.EXPIRED: Why.BROKER_EXPIRED,
    Cause.DISCONNECTED: Why.BROKER_DISCONNECTED,
    Cause.UNREGISTERED: Why.BROKER_UNREGISTERED,
    Cause.TOPIC_DELETED: Why.TOPIC_DELETED,
    Cause.REGISTERED: Why.TOPIC_LEFT_OUT,
    Cause.RETURNED: Why.TOPIC_LEFT_OUT,
}


def explain(facts: Facts, *, server_id: str = "", notes: Sequence[str] = ()) -> Explanation:
    """Return the answer to the question in ``facts``.

    Args:
        facts: The question, and what is known about it.
        server_id: The server that answers; "" if the answer is from the tables alone.
        notes: What limits the answer.
    """
    question, table = facts.question, facts.table
    if question.subject == "broker":
        is_routed, findings = table.group(facts.name).is_registered, explain_broker(facts)
    else:
        is_routed, findings = any(g.is_registered for g, _ in table.queue_data_of(facts.name)), explain_topic(facts)
    is_known = is_routed or bool(facts.rows)
    return Explanation(
        question.subject, facts.name, facts.at_ms, server_id, is_known, is_routed, findings, tuple(notes)
    )


def explain_topic(facts: Facts) -> list[Finding]:
    """Return what is wrong with a topic, the most important first."""
    queues = {group.broker_name: queue for group, queue in facts.table.queue_data_of(facts.name)}
    groups = [group for name in queues if (group := facts.table.group(name)).is_registered]
    if not groups:
        return _with_server(facts, list(_no_route(facts)))
    hidden, seen = _hidden(facts, groups)
    perms = {g.broker_name: queues[g.broker_name].perm for g in seen if MASTER_ID in g.broker_addrs}
    found = [*hidden, *_unhealthy(facts, seen), *_no_permission(facts, perms), *_order(facts, groups)]
    found += [*_contradictions(facts, seen, facts.name), *_late(facts)]
    rows = _of_kinds(facts.rows, ChangeKind.QUEUE_DATA, ChangeKind.BROKER_DATA)
    return _with_server(facts, found) or [_usable(facts, seen, rows)]


def explain_broker(facts: Facts) -> list[Finding]:
    """Return what is wrong with a broker name, the most important first."""
    group = facts.table.group(facts.name)
    if not group.is_registered:
        return _with_server(facts, list(_not_registered(facts)))
    hidden, seen = _hidden(facts, [group])
    found = [*hidden, *_unhealthy(facts, seen), *_contradictions(facts, seen)]
    wiped = [row for row in facts.rows if row.cause == Cause.WRITE_PERM_WIPED and not row.gone]
    if wiped and not any(queue.perm & PERM_WRITE for queue in group.topics.values()):
        found.append(_wiped(facts, wiped))
    found += _late(facts)
    return _with_server(facts, found) or [_usable(facts, seen, _of_kinds(facts.rows, ChangeKind.BROKER_DATA))]


def _late(facts: Facts) -> Iterator[Finding]:
    if facts.late:
        yield finding(Why.HEARTBEAT_LATE, facts.name, facts.late)


def _no_route(facts: Facts) -> Iterator[Finding]:
    """Yield why no registered broker has the topic."""
    queues = _of_kinds(facts.rows, ChangeKind.QUEUE_DATA)
    if facts.elsewhere:
        yield finding(Why.OTHER_SERVER, facts.name, facts.elsewhere)
    if queues:
        yield from _refused(facts, {row.broker_name: row.at_ms for row in queues if row.gone})
        yield _gone(facts, queues)
        return
    if facts.known.near:
        yield finding(Why.NEAR_MISS, facts.name, facts.known.near)
    if facts.known.has_brokers:
        yield _never_registered(facts)
        yield from _refused(facts, dict.fromkeys(facts.refusals, 0))
    else:
        yield from _refused(facts, dict.fromkeys(facts.refusals, 0))
        yield finding(Why.NO_BROKERS, facts.name)


def _never_registered(facts: Facts) -> Finding:
    if any(group.is_registered for group, _ in facts.table.queue_data_of(DEFAULT_TOPIC)):
        return finding(Why.NEVER_REGISTERED, facts.name)
    rows = [row for row in _of_kinds(facts.known.default_topic, ChangeKind.QUEUE_DATA) if row.gone]
    gone = [row for row in rows if not facts.table.group(row.broker_name or "").is_registered]
    if gone:
        return finding(Why.DEFAULT_TOPIC_GONE, facts.name, [f"{row.broker_name} ({row.cause})" for row in gone], gone)
    return finding(Why.AUTO_CREATION_OFF, facts.name, (), rows)


def _gone(facts: Facts, rows: Sequence[RouteChange]) -> Finding:
    """Return why the last key of a topic or broker name was deleted."""
    gone = [row for row in rows if row.gone]
    if not gone:
        return finding(Why.BROKER_REMOVED, facts.name, ["the job has not committed the change yet; ask again"])
    last = max(gone, key=lambda row: (row.at_ms, *row[:3]))
    why = _WHY_GONE.get(last.cause, Why.BROKER_REMOVED)
    if last.kind == ChangeKind.QUEUE_DATA:
        if why != Why.TOPIC_DELETED and facts.table.group(last.broker_name or "").is_registered:
            why = Why.TOPIC_LEFT_OUT
    elif why == Why.TOPIC_LEFT_OUT:  # another process took over the name and address
        why = Why.BROKER_REMOVED
    if why == Why.TOPIC_LEFT_OUT:
        return finding(why, facts.name, [last.broker_name or ""], [last])
    rows = [row for row in gone if row.cause == last.cause]
    if why == Why.TOPIC_DELETED:
        return finding(why, facts.name, [last.detail or "the log does not say by whom"], rows)
    return finding(why, facts.name, _details([last]), gone)


def _not_registered(facts: Facts) -> Iterator[Finding]:
    """Yield why a broker name is not registered."""
    processes = _of_kinds(facts.rows, ChangeKind.BROKER_LIVE)
    if facts.elsewhere:
        yield finding(Why.OTHER_SERVER, facts.name, facts.elsewhere)
    yield from _refused(facts, {facts.name: max((row.at_ms for row in processes), default=0)})
    if processes:
        yield _gone(facts, processes)
        return
    if facts.known.near:
        yield finding(Why.NEAR_MISS, facts.name, facts.known.near)
    yield finding(Why.BROKER_NEVER_REGISTERED if facts.known.has_brokers else Why.NO_BROKERS, facts.name)


def _refused(facts: Facts, since_of: Mapping[str | None, int]) -> Iterator[Finding]:
    """Yield a finding if requests were refused, given name → epoch milliseconds from which refusals count."""
    refused = {name: r for name, r in facts.refusals.items() if name in since_of and r.last_ms >= since_of[name]}
    if refused:
        texts = [f"{name}: {refusal.text}" for name, refusal in refused.items()]
        since_ms = min(refusal.since_ms for refusal in refused.values())
        yield finding(Why.ACCESS_DENIED, facts.name, texts, since_ms=since_ms)


def _hidden(facts: Facts, groups: Sequence[BrokerGroup]) -> tuple[list[Finding], Sequence[BrokerGroup]]:
    """Return what hides these broker groups from the client, and the groups that it sees."""
    cluster, zone, rows = facts.question.cluster, facts.question.zone, _of_kinds(facts.rows, ChangeKind.BROKER_DATA)
    seen = [group for group in groups if cluster is None or cluster in group.clusters]
    if not seen:
        where = [f"{group.broker_name} in {group.cluster}" for group in groups]
        return [finding(Why.OTHER_CLUSTER, facts.name, where, rows)], ()
    in_zone = [group for group in seen if zone is None or is_in_zone(broker_data_of(group), zone)]
    if not in_zone:
        where = [f"{group.broker_name} in {group.zone_name or 'no zone'}" for group in seen]
        return [finding(Why.HIDDEN_BY_ZONE, facts.name, where, rows)], ()
    return list(_not_mapped(facts, in_zone)), in_zone


def _not_mapped(facts: Facts, groups: Sequence[BrokerGroup]) -> Iterator[Finding]:
    """Yield a finding if the client's address view maps no address of these broker groups."""
    view = facts.view
    if view is None or not groups:
        return
    unmapped = {g.broker_name: list(view.unmapped(g.broker_name, g.broker_addrs)) for g in groups}
    if all(len(unmapped[group.broker_name]) == len(group.broker_addrs) for group in groups):
        effect = "passed on unchanged" if view.keeps_unmapped else "left out"
        brokers = [broker for of_group in unmapped.values() for broker in of_group]
        where = [f"{b.broker_name} {b.broker_addr} ({effect} in view {view.name})" for b in brokers]
        rows = [row for row in facts.rows if row.kind == ChangeKind.BROKER_DATA and row.broker_name in unmapped]
        yield finding(Why.ADDRESS_NOT_MAPPED, facts.name, where, rows)


def _unhealthy(facts: Facts, groups: Sequence[BrokerGroup]) -> Iterator[Finding]:
    """Yield why clients cannot send to these broker groups, or get addresses of dead brokers."""
    names = {group.broker_name for group in groups}
    rows = [row for row in facts.rows if row.broker_name in names]
    if groups and not any(MASTER_ID in group.broker_addrs for group in groups):
        gone = [row for row in _of_kinds(rows, ChangeKind.BROKER_LIVE) if row.gone and row.broker_id == MASTER_ID]
        masters = gone or _of_kinds(rows, ChangeKind.BROKER_DATA)
        yield finding(Why.ONLY_SLAVES, facts.name, _details(masters), masters)
    held = {key: hold for key, hold in facts.table.held.items() if key.broker_name in names}
    if held:
        texts = [f"{key.broker_name}: {hold.reason}" for key, hold in held.items()]
        since_ms = min(hold.since_ms for hold in held.values())
        guarded = [row for row in _of_kinds(rows, ChangeKind.GUARD) if not row.gone]
        yield finding(Why.HELD_BY_GUARD, facts.name, texts, guarded, since_ms=since_ms)


def _no_permission(facts: Facts, perms: Mapping[str, int]) -> Iterator[Finding]:
    """Yield why clients cannot send to a topic, or cannot read it, given its permission at every master."""
    rows = [row for row in _of_kinds(facts.rows, ChangeKind.QUEUE_DATA) if row.broker_name in perms and not row.gone]
    if not perms:
        return
    if not any(perm & (PERM_READ | PERM_WRITE) for perm in perms.values()):
        yield finding(Why.NO_PERMISSION, facts.name, perms, rows)
    elif not any(perm & PERM_WRITE for perm in perms.values()):
        wiped = [row for row in rows if row.cause == Cause.WRITE_PERM_WIPED]
        if wiped:
            yield _wiped(facts, wiped)
        else:
            yield finding(Why.READ_ONLY, facts.name, perms, rows)
    elif not any(perm & PERM_READ for perm in perms.values()):
        yield finding(Why.WRITE_ONLY, facts.name, perms, rows)


def _wiped(facts: Facts, rows: Sequence[RouteChange]) -> Finding:
    """Return who removed the write permission, and which of the brokers are drained."""
    entries = facts.table.kv.get(DRAINED_BROKERS, {})
    records = {name: decode_drain(entries[name]) for row in rows if (name := row.broker_name) in entries}
    drains = [f"{name} has been drained since {each.at} by {each.by}" for name, each in records.items() if each]
    return finding(Why.WRITE_PERM_WIPED, facts.name, [*drains, *_details(rows)], rows)


def _order(facts: Facts, groups: Sequence[BrokerGroup]) -> Iterator[Finding]:
    value = facts.table.kv.get(ORDER_NAMESPACE, {}).get(facts.name, "") if facts.with_order else ""
    missing = sorted(ordered_brokers(value) - {group.broker_name for group in groups})
    if missing:
        rows = [row for row in facts.rows if row.kind == ChangeKind.KV or (row.gone and row.broker_name in missing)]
        yield finding(Why.ORDER_NAMES_GONE, facts.name, missing, rows)


def ordered_brokers(order: str) -> set[str]:
    """Return the broker names of an order configuration."""
    return {part.partition(":")[0].strip() for part in order.split(";")} - {""}


def _contradictions(facts: Facts, groups: Sequence[BrokerGroup], topic: str | None = None) -> Iterator[Finding]:
    """Yield which brokers report other content than the routes have, of one topic or of all."""
    found = {}
    for group in groups:
        for key, live in group.live_brokers.items():
            if live.contradictions if topic is None else topic in live.contradictions:
                found[group.broker_name, key] = live.contradictions
    if found:
        processes = _of_kinds(facts.rows, ChangeKind.BROKER_LIVE)
        rows = [row for row in processes if lease_key(row) in found and row.cause == Cause.CONTRADICTION]
        texts = [name if topic else f"{name} ({some_of(topics)})" for (name, _), topics in found.items()]
        yield finding(Why.CONTRADICTION, facts.name, texts, rows)


def _usable(facts: Facts, groups: Sequence[BrokerGroup], rows: Sequence[RouteChange]) -> Finding:
    """Return the finding that clients can use the route, now or as soon as they request it again."""
    # One row of each record is enough: that of the topic, if there is one ("queue_data" comes after "broker_data").
    recent = [row for row in rows if row.at_ms > facts.at_ms - CLIENT_CACHE_MS]  # a removed broker is a change, too
    shown = [*(row for row in recent if row.gone), *(row for row in rows if not row.gone)]
    of_record = {(row.partition, row.offset): row for row in sorted(shown, key=lambda row: row.kind)}
    why = Why.CLIENT_CACHE if recent else Why.NOTHING_WRONG
    return finding(why, facts.name, [group.broker_name for group in groups], of_record.values())


def _with_server(facts: Facts, found: list[Finding]) -> list[Finding]:
    """Add what is wrong with the server. This comes first unless the most important cause found is certain.

    A cause is certain if it is older than the server's problem and the tables know the name. Otherwise the server may
    have missed the true cause because of its problem.
    """
    if not facts.of_server:
        return found
    begun_ms = min((each.since_ms for each in facts.of_server if each.since_ms is not None), default=facts.at_ms)
    since_ms = found[0].since_ms if found and facts.rows else None
    is_certain = since_ms is not None and since_ms < begun_ms
    return [*found, *facts.of_server] if is_certain else [*facts.of_server, *found]


def _of_kinds(rows: Sequence[RouteChange], *kinds: ChangeKind) -> list[RouteChange]:
    return [row for row in rows if row.kind in kinds]


def _details(rows: Sequence[RouteChange]) -> list[str]:
    return [f"{row.broker_name} {row.cause}{f', {row.detail}' if row.detail else ''}" for row in rows]
