import random

from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route.changes import KEY_COLUMNS, Cause, ChangeKind, RouteChange, created, diff
from namesrv_stream.route.group import BrokerGroup, unregister
from namesrv_stream.route.reducer import apply_to_group
from namesrv_stream.route.registration import register
from tests.support.builders import HOLDER, NAME, a_key, a_registration
from tests.support.examples import examples
from tests.support.strategies_route import groups

_OF_ONE_NAME = groups(st.just(NAME))


def rows_of(old: BrokerGroup, new: BrokerGroup, offset: int = 0) -> list[RouteChange]:
    return [
        RouteChange(0, offset, seq, 1, kind, gone, Cause.REGISTERED, None, **columns)
        for seq, (kind, gone, columns) in enumerate(diff(old, new))
    ]


def key_of(row: RouteChange) -> tuple[object, ...]:
    kind = ChangeKind(row.kind)
    return (kind, *(getattr(row, column) for column in KEY_COLUMNS[kind]))


@settings(max_examples=examples(60))
@given(_OF_ONE_NAME, _OF_ONE_NAME)
def test_rows_of_a_difference_turn_the_old_group_into_the_new(old: BrokerGroup, new: BrokerGroup) -> None:
    assert apply_to_group(old, rows_of(old, new)) == new


@settings(max_examples=examples(60))
@given(_OF_ONE_NAME, _OF_ONE_NAME)
def test_rows_applied_twice_have_the_same_effect_as_once(old: BrokerGroup, new: BrokerGroup) -> None:
    rows = rows_of(old, new)

    assert apply_to_group(apply_to_group(old, rows), rows) == new
    assert apply_to_group(old, rows + rows) == new


@settings(max_examples=examples(60))
@given(_OF_ONE_NAME)
def test_rows_that_create_a_group_are_the_same_on_demand(group: BrokerGroup) -> None:
    expected = list(diff(BrokerGroup(NAME), group))
    found = list(created(group))
    assert len(found) == len(expected)
    assert all(row in expected for row in found)


@settings(max_examples=examples(60))
@given(_OF_ONE_NAME)
def test_a_group_does_not_differ_from_itself(group: BrokerGroup) -> None:
    assert rows_of(group, group) == []


@settings(max_examples=examples(60))
@given(_OF_ONE_NAME, _OF_ONE_NAME)
def test_no_key_has_two_rows_in_one_difference(old: BrokerGroup, new: BrokerGroup) -> None:
    keys = [key_of(row) for row in rows_of(old, new)]

    assert len(keys) == len(set(keys))


@settings(max_examples=examples(60))
@given(st.lists(_OF_ONE_NAME, min_size=1, max_size=5), st.randoms(use_true_random=False), st.booleans())
def test_newest_row_of_each_key_in_any_order_is_the_group(
    history: list[BrokerGroup], shuffle: random.Random, with_gone: bool
) -> None:
    newest: dict[tuple[object, ...], RouteChange] = {}
    before = BrokerGroup(NAME)
    for offset, group in enumerate(history):
        newest |= {key_of(row): row for row in rows_of(before, group, offset)}
        before = group
    rows = [row for row in newest.values() if with_gone or not row.gone]
    shuffle.shuffle(rows)

    assert apply_to_group(BrokerGroup(NAME), rows) == history[-1]


@settings(max_examples=examples(60))
@given(_OF_ONE_NAME, _OF_ONE_NAME)
def test_row_of_a_removed_key_has_no_value(old: BrokerGroup, new: BrokerGroup) -> None:
    for row in rows_of(old, new):
        if row.gone:
            assert (row.perm, row.broker_addrs, row.data_version_counter, row.connection_id, row.value) == (None,) * 5


def test_every_kind_has_a_key_or_is_informational() -> None:
    assert set(ChangeKind) == KEY_COLUMNS.keys() | {ChangeKind.REGISTRATION_WANTED, ChangeKind.IGNORED}


def test_rows_are_ordered_broker_processes_topics_registrations() -> None:
    group = register(BrokerGroup(NAME), a_registration(), "s1", HOLDER).group

    assert [row.kind for row in rows_of(BrokerGroup(NAME), group)] == [
        "broker_data",
        "broker_live",
        "holder",
        "queue_data",
        "queue_data",
        "registration",
    ]


def test_rows_of_a_removed_broker_have_its_id_and_cluster() -> None:
    group = register(BrokerGroup(NAME), a_registration(broker_id=1), "s1", HOLDER).group

    rows = rows_of(group, unregister(group, a_key()))

    assert [(r.broker_id, r.cluster) for r in rows if r.kind == ChangeKind.BROKER_LIVE] == [(1, "c0")]
    assert {r.cluster for r in rows if r.kind == ChangeKind.QUEUE_DATA} == {"c0"}
