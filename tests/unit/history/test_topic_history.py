"""How routes changed: each change once, with its reason."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from namesrv_stream.history.extent import Window
from namesrv_stream.history.past import Past
from namesrv_stream.history.past_route import RouteOptions, route_body
from namesrv_stream.history.topic_history import Offer, TopicChange, TopicHistory, Totals, describe, topic_history
from namesrv_stream.history.topic_outages import topic_outages
from tests.support.builders import BEGIN_MS, Log
from tests.support.examples import examples
from tests.support.history_tables import HistoryOfLogs
from tests.support.strategies_route import Entry, logs
from tests.unit.history.test_past_route import WITHOUT_SHRINKING, folded_until

MINUTE_MS = 60_000
END_MS = BEGIN_MS + 180 * MINUTE_MS


@pytest.fixture(scope="module")
def story(morning: HistoryOfLogs) -> TopicHistory:
    found = topic_history(Past(morning.settings), "TopicTest", Window(BEGIN_MS - MINUTE_MS, END_MS))
    assert found is not None
    return found


def test_each_change_says_what_and_why(story: TopicHistory) -> None:
    told = [
        ((c.at_ms - BEGIN_MS) // MINUTE_MS, [describe(o) for o in c.offers], c.offers[0].reason.cause)
        for c in story.changes
    ]
    assert (0, ["+broker-a 8/8 RW-"], "registered") in told
    assert (61, ["-broker-b"], "expired") in told
    assert (90, ["broker-a perm RW- → R--"], "write_perm_wiped") in told
    assert (150, ["broker-a id 0 10.0.0.1:10911 → none"], "unregistered") in told
    assert (170, ["-broker-a", "-broker-b"], "topic_deleted") in told


def test_queues_are_counted_where_they_may_be_used(story: TopicHistory) -> None:
    wiped = next(c for c in story.changes if c.offers[0].reason.cause == "write_perm_wiped")
    assert wiped.totals == Totals(brokers=2, write_queues=8, read_queues=16)


def test_a_topic_is_out_when_no_broker_serves_it(story: TopicHistory) -> None:
    found = [o for o in topic_outages(story) if o["scope"] == "topic"]
    assert [((o["begin_ms"] - BEGIN_MS) // MINUTE_MS, o["cause"]) for o in found] == [
        (150, "unregistered"),
        (170, "topic_deleted"),
    ]


def test_a_topic_that_was_out_before_is_out_from_then(morning: HistoryOfLogs) -> None:
    history = Past(morning.settings)
    found = topic_history(history, "TopicTest", Window(BEGIN_MS + 171 * MINUTE_MS, END_MS))
    assert found is not None
    (outage,) = topic_outages(found)
    assert ((outage["begin_ms"] - BEGIN_MS) // MINUTE_MS, outage["cause"]) == (170, "topic_deleted")


def test_of_an_unknown_topic_there_is_nothing_to_tell(morning: HistoryOfLogs) -> None:
    assert topic_history(Past(morning.settings), "nope", Window(BEGIN_MS, END_MS)) is None


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow], phases=WITHOUT_SHRINKING)
@given(st.data(), logs(min_size=10))
def test_between_two_changes_the_route_stays_and_at_a_change_it_does_not(
    data: st.DataObject, entries: list[Entry]
) -> None:
    log = Log()
    for entry in entries:
        log.append(entry.value, entry.after_ms)
    known_to = data.draw(st.integers(0, len(log.records)), "records that the history has")
    since_ms = data.draw(st.integers(BEGIN_MS - 1_000, max(log.state.at_ms, BEGIN_MS)), "since")
    with TemporaryDirectory() as folder:
        tables = HistoryOfLogs(Path(folder), log)
        tables.commit()
        tables.write({0: known_to})
        history = Past(tables.settings)
        for topic in ("t1", "t2"):
            found = topic_history(history, topic, Window(since_ms, log.state.at_ms))
            changed = {c.at_ms: c for c in found.changes} if found else {}
            body = route_body(folded_until(log, since_ms), topic, RouteOptions())
            for at_ms in sorted({c.at_ms for c in log.output.changes if c.at_ms > since_ms}):
                now = route_body(folded_until(log, at_ms), topic, RouteOptions())
                assert now == body or at_ms in changed
                assert now != body or at_ms not in changed or is_of_shares(changed[at_ms])
                body = now


def is_of_shares(change: TopicChange) -> bool:
    """Whether only shares of a static topic changed: in these logs all have one name, and a route shows one of them."""
    nothing = Offer(None, {})
    pairs = ((offer.before or nothing, offer.after or nothing) for offer in change.offers)
    return all(replace(before, mapping=None) == replace(after, mapping=None) for before, after in pairs)
