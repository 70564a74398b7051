from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import pickup_topic_route
from tests.support.builders import READ_ONLY, RW, a_mapping
from tests.support.examples import examples
from tests.support.strategies_route import groups

UNKNOWN = "a topic of no broker"
_HISTORIES = st.lists(groups(), max_size=5)


def naive_route(newest: Mapping[str, BrokerGroup], topic: str) -> object:
    """Compute the answer for ``topic`` from the groups alone; None if no broker offers it."""
    offering = {n: g for n, g in newest.items() if topic in g.topics}
    if not offering:
        return None
    any_filter = any(live.filter_servers for g in newest.values() for live in g.live_brokers.values())
    return (
        {n: g.topics[topic] for n, g in offering.items()},
        {n: (g.cluster, dict(g.broker_addrs), g.zone_name, g.enable_acting_master) for n, g in offering.items()},
        {(n, k): v.filter_servers for n, g in offering.items() for k, v in g.live_brokers.items() if v.filter_servers},
        any_filter,
        {n: g.topic_mappings[topic] for n, g in newest.items() if topic in g.topic_mappings},
    )


def all_topics(groups: Sequence[BrokerGroup]) -> set[str]:
    return {t for g in groups for t in (*g.topics, *g.topic_mappings)}


@settings(max_examples=examples(50))
@given(_HISTORIES)
def test_indexes_equal_a_naive_recomputation(history: list[BrokerGroup]) -> None:
    table = RouteTable()
    newest: dict[str, BrokerGroup] = {}
    for group in history:
        table.replace_group(group)
        newest[group.broker_name] = group

        assert table.groups == {n: g for n, g in newest.items() if not is_nothing(g)}
        assert set(table.topics()) == {t for g in newest.values() for t in g.topics}
        for topic in all_topics(history):
            offers = {g.broker_name: q for g, q in table.queue_data_of(topic)}
            assert offers == {n: g.topics[topic] for n, g in newest.items() if topic in g.topics}
            mapping = [g.broker_name for g in table.groups_mapping(topic)]
            assert mapping == sorted(n for n, g in newest.items() if topic in g.topic_mappings)
        clusters = {c for g in newest.values() for c in g.clusters}
        assert table.clusters() == {c: {n for n, g in newest.items() if c in g.clusters} for c in clusters}
        assert {g.broker_name for g in table.registered_groups()} == {n for n, g in newest.items() if g.broker_addrs}
        assert table.address_count == sum(len(group.broker_addrs) for group in newest.values())
        has_filters = any(live.filter_servers for group in newest.values() for live in group.live_brokers.values())
        assert table.is_plain(UNKNOWN) != has_filters


@settings(max_examples=examples(50))
@given(_HISTORIES)
def test_a_part_for_another_thread_has_the_routes_of_its_topics(history: list[BrokerGroup]) -> None:
    table = RouteTable()
    for group in history:
        table.replace_group(group)
    for topic in all_topics(history):
        part = table.part_of([topic])
        assert part.groups == table.groups
        for acting in (True, False):
            expected = pickup_topic_route(table, topic, support_acting_master=acting)
            assert pickup_topic_route(part, topic, support_acting_master=acting) == expected


@given(_HISTORIES, _HISTORIES)
def test_replacing_many_groups_at_once_makes_the_same_table_as_one_by_one(
    first: list[BrokerGroup], then: list[BrokerGroup]
) -> None:
    at_once, one_by_one = RouteTable(), RouteTable()
    for many in (first, then):
        newest = {group.broker_name: group for group in many}.values()
        at_once.replace_groups(newest)
        for group in newest:
            one_by_one.replace_group(group)
        assert at_once.groups == one_by_one.groups
        assert at_once.clusters() == one_by_one.clusters()
        assert at_once.is_plain(UNKNOWN) == one_by_one.is_plain(UNKNOWN)
        assert set(at_once.topics()) == set(one_by_one.topics())
        for topic in all_topics(first + then):
            assert at_once.names_offering(topic) == one_by_one.names_offering(topic)
            assert at_once.is_plain(topic) == one_by_one.is_plain(topic)


