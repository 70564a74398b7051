import random

from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route.changes import KEY_COLUMNS, Cause, ChangeKind, RouteChange
from namesrv_stream.route.events import KvDeleted, KvPut, Origin
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from tests.support.builders import Log
from tests.support.examples import examples
from tests.support.strategies_route import Entry, logs

FAST = FoldSettings(
    guard_known_ms=0,
    default_timeout_ms=4_000,
    server_silent_ms=3_000,
    server_lost_ms=6_000,
    registration_retention_ms=9_000,
)


def content(table: RouteTable) -> object:
    return (table.groups, table.kv, table.settings, table.servers)


def rebuilt(rows: list[RouteChange]) -> RouteTable:
    table = RouteTable()
    apply(table, rows)
    return table


def logged(entries: list[Entry]) -> Log:
    log = Log(FAST)
    for entry in entries:
        log.append(entry.value, entry.after_ms)
    return log


def setting(partition: int, value: str, offset: int = 0) -> RouteChange:
    return RouteChange(
        partition, offset, 0, 1, ChangeKind.SETTING, False, Cause.SETTINGS_CHANGED,
        namespace="effective", key="default_timeout_ms", value=value,
    )  # fmt: skip


@settings(max_examples=examples(60))
@given(logs())
def test_rows_of_a_log_rebuild_the_groups_of_the_fold(entries: list[Entry]) -> None:
    log = logged(entries)

    assert rebuilt(log.output.changes).groups == log.groups.groups


@settings(max_examples=examples(60))
@given(logs(), st.randoms(use_true_random=False))
def test_newest_rows_in_any_order_rebuild_the_same_table(entries: list[Entry], shuffle: random.Random) -> None:
    rows = logged(entries).output.changes
    newest: dict[object, RouteChange] = {}
    for row in rows:
        kind = ChangeKind(row.kind)
        if kind in KEY_COLUMNS:
            newest[(kind, *(getattr(row, c) for c in KEY_COLUMNS[kind]))] = row
    shuffled = [row for row in newest.values() if not row.gone]
    shuffle.shuffle(shuffled)

    assert content(rebuilt(shuffled)) == content(rebuilt(rows))


@settings(max_examples=examples(40))
@given(logs())
def test_a_table_to_which_all_rows_are_applied_again_is_the_same(entries: list[Entry]) -> None:
    rows = logged(entries).output.changes
    table = rebuilt(rows)

    apply(table, rows)

    assert content(table) == content(rebuilt(rows))


@settings(max_examples=examples(40))
@given(logs())
def test_rows_applied_at_once_or_record_by_record_give_one_table(entries: list[Entry]) -> None:
    rows = logged(entries).output.changes
    table = RouteTable()
    for offset in range(len(entries)):
        apply(table, [row for row in rows if row.offset == offset])

    assert content(table) == content(rebuilt(rows))


def test_a_kv_namespace_outlives_its_last_key() -> None:
    log = Log()
    log.say(KvPut(Origin("s1", 1), "ns", "k", "v"))
    log.say(KvDeleted(Origin("s1", 1), "ns", "k"))

    assert rebuilt(log.output.changes).kv == {"ns": {}}


def test_deleting_a_key_of_an_unknown_namespace_creates_no_namespace() -> None:
    """Source: rocketmq 5.3.3, KVConfigManagerTest: such a namespace still lists as null."""
    log = Log()
    log.say(KvDeleted(Origin("s1", 1), "ns", "k"))

    assert rebuilt(log.output.changes).kv == {}


def test_a_setting_has_the_value_of_the_lowest_partition_whatever_the_order_of_rows() -> None:
    rows = [setting(2, "2"), setting(0, "1"), setting(1, "3"), setting(0, "4", offset=1)]

    for order in (rows, [rows[1], rows[3], rows[2], rows[0]]):
        assert rebuilt(order).settings == {("effective", "default_timeout_ms"): "4"}
