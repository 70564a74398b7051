"""A page with very many brokers, and a route with very many brokers, do not block the event loop."""

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import pickup_topic_route
from namesrv_stream.server.http.console.brokers import FleetSnapshots
from namesrv_stream.server.http.console.query import Question
from namesrv_stream.server.http.console.timeline import timeline
from namesrv_stream.server.http.console.topics import Offer, offers_now, offers_of, route_diff
from namesrv_stream.server.steps import Steps
from namesrv_stream.server.view.fleet import Fleet
from tests.support.examples import examples
from tests.support.http_rig import HttpRig
from tests.support.strategies_route import groups


async def _turns(work: Awaitable[object]) -> int:
    """Return the number of iterations of the event loop until the work is done."""
    done, turns = asyncio.ensure_future(work), 0
    while not done.done():
        await asyncio.sleep(0)
        turns += 1
    await done
    return turns


def _gone(number: int, at_ms: int) -> RouteChange:
    row = RouteChange(0, number, 0, at_ms, ChangeKind.BROKER_LIVE, True, Cause.EXPIRED, broker_id=0)
    return row._replace(cluster=f"c{number % 20}", broker_name=f"b{number}", broker_addr=f"10.0.0.1:{number}")


async def test_removed_brokers_are_collected_in_several_iterations_of_the_event_loop() -> None:
    served = HttpRig()
    fleet = Fleet(served.rig.view, served.rig.gateway, served.recent_events)
    snapshots = FleetSnapshots(served.rig.view, fleet, Steps(), served.rig.clock)
    await served.recent_events.begin({})
    served.recent_events.committed(_gone(number, served.rig.clock.now_ms()) for number in range(20_000))
    assert await _turns(snapshots.newest()) > 10
    snapshot = await snapshots.newest()
    assert snapshot.count("gone") == 20_000
    assert snapshot.brokers[0][1].key.broker_name == "b19999"


async def test_the_time_line_is_made_in_several_iterations_of_the_event_loop() -> None:
    served = HttpRig()
    await served.recent_events.begin({})
    served.recent_events.committed(_gone(number, served.rig.clock.now_ms()) for number in range(2_000))
    made: dict[str, Any] = {}

    async def make() -> None:
        made.update(await timeline(served.recent_events, Question.model_validate({}), served.rig.clock, Steps()))

    assert await _turns(make()) > 5
    assert (len(made["lanes"]), made["more_lanes"]) == (20, 1_980)
    assert (len(made["events"]), made["more_events"]) == (100, 1_900)


@given(st.lists(groups(), max_size=5), st.booleans())
@settings(max_examples=examples(100))
def test_the_current_offers_of_brokers_equal_those_of_their_route(found: list[BrokerGroup], acting: bool) -> None:
    table = RouteTable()
    for group in found:
        table.replace_group(group)
    for topic in table.topics():
        route = pickup_topic_route(table, topic, support_acting_master=acting)
        offers = list(offers_now(table.queue_data_of(topic), topic, support_acting_master=acting))
        assert route is None or offers == list(offers_of(route))


def _offers(count: int, *, perm: str) -> Iterator[tuple[str, Offer]]:
    return ((f"b{number:05d}", Offer("c", f"0=10.0.0.1:{number}", "8", "8", perm)) for number in range(count))


async def test_a_route_with_many_brokers_is_compared_in_several_iterations_of_the_event_loop() -> None:
    work = route_diff(
        _offers(10_000, perm="RW-"), _offers(10_001, perm="R--"), is_compared=True, most=300, steps=Steps()
    )
    assert await _turns(work) > 10


async def test_differing_brokers_of_a_large_route_are_shown_first_and_all_are_counted() -> None:
    before = {name: offer for name, offer in _offers(1_000, perm="RW-") if name != "b00998"}
    before |= {"b00999": before["b00999"]._replace(perm="R--"), "c": before["b00000"]}
    now = _offers(1_000, perm="RW-")
    diff = await route_diff(now, before.items(), is_compared=True, most=4, steps=Steps())
    assert [(line["name"], line["kind"]) for line in diff["lines"]] == [
        ("b00998", "added"),
        ("b00999", "changed"),
        ("c", "removed"),
        ("b00000", "same"),
    ]
    assert (diff["lines"][1]["now"].perm, diff["lines"][1]["before"].perm) == ("RW-", "R--")
    assert diff["left_out"] == 997
    assert diff["counts"] == {"added": 1, "removed": 1, "changed": 1, "same": 998}
