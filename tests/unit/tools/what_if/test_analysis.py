"""The runs equal the fold: skipping events that do not matter changes no removal."""

from collections.abc import Collection, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.event_json import decode_record, encode_event
from namesrv_stream.route.events import BrokerHeartbeat, Proof, SettingsChanged
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.tools.what_if.partition_analysis import Override, PartitionAnalysis
from namesrv_stream.tools.what_if.silences import Silence, Verdict
from tests.support.builders import NAME, S1, Log, a_registration, over
from tests.support.strategies_route import Entry, logs

_SETTINGS = FoldSettings(guard_known_ms=0, default_timeout_ms=4_000, server_silent_ms=5_000, server_lost_ms=20_000)
_TIMEOUTS = ("default_timeout_ms", "min_timeout_ms", "max_timeout_ms", "registration_retention_ms")

Removals = list[tuple[int, str, str, str]]


def _folded(entries: list[Entry], settings: FoldSettings, without: Collection[str] = ()) -> tuple[Log, Removals]:
    """Fold the whole log without some settings; returns the removals with time and cause."""
    log = Log(settings)
    for entry in entries:
        log.append(_without(entry.value, without), entry.after_ms)
    rows = (row for row in log.output.changes if row.gone and row.kind == ChangeKind.BROKER_LIVE)
    return log, sorted((row.at_ms, row.broker_name or "", row.broker_addr or "", row.cause) for row in rows)


def _without(value: bytes, names: Collection[str]) -> bytes:
    try:
        events = decode_record(value)
    except EventDecodeError:
        return value
    event = events[0]
    if not names or not isinstance(event, SettingsChanged):
        return value
    kept = tuple((name, v) for name, v in event.values if name not in names)
    return encode_event(SettingsChanged(event.origin, event.source, kept))


def _analysed(
    log: Log, overrides: Sequence[Override], settings: FoldSettings | None = None
) -> tuple[PartitionAnalysis, list[Silence]]:
    """Return the analysis, and all silences that ended in some run."""
    over: list[Silence] = []
    analysis = PartitionAnalysis(0, 1, overrides, settings, on_over=over.append)
    for record in log.records:
        analysis.feed(record)
    return analysis, over + analysis.silences.open


def _removals_in(silences: Iterable[Silence], run: int) -> Removals:
    return sorted(
        (end.at_ms, silence.key.broker_name, silence.key.live_key.broker_addr, end.cause)
        for silence in silences
        if (end := silence.ends.get(run)) is not None
    )


@given(logs())
def test_the_first_run_is_the_fold_of_the_log_as_it_is(entries: list[Entry]) -> None:
    log, removals = _folded(entries, _SETTINGS)
    analysis, silences = _analysed(log, [], _SETTINGS)
    assert _removals_in(silences, 0) == removals
    assert analysis.observed_ms == log.state.observed_ms


@given(logs(), st.lists(st.sampled_from((1_000, 2_500, 7_000)), min_size=1, max_size=2, unique=True))
def test_run_with_one_timeout_equals_a_fold_with_it(entries: list[Entry], timeouts: list[int]) -> None:
    log, _ = _folded(entries, _SETTINGS)
    _, silences = _analysed(log, [Override(ms, of_every_broker=True) for ms in timeouts], _SETTINGS)
    for run, ms in enumerate(timeouts, 1):
        settings = Override(ms, of_every_broker=True).apply(_SETTINGS)
        assert _removals_in(silences, run) == _folded(entries, settings, _TIMEOUTS)[1]


@given(logs())
def test_other_default_does_not_affect_brokers_with_their_own_timeout(entries: list[Entry]) -> None:
    entries = [Entry(e.after_ms, _without(e.value, ("min_timeout_ms", "max_timeout_ms"))) for e in entries]
    log, _ = _folded(entries, _SETTINGS)
    _, silences = _analysed(log, [Override(2_500)], _SETTINGS)
    settings = Override(2_500).apply(_SETTINGS)
    assert _removals_in(silences, 1) == _folded(entries, settings, _TIMEOUTS)[1]


@given(logs())
def test_an_open_silence_is_unclear_if_and_only_if_the_broker_is_live_at_the_end_of_the_log(
    entries: list[Entry],
) -> None:
    log, _ = _folded(entries, _SETTINGS)
    analysis, _ = _analysed(log, [Override(1_000, of_every_broker=True)], _SETTINGS)
    live = {LeaseKey(name, key) for name, group in log.groups.groups.items() for key in group.live_brokers}
    for silence in analysis.silences.open:
        assert (silence.verdict is Verdict.UNCLEAR) == (silence.key in live)


@given(logs())
def test_what_if_keeps_no_topics_of_registrations(entries: list[Entry]) -> None:
    log, _ = _folded(entries, _SETTINGS)
    analysis = PartitionAnalysis(0, 1, [Override(2_500)], _SETTINGS)
    for record in log.records:
        analysis.feed(record)
    for run in analysis.runs:
        assert all(len(group.topics) <= 4 for group in run.groups.groups.values())
        assert all(len(r.read().topics) <= 1 for g in run.groups.groups.values() for r in g.registrations.values())


def test_a_registration_from_before_the_start_of_the_log_is_read_from_the_tables() -> None:
    known = a_registration(registration_hash="older", timeout_ms=3_000)
    key = LeaseKey(NAME, known.live_key)
    log = Log()
    log.heard(a_registration(), registration_hash="newer")
    log.pass_time(3_500)
    analysis = PartitionAnalysis(0, 1, [], None, {key: known})
    for record in log.records:
        analysis.feed(record)
    assert [(s.key, s.ends[0].cause) for s in analysis.silences.open] == [(key, "expired")]
    assert analysis.timeouts == {key: 3_000}
    assert analysis.gaps.tallies == {}  # it was heard once
    assert analysis.unregistered == set()


def test_a_broker_without_a_known_registration_is_omitted_and_named() -> None:
    log = Log()
    log.heard(a_registration())
    log.pass_time(130_000)
    analysis = PartitionAnalysis(0, 1, [])
    for record in log.records:
        analysis.feed(record)
    assert analysis.silences.open == []
    assert analysis.unregistered == {LeaseKey(NAME, a_registration().live_key)}


@pytest.mark.parametrize("proof", list(Proof))
def test_gaps_are_counted_by_the_servers_observed_clock(proof: Proof) -> None:
    log = Log()
    broker = a_registration()
    log.register(broker)
    log.pass_time(10_000)
    log.now_ms += 300_000  # the server could receive nothing: the observed time advances by max_gap_ms
    digest = broker.registration_hash if proof is Proof.REGISTRATION else ""
    log.say(BrokerHeartbeat(over(S1, 1), NAME, broker.live_key, proof, digest))
    analysis = PartitionAnalysis(0, 1, [])
    for record in log.records:
        analysis.feed(record)
    assert [gap.ms for gap in analysis.gaps.tallies["c0"].longest] == [12_000]
