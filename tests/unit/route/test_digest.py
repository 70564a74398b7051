"""The digests of two route tables are equal if and only if the tables are, whatever their history."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import KEY_COLUMNS, ChangeKind, RouteChange
from namesrv_stream.route.digest import BROKER, KV, Part, TableDigester, content_of, digest_of, part_rows, total_of
from namesrv_stream.route.events import KvPut, TopicDeleted, partition_of
from namesrv_stream.route.table import RouteTable
from tests.support.builders import NAME, S1, S2, Log, a_mapping, a_registration
from tests.support.strategies_route import Entry, logs

PARTITIONS = 3


def _table(rows: list[RouteChange]) -> RouteTable:
    table = RouteTable()
    reducer.apply(table, rows)
    return table


def _a_log() -> Log:
    log = Log()
    log.started(S1)
    log.register(a_registration(topic_mappings={"static": a_mapping()}, filter_servers=("f1", "f2")))
    log.register(a_registration("10.0.0.2:10911", 1), S2)
    log.say(KvPut(S1, "ns", "b", "2"))
    log.say(KvPut(S1, "ns", "a", "1"))
    log.change_settings(default_timeout_ms=60_000)
    return log


@given(logs(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(entries: list[Entry], random: Random) -> None:
    log = Log()
    for entry in entries:
        log.append(entry.value, entry.after_ms)
    newest = {_key(row): row for row in log.output.changes if row.kind in KEY_COLUMNS}
    rows = [row for row in newest.values() if not row.gone]  # in the order of route_state
    random.shuffle(rows)
    assert digest_of(_table(rows), PARTITIONS) == digest_of(_table(log.output.changes), PARTITIONS)


def _key(row: RouteChange) -> tuple[object, ...]:
    return (row.kind, *(getattr(row, name) for name in KEY_COLUMNS[ChangeKind(row.kind)]))


def test_an_empty_table_has_a_digest_of_every_partition() -> None:
    digest = digest_of(RouteTable(), PARTITIONS)
    assert set(digest.partitions) == {0, 1, 2}
    assert digest.parts == {}
    assert digest.total == total_of(digest.partitions)


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.say(TopicDeleted(S1, "TopicTest", None)),
        lambda log: log.say(KvPut(S1, "ns", "a", "3")),
        lambda log: log.change_settings(default_timeout_ms=61_000),
        lambda log: log.register(a_registration(), S1, 2),
        lambda log: log.stopped(S1),
    ],
    ids=["a topic", "a KV entry", "a setting", "a connection", "the state of a server"],
)
def test_every_kind_of_change_changes_the_digest_of_one_part(change: Callable[[Log], list[RouteChange]]) -> None:
    log = _a_log()
    before = digest_of(_table(log.output.changes), PARTITIONS)
    assert change(log)
    after = digest_of(_table(log.output.changes), PARTITIONS)
    assert after.total != before.total
    assert len({part for part, digest in after.parts.items() if before.parts.get(part) != digest}) == 1


def test_the_digest_does_not_change_while_only_time_passes() -> None:
    log = _a_log()
    before = digest_of(_table(log.output.changes), PARTITIONS)
    log.pass_time(5_000, S1, S2)
    assert digest_of(_table(log.output.changes), PARTITIONS) == before


def test_a_reused_digester_returns_the_same_digest_as_a_new_one() -> None:
    log, digester = _a_log(), TableDigester(PARTITIONS)
    digester.digest(content_of(_table(log.output.changes), PARTITIONS))
    log.say(TopicDeleted(S1, "TopicTest", None))
    log.say(KvPut(S1, "other", "a", "1"))
    table = _table(log.output.changes)
    assert digester.digest(content_of(table, PARTITIONS)) == digest_of(table, PARTITIONS)


def test_snapshot_of_a_table_does_not_change() -> None:
    log = _a_log()
    table = _table(log.output.changes)
    before = content_of(table, PARTITIONS)
    digest = TableDigester(PARTITIONS).digest(before)
    reducer.apply(table, log.say(KvPut(S1, "ns", "a", "3")) + log.say(TopicDeleted(S1, "TopicTest", None)))
    assert TableDigester(PARTITIONS).digest(before) == digest


def test_rows_are_in_the_partition_of_their_events() -> None:
    parts = digest_of(_table(_a_log().output.changes), PARTITIONS).parts
    assert Part(partition_of(NAME, PARTITIONS), BROKER, NAME) in parts
    assert Part(partition_of("ns", PARTITIONS), KV, "ns") in parts


def test_rows_of_all_partitions_rebuild_the_table() -> None:
    content = content_of(_table(_a_log().output.changes), 1)
    made = RouteTable()
    for part in [*content.groups, *content.entries]:
        for seq, row in enumerate(part_rows(content, part)):
            reducer.apply(made, [RouteChange(part.partition, 0, seq, 0, row.kind, row.gone, "test", **row.columns)])
    assert content_of(made, 1) == content
    assert list(part_rows(content, Part(0, BROKER, "nobody"))) == []
