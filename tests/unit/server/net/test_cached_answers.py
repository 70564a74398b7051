"""Bodies that are joined from cached parts equal bodies that are encoded as a whole, byte for byte."""

import gc
import weakref
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.processor.route_body import RouteRequest, encode_topic_route
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG
from namesrv_stream.route.address_views import AddressView, parse_view
from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.route.model import QueueData
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.net import cached_answers
from namesrv_stream.server.net.cached_answers import CachedRouteAnswers
from tests.support.examples import examples
from tests.support.strategies_route import groups

#: Unusual names as well: characters that must be escaped, in another way in each of the two forms.
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(("a/b", '"', "\x7f", "\u2028", "Ä"))
QUEUES = st.builds(QueueData, st.integers(0, 4), st.integers(0, 4), st.sampled_from((0, 2, 4, 6, 7)), st.integers(0, 2))
TOPICS = st.sampled_from(("t1", "t2", "rmq_sys_SYNC_BROKER_MEMBER_b"))
MAPPINGS = (
    '"mappings": [{"broker_name": "b1", "to": "{broker_name}-{broker_id}:{1+id}"}, {"broker_addr": "a/b", "to": "b:3"}]'
)
KEEPING = parse_view("keeping", f"{{{MAPPINGS}}}", 1)
OMITTING = parse_view("omitting", f'{{"unmapped": "omit", {MAPPINGS}}}', 2)


@st.composite
def plain_groups(draw: st.DrawFn) -> BrokerGroup:
    """Generate groups with a few names, without filter servers and static topics."""
    group = replace(
        draw(groups()),
        broker_name=draw(st.sampled_from(("b1", "b2", "b/3"))),
        cluster=draw(TEXTS),
        zone_name=draw(st.sampled_from((None, "z1", "Z1", "z2"))),
        enable_acting_master=draw(st.booleans()),
        broker_addrs=draw(st.dictionaries(st.integers(0, 12), TEXTS, max_size=3)),
        topics=draw(st.dictionaries(TOPICS, QUEUES, max_size=3)),
        topic_mappings={},
        live_brokers={},
    )
    return replace(group, topics={}) if is_nothing(group) else group


@settings(max_examples=examples(60))
@given(
    st.lists(plain_groups(), max_size=8),
    st.booleans(),
    st.booleans(),
    st.dictionaries(TOPICS, TEXTS),
    st.sampled_from((None, None, "z1")),
    st.sampled_from((None, KEEPING, OMITTING)),
)
def test_a_body_from_cached_parts_equals_a_newly_encoded_body_after_every_change(
    history: list[BrokerGroup],
    acting: bool,
    with_order: bool,
    orders: dict[str, str],
    zone: str | None,
    address_view: AddressView | None,
) -> None:
    view = RouteView()
    view.table.kv[ORDER_TOPIC_CONFIG] = orders
    answers = CachedRouteAnswers(view, support_acting_master=acting)
    for group in history:
        view.table.replace_group(group)
        for topic in ("t1", "t2", "rmq_sys_SYNC_BROKER_MEMBER_b"):
            for strict in (True, False):
                options: dict[str, Any] = {"with_order": with_order, "zone_name": zone, "address_view": address_view}
                route = answers.route(RouteRequest(topic, **options))
                expected = None if route is None else encode_topic_route(route, strict=strict)
                assert answers.route_body(RouteRequest(topic, strict=strict, **options)) == expected


@given(st.lists(groups(), max_size=4))
def test_routes_with_filter_servers_or_static_topics_equal_newly_encoded_bodies(found: list[BrokerGroup]) -> None:
    view = RouteView()
    answers = CachedRouteAnswers(view)
    for group in found:
        view.table.replace_group(group)
    for topic in [*view.table.topics()]:
        route = answers.route(RouteRequest(topic))
        expected = None if route is None else encode_topic_route(route, strict=True)
        assert answers.route_body(RouteRequest(topic)) == expected


def test_a_group_that_changes_back_has_its_former_body() -> None:
    # As if an event is undone: one topic is queried before and after the change, another one in between.
    view = RouteView()
    answers = CachedRouteAnswers(view, support_acting_master=True)
    both = BrokerGroup("b1", broker_addrs={0: "a"}, topics={"t1": QueueData(1, 1, 6), "t2": QueueData(1, 1, 6)})
    view.table.replace_group(BrokerGroup("b2", broker_addrs={0: "b"}, topics={"t1": QueueData(1, 1, 6)}))

    def body(topic: str) -> bytes | None:
        return answers.route_body(RouteRequest(topic))

    view.table.replace_group(both)
    before = body("t1")
    view.table.replace_group(replace(both, topics={"t2": QueueData(1, 1, 4)}))
    body("t2")
    view.table.replace_group(both)

    assert body("t1") == before


def test_groups_that_are_no_longer_in_the_table_are_not_kept() -> None:
    class Topics(dict[str, QueueData]):
        """A dict that supports weak references."""

    view = RouteView()
    answers = CachedRouteAnswers(view, support_acting_master=True)
    seen = []
    for number in range(20):
        topics = Topics({f"t{number}": QueueData(1, 1, 6), "t": QueueData(1, 1, 6)})
        seen.append(weakref.ref(topics))
        view.table.replace_group(BrokerGroup("b1", broker_addrs={0: "a"}, topics=topics))
        topics = Topics({f"t{number}": QueueData(1, 1, 6)})  # so that every topic has its own brokers
        view.table.replace_group(BrokerGroup(f"c{number}", broker_addrs={0: "a"}, topics=topics))
        assert answers.route_body(RouteRequest(f"t{number}"))
    del topics
    gc.collect()

    assert sum(ref() is not None for ref in seen) == 1


def test_cached_parts_are_bounded_by_the_number_of_brokers() -> None:
    view = RouteView()
    answers = CachedRouteAnswers(view, support_acting_master=True)
    for number in range(3_000):
        group = BrokerGroup(f"b{number}", broker_addrs={0: "a"}, topics={"t": QueueData(1, 1, 6)})
        view.table.replace_group(group)
        assert answers.route_body(RouteRequest("t"))
        view.table.replace_group(BrokerGroup(group.broker_name))
    assert len(vars(answers)["_parts"][True]) <= 102


def test_cached_queues_of_one_broker_are_bounded() -> None:
    view = RouteView()
    answers = CachedRouteAnswers(view, support_acting_master=True)
    topics = {f"t{n}": QueueData(n, n, 6) for n in range(2_500)}
    view.table.replace_group(BrokerGroup("b", broker_addrs={0: "a"}, topics=topics))
    for number, topic in enumerate(topics):
        body = answers.route_body(RouteRequest(topic))
        assert body is not None
        assert b'"readQueueNums":%d,' % number in body
    parts = vars(answers)["_parts"][True]["b"]
    assert len(parts._queues) <= vars(cached_answers)["_MAX_SHAPES"]  # noqa: SLF001 (no public name for the cache)
