"""Properties of the fold on short random logs: interruptions change nothing, and its parts always agree."""

from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.state import FoldState, decode_state, encode_state
from namesrv_stream.route.fold.step import FoldOutput, GroupDict, Record, is_vouched_for
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
    guard_min_brokers=2,
)
_LOGS = logs() | logs(30)


def logged(entries: list[Entry]) -> Log:
    log = Log(FAST)
    for entry in entries:
        log.append(entry.value, entry.after_ms)
    return log


def restarted(state: FoldState, rows: list[RouteChange]) -> tuple[FoldState, GroupDict]:
    """Restart the fold from the stored state and from the groups of the rows, as a job without checkpoint does."""
    table = RouteTable()
    apply(table, rows)
    return decode_state(encode_state(state)), GroupDict(table.groups)


def folded(records: list[Record], cut: int, every: bool = False) -> tuple[FoldOutput, FoldState]:
    """Fold records, with a restart before offset ``cut``, or before every record."""
    state, groups, output = FoldState(0, 1, settings=FAST), GroupDict(), FoldOutput()
    for record in records:
        if every or record.offset == cut:
            state, groups = restarted(state, output.changes)
        fold(state, groups, record, output)
    return output, state


@settings(max_examples=examples(60))
@given(_LOGS, st.integers(0, 59))
def test_fold_continued_from_its_stored_state_equals_an_uninterrupted_fold(entries: list[Entry], cut: int) -> None:
    whole = logged(entries)

    output, state = folded(whole.records, cut % len(entries))

    assert output == whole.output
    assert encode_state(state) == encode_state(whole.state)


@settings(max_examples=examples(60))
@given(_LOGS)
def test_fold_interrupted_before_every_record_equals_an_uninterrupted_fold(entries: list[Entry]) -> None:
    whole = logged(entries)

    output, _ = folded(whole.records, 0, every=True)

    assert output == whole.output


@settings(max_examples=examples(40))
@given(_LOGS)
def test_records_delivered_twice_change_nothing(entries: list[Entry]) -> None:
    whole = logged(entries)
    stored, rows = encode_state(whole.state), list(whole.output.changes)

    for record in whole.records:
        fold(whole.state, whole.groups, record, whole.output)

    assert encode_state(whole.state) == stored
    assert whole.output.changes == rows


@settings(max_examples=examples(60))
@given(_LOGS)
def test_leases_live_entries_and_routes_always_agree(entries: list[Entry]) -> None:
    log = Log(FAST)
    for entry in entries:
        log.append(entry.value, entry.after_ms)

        table = RouteTable()
        apply(table, log.output.changes)
        assert table.held == {k: v.hold for k, v in log.state.leases.items() if v.hold}
        held = {k: {s: h.holder for s, h in v.holders.items()} for k, v in log.state.leases.items()}
        live_brokers = {
            (n, k): dict(v.holders) for n, g in log.groups.groups.items() for k, v in g.live_brokers.items()
        }
        assert held == live_brokers
        assert all(held.values())
        for group in log.groups.groups.values():
            assert set(group.broker_addrs.values()) <= {k.broker_addr for k in group.live_brokers}
            assert group.clusters <= {k.cluster for k in group.live_brokers}
            assert group.cluster in (group.clusters or {""})
            assert group.is_registered or not (group.topics or group.topic_mappings or group.clusters)
        retained = {(n, k) for n, g in log.groups.groups.items() for k in g.registrations}
        assert retained <= log.state.leases.keys() | log.state.gone.keys()


@settings(max_examples=examples(60))
@given(_LOGS)
def test_every_live_broker_has_a_holder_or_is_held_by_the_guard(entries: list[Entry]) -> None:
    log = Log(FAST)
    for entry in entries:
        log.append(entry.value, entry.after_ms)

        for lease in log.state.leases.values():
            assert lease.hold or is_vouched_for(log.state, lease.holders, lease.ended_partition_ms)


@settings(max_examples=examples(60))
@given(_LOGS)
def test_rows_are_numbered_without_gaps(entries: list[Entry]) -> None:
    log = logged(entries)
    numbers: dict[int, list[int]] = {}
    for row in log.output.changes:
        numbers.setdefault(row.offset, []).append(row.seq)

    assert all(seqs == list(range(len(seqs))) for seqs in numbers.values())
    assert [r.at_ms for r in log.output.changes] == sorted(r.at_ms for r in log.output.changes)


@settings(max_examples=examples(200))
@given(_LOGS)
def test_a_registration_that_would_change_nothing_is_skipped_without_an_effect(entries: list[Entry]) -> None:
    whole = logged(entries)

    state, groups, output = FoldState(0, 1, settings=FAST), GroupDict(), FoldOutput()
    for record in whole.records:
        for lease in state.leases.values():
            lease.is_up_to_date = False
        fold(state, groups, record, output)

    assert output == whole.output
    assert groups.groups == whole.groups.groups
