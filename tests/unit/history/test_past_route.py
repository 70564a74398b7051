"""Past routes: the answers that clients received, and their causes."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from namesrv_stream.history.database import Past
from namesrv_stream.history.past_route import RouteOptions, route_as_of, route_body, table_of
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG
from namesrv_stream.route import reducer
from namesrv_stream.route.address_views import VIEWS_NAMESPACE
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.events import KvPut, TopicDeleted
from namesrv_stream.route.table import RouteTable
from namesrv_stream.table_errors import NotInHistory
from namesrv_stream.tables.layout import ROUTE_CHANGES, removed_app_id
from tests.support.builders import BEGIN_MS, S1, Log, a_registration
from tests.support.examples import examples
from tests.support.history_tables import HistoryOfLogs
from tests.support.strategies_route import Entry, logs
from tests.support.tables import TOPIC_ID

BROKER = a_registration()
#: Each example writes and reads tables: finding a smaller one would take minutes.
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
TOPICS = ("t1", "t2", "t3", "t4", "TopicTest")


def folded_until(log: Log, at_ms: int) -> RouteTable:
    """Return the table of a fold of the log up to an instant."""
    again = Log(partition=log.state.partition, partitions=log.state.partitions)
    for record in log.records:
        if max(again.state.at_ms, record.at_ms) > at_ms:
            break
        again.append(record.value, record.at_ms - again.now_ms)
    table = RouteTable()
    # Registrations are what the fold keeps of removed brokers; no route contains them.
    reducer.apply(table, (c for c in again.output.changes if c.kind != ChangeKind.REGISTRATION))
    return table


def assert_same(found: RouteTable, expected: RouteTable) -> None:
    assert found.groups == expected.groups
    assert found.kv == expected.kv
    assert found.settings == expected.settings
    assert found.servers == expected.servers
    assert found.held == expected.held


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow], phases=WITHOUT_SHRINKING)
@given(st.data(), logs(min_size=5))
def test_past_table_equals_a_fold_to_that_instant(data: st.DataObject, entries: list[Entry]) -> None:
    log = Log()
    for entry in entries:
        log.append(entry.value, entry.after_ms)
    known_to = data.draw(st.integers(0, len(log.records)), "records that the history has")
    with TemporaryDirectory() as folder:
        tables = HistoryOfLogs(Path(folder), log)
        tables.commit()
        tables.write({0: known_to})
        history = Past(tables.settings)
        first_ms = history.extent.begin_ms
        if first_ms is None:
            return
        instants = st.integers(first_ms, max(first_ms, log.state.at_ms + 1))
        for at_ms in data.draw(st.lists(instants, min_size=1, max_size=6), "instants"):
            expected = folded_until(log, at_ms)
            assert_same(table_of(history.changes("rows_as_of", at_ms=at_ms)), expected)
            for topic in TOPICS:
                for options in (RouteOptions(), RouteOptions(support_acting_master=True, with_order=True)):
                    body = route_body(expected, topic, options)
                    if body is None:
                        with pytest.raises(NotInHistory, match="no route for topic"):
                            route_as_of(history, topic, at_ms, options)
                    else:
                        assert route_as_of(history, topic, at_ms, options).body() == body


def a_broker_that_came_and_went() -> Log:
    """Return a log in which a broker registers at 500 ms and expires at 121 s; another broker continues."""
    log = Log()
    log.tick()
    log.register(BROKER)
    log.pass_time(130_000)
    return log


def test_a_route_is_shown_with_the_reason_of_its_last_change(tmp_path: Path) -> None:
    tables = HistoryOfLogs(tmp_path, a_broker_that_came_and_went())
    tables.write_all()
    found = route_as_of(Past(tables.settings), "TopicTest", BEGIN_MS + 60_000)
    assert json.loads(found.body())["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}
    last = found.last_change
    assert (last.at_ms, last.cause, last.broker_name) == (BEGIN_MS + 500, "registered", "broker-a")
    assert (last.partition, last.offset) == (0, 1)


def test_missing_route_is_reported_with_its_reason(tmp_path: Path) -> None:
    tables = HistoryOfLogs(tmp_path, a_broker_that_came_and_went())
    tables.write_all()
    with pytest.raises(NotInHistory, match=r"the last change was: broker-a expired at .*not heard for 1\d{5} ms"):
        route_as_of(Past(tables.settings), "TopicTest", BEGIN_MS + 129_000)


def test_change_of_a_broker_that_no_longer_offers_the_topic_is_ignored(tmp_path: Path) -> None:
    log = Log()
    other = a_registration("10.0.0.2:10911", broker_name="broker-b", cluster="c1")
    log.register(BROKER)
    log.register(other, after_ms=1_000)
    log.say(TopicDeleted(S1, "TopicTest", "c1"), after_ms=1_000)
    log.register(a_registration("10.0.0.3:10911", 1, broker_name="broker-b", cluster="c1"), after_ms=1_000)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    last = route_as_of(Past(tables.settings), "TopicTest", log.now_ms).last_change
    assert (last.cause, last.broker_name, last.offset) == ("topic_deleted", "broker-b", 2)


def test_order_of_queues_is_that_of_the_instant(tmp_path: Path) -> None:
    log = Log()
    log.register(BROKER)
    for number in (1, 2):
        log.say(KvPut(S1, ORDER_TOPIC_CONFIG, "TopicTest", f"broker-a:{number}"), after_ms=1_000)
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    history, options = Past(tables.settings), RouteOptions(with_order=True)
    bodies = [route_as_of(history, "TopicTest", BEGIN_MS + ms, options).body() for ms in (500, 1_500, 2_500)]
    assert [json.loads(body).get("orderTopicConf") for body in bodies] == [None, "broker-a:1", "broker-a:2"]


def test_changes_after_the_history_are_read_from_route_changes(tmp_path: Path) -> None:
    log = a_broker_that_came_and_went()
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    log.register(BROKER, after_ms=1_000)
    tables.commit()
    history = Past(tables.settings)
    assert route_as_of(history, "TopicTest", log.now_ms).last_change.offset == len(log.records) - 1
    assert history.extent.stored_to_ms == log.now_ms


def test_rows_of_several_partitions_make_one_table(tmp_path: Path) -> None:
    # murmur2: broker-a belongs in partition 1 of 2, broker-b in partition 0.
    names = {"broker-a": 0, "broker-b": 0}
    parts = [Log(partition=p, partitions=2) for p in range(2)]
    for number, name in enumerate(names):
        registration = a_registration(f"10.0.0.{number}:10911", broker_name=name)
        for log in parts:
            log.register(registration, after_ms=1_000 * number)
    tables = HistoryOfLogs(tmp_path, *parts)
    tables.commit()
    tables.write({0: 1, 1: 1})
    body = route_as_of(Past(tables.settings), "TopicTest", BEGIN_MS + 5_000).body()
    assert [b["brokerName"] for b in json.loads(body)["brokerDatas"]] == ["broker-a", "broker-b"]


@pytest.mark.parametrize(
    ("topic", "after_ms", "words"),
    [
        ("TopicTest", -1, "is before the start of the history, 2023-11-14"),
        ("nope", 60_000, "the history does not contain this topic"),
    ],
)
def test_instants_outside_the_history_are_reported(tmp_path: Path, topic: str, after_ms: int, words: str) -> None:
    tables = HistoryOfLogs(tmp_path, a_broker_that_came_and_went())
    tables.write_all()
    with pytest.raises(NotInHistory, match=words):
        route_as_of(Past(tables.settings), topic, BEGIN_MS + after_ms)


def test_topic_created_later_is_reported(tmp_path: Path) -> None:
    log = a_broker_that_came_and_went()
    log.register(a_registration(topics={"Late": BROKER.topics["TopicTest"], "x": BROKER.topics["TopicTest"]}))
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    with pytest.raises(NotInHistory, match=r"no route for topic Late .* contains it from 2023-11-14"):
        route_as_of(Past(tables.settings), "Late", BEGIN_MS + 60_000)


def test_instant_before_the_retention_is_refused(tmp_path: Path) -> None:
    """Intervals that ended earlier have been removed, so the remaining rows of that time are incomplete."""
    log = a_broker_that_came_and_went()
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    kept_ms = 60_000
    retention = {"routes_retention_ms": kept_ms, "sessions_retention_ms": kept_ms}
    kept = tables.settings.history.model_copy(update=retention)
    history = Past(tables.settings.model_copy(update={"history": kept}))
    newest_ms = max(c.at_ms for c in log.output.changes)
    assert history.extent.begin_ms == newest_ms - kept_ms
    with pytest.raises(NotInHistory, match="is before the start of the history"):
        route_as_of(history, "TopicTest", newest_ms - kept_ms - 1)


def test_changes_removed_before_the_history_read_them_are_reported_as_lost(tmp_path: Path) -> None:
    log = a_broker_that_came_and_went()
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    first_unseen = len(log.records)
    log.register(BROKER, after_ms=1_000)
    log.tick(1_000)
    log.unregister(BROKER)
    tables.commit()
    assert Past(tables.settings).extent.notes(log.now_ms) == []
    removed = Transaction(removed_app_id(TOPIC_ID, 0), first_unseen + 1)
    DeltaTable(tables.settings.data.tables_dir / ROUTE_CHANGES).delete(
        f'"offset" <= {first_unseen}', commit_properties=CommitProperties(app_transactions=[removed])
    )
    extent = Past(tables.settings).extent
    assert extent.lost_until_ms == log.now_ms
    assert extent.notes(log.now_ms)[0].startswith("changes between 2023-11-14 22:15:30Z and")
    assert extent.notes(BEGIN_MS) == []  # everything before the loss is known


def test_a_past_route_in_an_address_view_has_the_addresses_of_the_view_at_that_time(tmp_path: Path) -> None:
    log = Log()
    log.register(BROKER)
    for port, after_ms in ((1, 1_000), (2, 60_000)):
        document = f'{{"mappings": [{{"to": "{{broker_name}}:{port}"}}]}}'
        log.say(KvPut(S1, VIEWS_NAMESPACE, "outside", document), after_ms)
    log.say(KvPut(S1, VIEWS_NAMESPACE, "strict", '{"unmapped": "omit"}'))
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    past, end_ms = Past(tables.settings), log.now_ms

    def addrs(at_ms: int, view: str | None) -> object:
        route = route_as_of(past, "TopicTest", at_ms, address_view=view)
        return json.loads(route.body())["brokerDatas"][0]["brokerAddrs"]

    assert addrs(end_ms, None) == {"0": "10.0.0.1:10911"}
    assert addrs(end_ms, "outside") == {"0": "broker-a:2"}
    assert addrs(end_ms - 30_000, "outside") == {"0": "broker-a:1"}
    for at_ms, view, reason in (
        (end_ms - 60_500, "outside", "there was no address view outside"),
        (end_ms, "strict", "no route for topic TopicTest in view strict .* it left out all addresses"),
    ):
        with pytest.raises(NotInHistory, match=reason):
            addrs(at_ms, view)