@settings(max_examples=examples(100))
@given(_HISTORIES)
def test_each_route_that_changes_is_reported(history: list[BrokerGroup]) -> None:
    reported: list[Collection[str] | None] = []
    names: list[str | None] = []

    def on_changed(broker_name: str | None, topics: Collection[str] | None) -> None:
        names.append(broker_name)
        reported.append(topics)

    table = RouteTable()
    table.on_changed = on_changed
    newest: dict[str, BrokerGroup] = {}
    for group in history:
        before = {topic: naive_route(newest, topic) for topic in all_topics(history)}
        is_other = group != table.group(group.broker_name)
        table.replace_group(group)
        newest[group.broker_name] = group
        assert names == [group.broker_name] * is_other
        names.clear()
        changed = {topic for topic, route in before.items() if route != naive_route(newest, topic)}
        assert None in reported or changed <= {topic for topics in reported if topics is not None for topic in topics}
        assert not reported or len(reported) == 1
        reported.clear()


def test_only_the_topic_whose_queues_change_is_reported() -> None:
    reported: list[tuple[str | None, Collection[str] | None]] = []
    table = RouteTable()
    group = BrokerGroup("a", broker_addrs={0: "10.0.0.1:1"}, topics={"changed": RW, "gone": RW, "same": RW})
    table.replace_group(group)
    table.on_changed = lambda broker_name, topics: reported.append((broker_name, topics))
    table.replace_group(replace(group, topics={"changed": READ_ONLY, "new": RW, "same": RW}))
    table.replace_group(replace(group, topics=table.group("a").topics))
    table.replace_group(replace(table.group("a"), topics={"changed": RW, "new": RW, "same": RW}))
    assert reported == [("a", {"changed", "gone", "new"}), ("a", {"changed"})]


@settings(max_examples=examples(50))
@given(_HISTORIES)
def test_replacing_a_group_by_itself_changes_nothing(history: list[BrokerGroup]) -> None:
    table = RouteTable()
    for group in history:
        table.replace_group(group)
    reported: list[object] = []
    table.on_changed = lambda broker_name, topics: reported.append(broker_name)
    for group in list(table.groups.values()):
        table.replace_group(group)

    assert reported == []


def test_brokers_of_a_topic_are_sorted_by_name() -> None:
    table = RouteTable()
    for name in ("b", "a", "c"):
        table.replace_group(BrokerGroup(name, cluster="c0", broker_addrs={0: name}, topics={"t": RW}))

    assert [g.broker_name for g, _ in table.queue_data_of("t")] == ["a", "b", "c"]


def test_a_static_mapping_is_found_although_its_broker_was_removed() -> None:
    table = RouteTable()
    table.replace_group(BrokerGroup("a", topic_mappings={"static": a_mapping()}))

    assert [g.broker_name for g in table.groups_mapping("static")] == ["a"]


def test_an_unknown_broker_name_has_an_empty_group() -> None:
    assert RouteTable().group("x") == BrokerGroup("x")


class _Name(str):
    """A name that counts its comparisons."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def __lt__(self, other: str) -> bool:
        _Name.compared += 1
        return str.__lt__(self, other)


def test_adding_a_broker_name_to_a_topic_does_not_sort_all_its_names_again() -> None:
    table, count = RouteTable(), 1_000
    _Name.compared = 0
    for number in range(count):
        name = _Name(f"broker-{number * 7_919 % count:04}")
        table.replace_group(BrokerGroup(name, broker_addrs={0: "a:1"}, topics={"TopicOfAll": RW}))
    assert _Name.compared <= count * 12  # a binary search for each name
    assert list(table.names_offering("TopicOfAll")) == [f"broker-{number:04}" for number in range(count)]
