"""The history of a topic's route: each change once, with its cause."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from namesrv_stream.history.answer import Window
from namesrv_stream.history.database import Past, Row
from namesrv_stream.history.past_route import RouteOptions, describe, route_body, set_topic
from tests.support.builders import BEGIN_MS, Log
from tests.support.examples import examples
from tests.support.history_tables import HistoryOfLogs
from tests.support.strategies_route import Entry, logs
from tests.unit.history.test_past_route import WITHOUT_SHRINKING, folded_until

MINUTE_MS = 60_000
END_MS = BEGIN_MS + 180 * MINUTE_MS


def _sections(tables: HistoryOfLogs, topic: str, since_ms: int, until_ms: int = END_MS) -> dict[str, list[Row]]:
    """Return the answers about a topic; empty if it is unknown."""
    past = Past(tables.settings)
    if not set_topic(past, topic, Window(since_ms, until_ms)):
        return {"changes": [], "outages": []}
    begin, *changes = past.rows("topic_changes", since_ms=since_ms)
    assert begin["at_ms"] == since_ms
    return {"changes": changes, "outages": past.rows("topic_outages", topic=topic, until_ms=until_ms)}


@pytest.fixture(scope="module")
def topic_history(morning: HistoryOfLogs) -> dict[str, list[Row]]:
    return _sections(morning, "TopicTest", BEGIN_MS - MINUTE_MS)


def test_every_change_has_its_cause(topic_history: dict[str, list[Row]]) -> None:
    changes = [
        ((c["at_ms"] - BEGIN_MS) // MINUTE_MS, list(map(describe, c["offers"])), c["reason"]["cause"])
        for c in topic_history["changes"]
    ]
    assert (0, ["+broker-a 8/8 RW-"], "registered") in changes
    assert (61, ["-broker-b"], "expired") in changes
    assert (90, ["broker-a perm RW- → R--"], "write_perm_wiped") in changes
    assert (150, ["broker-a id 0 10.0.0.1:10911 → none"], "unregistered") in changes
    assert (170, ["-broker-a", "-broker-b"], "topic_deleted") in changes


def test_queues_are_counted_only_with_the_permission_to_use_them(topic_history: dict[str, list[Row]]) -> None:
    wiped = next(c for c in topic_history["changes"] if c["reason"]["cause"] == "write_perm_wiped")
    assert (wiped["brokers"], wiped["write_queues"], wiped["read_queues"]) == (2, 8, 16)


def test_topic_has_an_outage_when_no_broker_serves_it(topic_history: dict[str, list[Row]]) -> None:
    found = [o for o in topic_history["outages"] if o["scope"] == "topic"]
    assert [((o["begin_ms"] - BEGIN_MS) // MINUTE_MS, o["cause"]) for o in found] == [
        (150, "unregistered"),
        (170, "topic_deleted"),
    ]


def test_outage_that_began_before_the_period_has_its_real_start(morning: HistoryOfLogs) -> None:
    (outage,) = _sections(morning, "TopicTest", BEGIN_MS + 171 * MINUTE_MS)["outages"]
    assert ((outage["begin_ms"] - BEGIN_MS) // MINUTE_MS, outage["cause"]) == (170, "topic_deleted")


def test_unknown_topic_has_no_answer(morning: HistoryOfLogs) -> None:
    assert not set_topic(Past(morning.settings), "nope", Window(BEGIN_MS, END_MS))


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow], phases=WITHOUT_SHRINKING)
@given(st.data(), logs(min_size=10))
def test_route_changes_exactly_at_the_listed_changes(data: st.DataObject, entries: list[Entry]) -> None:
    log = Log()
    for entry in entries:
        log.append(entry.value, entry.after_ms)
    known_to = data.draw(st.integers(0, len(log.records)), "records that the history has")
    since_ms = data.draw(st.integers(BEGIN_MS - 1_000, max(log.state.at_ms, BEGIN_MS)), "since")
    with TemporaryDirectory() as folder:
        tables = HistoryOfLogs(Path(folder), log)
        tables.commit()
        tables.write({0: known_to})
        for topic in ("t1", "t2"):
            changed = {c["at_ms"]: c for c in _sections(tables, topic, since_ms, log.state.at_ms)["changes"]}
            body = route_body(folded_until(log, since_ms), topic, RouteOptions())
            for at_ms in sorted({c.at_ms for c in log.output.changes if c.at_ms > since_ms}):
                now = route_body(folded_until(log, at_ms), topic, RouteOptions())
                assert now == body or at_ms in changed
                assert now != body or at_ms not in changed or is_of_shares(changed[at_ms])
                body = now


def is_of_shares(change: Row) -> bool:
    """Whether only shares of a static topic changed: here all have one name, and a route shows only one of them."""
    pairs = [(offer["offer_before"] or {}, offer["offer"] or {}) for offer in change["offers"]]
    names = {name for pair in pairs for offer in pair for name in offer} - {"mapping"}
    return all(before.get(name) == after.get(name) for before, after in pairs for name in names)
