"""The liveness checks find every kind of error, and nothing in a correct run."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from namesrv_stream.route.events import BrokerRegistered, Event, Tick
from namesrv_stream.route.liveness_settings import FoldSettings
from tests.chaos import liveness_checks as liveness
from tests.chaos.evidence import Commit, Evidence
from tests.chaos.liveness_checks import Ending
from tests.chaos.observed_log import ObservedLog
from tests.chaos.truth import BrokerKey, Lifetime, Span, Truth
from tests.chaos.verdict import judge, percentile
from tests.support.builders import BEGIN_MS, S1, S2, Log, a_registration

ADDR = "10.0.0.1:10911"
KEY = BrokerKey("broker-a", "c0", ADDR)
TIMEOUT_MS = 6_000
GAP_MS = 1_000
NOW_MS = 100_000
_SETTINGS = FoldSettings(default_timeout_ms=TIMEOUT_MS, max_gap_ms=GAP_MS, guard_share_percent=100)


def a_lifetime(up_ms: int = 0, down_ms: int | None = None, *servers: str) -> Lifetime:
    how = "" if down_ms is None else "silent"
    return Lifetime(1, KEY, 0, TIMEOUT_MS, servers or ("s1",), up_ms, down_ms, how)


def an_ending(at_ms: int = NOW_MS, cause: str = Cause.EXPIRED, server: str = "s1") -> Ending:
    detail = f"not heard for 6100 ms of observed time at {server}, timeout {TIMEOUT_MS} ms"
    return Ending(KEY, 0, 123, at_ms, cause, detail)


def false_expiries(ending: Ending, life: Lifetime, *spans: Span, also: Log | None = None) -> tuple[int, int]:
    """Return (false, excused) for a broker heard 6.1 s before its end; ``also`` replaces the log."""
    texts, excused = liveness.false_expiries(
        Truth((life,), {}, spans), ObservedLog((also or heard_once()).records, GAP_MS), [ending]
    )
    return len(texts), excused


def heard_once(*also: str) -> Log:
    """s1 hears the broker at 93.9 s; both servers tick until 100 s. With "recently" in ``also``, s2 hears it later."""
    log = Log(_SETTINGS, begin_ms=NOW_MS - 6_100)
    log.say(BrokerRegistered(S1._replace(connection_id=1), a_registration(ADDR)))
    log.say(BrokerRegistered(S2._replace(connection_id=1), a_registration(ADDR)))
    for number in range(1, 62):
        log.say(Tick(S1), 100)
        is_heard = "recently" in also and number == 40
        log.say(BrokerRegistered(S2._replace(connection_id=1), a_registration(ADDR)) if is_heard else Tick(S2))
    return log


# ---- a live broker expires ----


@pytest.mark.parametrize("cause", [Cause.EXPIRED, Cause.SERVER_SILENT, Cause.SERVER_LOST])
def test_expiry_of_a_living_broker_is_a_false_expiry(cause: Cause) -> None:
    assert false_expiries(an_ending(cause=cause), a_lifetime()) == (1, 0)


@pytest.mark.parametrize("cause", [Cause.DISCONNECTED, Cause.UNREGISTERED])
def test_closed_connection_or_unregistration_is_not_an_expiry(cause: Cause) -> None:
    assert false_expiries(an_ending(cause=cause), a_lifetime()) == (0, 0)


def test_a_dead_broker_may_expire() -> None:
    assert false_expiries(an_ending(), a_lifetime(0, NOW_MS - TIMEOUT_MS)) == (0, 0)


def test_broker_that_has_just_restarted_may_expire_as_its_predecessor() -> None:
    assert false_expiries(an_ending(), a_lifetime(NOW_MS - 1_000)) == (0, 0)


@pytest.mark.parametrize("what", ["kill", "freeze", "ended", "disk_full"])
@pytest.mark.parametrize("part", ["s1", "kafka", "job"])
def test_outage_of_a_part_does_not_excuse_an_expiry(what: str, part: str) -> None:
    assert false_expiries(an_ending(), a_lifetime(), Span(what, part, NOW_MS - 9_000, NOW_MS)) == (1, 0)


def cut(server: str, from_ms: int, to_ms: int, cluster: str = "") -> Span:
    return Span("cut", server, from_ms, to_ms, cluster)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([cut("s1", 94_000, 96_000)], (1, 0), id="the other server was not cut off"),
        pytest.param([cut("s1", 94_000, 96_000), cut("s2", 94_000, 96_000)], (0, 1), id="cut off from both"),
        pytest.param([cut(s, 94_000, 96_000, "c0") for s in ("s1", "s2")], (0, 1), id="its cluster is cut off"),
        pytest.param([cut(s, 94_000, 96_000, "c1") for s in ("s1", "s2")], (1, 0), id="another cluster is cut off"),
        pytest.param([cut("s1", 10, 20), cut("s2", 94_000, 99_000)], (1, 0), id="the cut was repaired long before"),
        pytest.param([Span("stall", "fleet", 94_000, 95_000)], (0, 1), id="the fleet was stalled"),
        pytest.param([Span("stall", "fleet", 94_000, 94_050)], (1, 0), id="the fleet was stalled for a moment"),
        pytest.param([Span("stall", "direct", 94_000, 95_000)], (1, 0), id="another process was stalled"),
    ],
)
def test_only_a_broken_network_excuses_an_expiry(spans: list[Span], expected: tuple[int, int]) -> None:
    assert false_expiries(an_ending(), a_lifetime(0, None, "s1", "s2"), *spans) == expected


def test_network_cut_during_part_of_the_silence_does_not_excuse_an_expiry() -> None:
    # It was silent for 20 s. For 2 s of these it was cut off, and it needed 2.5 s to reconnect.
    log = Log(_SETTINGS, begin_ms=NOW_MS - 20_000)
    log.say(BrokerRegistered(S1._replace(connection_id=1), a_registration(ADDR)))
    for _ in range(200):
        log.say(Tick(S1), 100)
    ending = replace(an_ending(), offset=200)
    assert false_expiries(ending, a_lifetime(), cut("s1", 81_000, 83_000), also=log) == (1, 0)


def test_broker_cut_off_from_one_server_is_kept_alive_by_the_other() -> None:
    life = a_lifetime(0, None, "s1", "s2")
    span = cut("s1", 94_000, 99_000)
    assert false_expiries(an_ending(), life, span, also=heard_once("recently")) == (1, 0)
    away = Span("kill", "s2", 98_500, NOW_MS)
    assert false_expiries(an_ending(), life, span, away, also=heard_once("recently")) == (0, 1)


# ---- expiry too early according to the fleet's journal ----


@pytest.mark.parametrize(("ago_ms", "lies"), [(TIMEOUT_MS - 1, 1), (TIMEOUT_MS, 0), (TIMEOUT_MS + 500, 0)])
def test_expiry_within_the_timeout_of_an_acknowledged_heartbeat_is_a_false_expiry(ago_ms: int, lies: int) -> None:
    truth = Truth((a_lifetime(0, NOW_MS - ago_ms),), {(KEY, "s1"): [NOW_MS - ago_ms]})
    assert len(list(liveness.early_expiries(truth, [an_ending()]))) == lies


def test_heartbeat_that_a_dying_server_may_have_lost_proves_nothing() -> None:
    acks = {(KEY, "s1"): [NOW_MS - 5_000]}
    truth = Truth((a_lifetime(),), acks, (Span("kill", "s1", NOW_MS - 4_500, NOW_MS - 3_000),))
    assert list(liveness.early_expiries(truth, [an_ending()])) == []


@pytest.mark.parametrize(("how", "lies"), [("silent", 1), ("closed", 0), ("unregistered", 0)])
def test_broker_that_unregistered_at_one_server_may_expire_at_the_other_at_once(how: str, lies: int) -> None:
    life = replace(a_lifetime(0, NOW_MS - 3_000, "s1", "s2"), how=how)
    truth = Truth((life,), {(KEY, "s2"): [NOW_MS - 4_000]})
    assert len(list(liveness.early_expiries(truth, [an_ending()]))) == lies


def test_broker_that_disconnected_from_one_server_may_expire_at_the_other() -> None:
    life = a_lifetime(0, None, "s1", "s2")
    acks = {(KEY, "s2"): [NOW_MS - 4_000]}
    lost = {(KEY, "s2"): [NOW_MS - 3_000]}
    assert list(liveness.early_expiries(Truth((life,), acks, (), lost), [an_ending()])) == []
    assert len(list(liveness.early_expiries(Truth((life,), acks), [an_ending()]))) == 1


# ---- expiry checked against the log ----


def silent_after_ms(dead_ms: int, server: str = "s1") -> Log:
    """Return a log in which a broker registers once, followed by ticks."""
    log = Log(_SETTINGS)
    log.say(BrokerRegistered((S1 if server == "s1" else S2)._replace(connection_id=1), a_registration(ADDR)))
    for _ in range(dead_ms // 500):
        log.say(Tick(S1 if server == "s1" else S2), 500)
    return log


def evidence_of(log: Log, *lives: Lifetime, late_ms: int = 0) -> Evidence:
    """Return evidence in which every record has its own commit, some time later."""
    commits = [Commit(r.offset, r.at_ms + late_ms, {0: r.offset + 1}) for r in log.records]
    return Evidence(
        Truth(lives),
        GAP_MS,
        log.records,
        list(log.output.changes),
        {0: len(log.records)},
        commits,
        list(log.output.changes),
    )


def test_expiry_of_a_dead_broker_is_correct_and_its_lag_is_measured() -> None:
    log = silent_after_ms(8_000)
    evidence = evidence_of(log, a_lifetime(BEGIN_MS, BEGIN_MS + 1), late_ms=300)
    observed = ObservedLog(log.records, GAP_MS)
    assert list(liveness.missing_endings(evidence.truth, observed, evidence.stored, log.now_ms)) == []
    (lag,) = liveness.measured_lags(evidence, observed, liveness.endings(evidence.stored))
    assert (lag.in_log_ms, lag.in_table_ms) == (500, 800)
    assert list(liveness.never_early_by_the_log([lag])) == []


def test_dead_broker_that_stays_is_found() -> None:
    log = silent_after_ms(9_000)
    kept = [row for row in log.output.changes if not row.gone]
    truth = Truth((a_lifetime(BEGIN_MS, BEGIN_MS + 1),))
    assert len(list(liveness.missing_endings(truth, ObservedLog(log.records, GAP_MS), kept, log.now_ms))) == 1


def test_dead_broker_may_stay_while_no_time_is_observed() -> None:
    log = silent_after_ms(3_000)
    log.say(Tick(S1), 60_000)
    truth = Truth((a_lifetime(BEGIN_MS, BEGIN_MS + 1),))
    observed = ObservedLog(log.records, GAP_MS)
    assert list(liveness.missing_endings(truth, observed, log.output.changes, log.now_ms)) == []


@pytest.mark.parametrize("by_ms", [-500, -1_000])
def test_expiry_before_the_observed_time_exceeds_the_timeout_is_found(by_ms: int) -> None:
    log = silent_after_ms(8_000)
    (row,) = [r for r in log.output.changes if r.kind == ChangeKind.BROKER_LIVE and r.gone]
    early = row._replace(offset=row.offset + by_ms // 500)
    evidence = replace(evidence_of(log, a_lifetime(BEGIN_MS, BEGIN_MS + 1)), stored=[early])
    lags = liveness.measured_lags(evidence, ObservedLog(log.records, GAP_MS), liveness.endings([early]))
    assert len(list(liveness.never_early_by_the_log(lags))) == 1


def test_lags_count_only_while_all_parts_ran() -> None:
    log = silent_after_ms(8_000)
    evidence = evidence_of(log, a_lifetime(BEGIN_MS, BEGIN_MS + 1))
    observed = ObservedLog(log.records, GAP_MS)
    lags = liveness.measured_lags(evidence, observed, liveness.endings(evidence.stored))
    assert liveness.while_all_ran(evidence, observed, lags) == lags
    frozen = Span("freeze", "job", BEGIN_MS + 1_000, BEGIN_MS + 6_000)
    broken = replace(evidence, truth=replace(evidence.truth, spans=(frozen,)))
    assert liveness.while_all_ran(broken, observed, lags) == []


# ---- the state at the end, and the whole verdict ----


@pytest.mark.parametrize(("brokers", "lies"), [({KEY}, 0), (set(), 1), ({KEY, KEY._replace(broker_addr="x")}, 1)])
def test_servers_must_have_exactly_the_living_brokers(brokers: set[BrokerKey], lies: int) -> None:
    assert len(list(liveness.wrong_at_the_end(Truth((a_lifetime(),)), {"s1": frozenset(brokers)}))) == lies


def _drop_endings(rows: list[RouteChange]) -> list[RouteChange]:
    return [row for row in rows if not row.gone]


def _drop_one(rows: list[RouteChange]) -> list[RouteChange]:
    return rows[:-1]


def _double(rows: list[RouteChange]) -> list[RouteChange]:
    return [*rows, rows[-1]]


@pytest.mark.parametrize(
    ("damage", "checks"),
    [
        (list, set()),
        (_drop_endings, {"every dead broker expires", "rows equal the fold's"}),
        (_drop_one, {"rows equal the fold's"}),
        (_double, {"no row twice"}),
    ],
)
def test_verdict_contains_the_findings(
    damage: Callable[[list[RouteChange]], list[RouteChange]], checks: set[str]
) -> None:
    log = silent_after_ms(9_000)
    evidence = evidence_of(log, a_lifetime(BEGIN_MS, BEGIN_MS + 1))
    verdict = judge(replace(evidence, stored=damage(list(evidence.stored))), log.now_ms)
    assert checks <= {finding.check for finding in verdict.findings}
    assert bool(checks) == bool(verdict.findings)


def test_the_verdict_finds_a_late_job() -> None:
    log = silent_after_ms(12_000)
    evidence = evidence_of(log, a_lifetime(BEGIN_MS, BEGIN_MS + 1), late_ms=2_600)
    assert [f.check for f in judge(evidence, log.now_ms).findings] == ["expiries are seen in time"]


def test_the_verdict_finds_a_server_that_exited() -> None:
    log = silent_after_ms(500)
    found = judge(evidence_of(log, a_lifetime(BEGIN_MS)), log.now_ms, {"server-a": [1], "job": [1]}).findings
    assert [f.check for f in found] == ["no server ends by itself"]


@pytest.mark.parametrize(
    ("values", "percent", "expected"), [([], 99, -1), ([5], 99, 5), ([1, 2, 3, 4], 50, 2), (list(range(100)), 99, 98)]
)
def test_percentile_is_the_nearest_rank_and_minus_one_without_values(
    values: list[int], percent: int, expected: int
) -> None:
    assert percentile(values, percent) == expected


def test_observed_time_advances_by_at_most_a_gap_per_record() -> None:
    log = Log(_SETTINGS)
    events: list[tuple[Event, int]] = [(Tick(S1), 0), (Tick(S1), 500), (Tick(S2), 300), (Tick(S1), 5_000)]
    for event, after_ms in events:
        log.say(event, after_ms)
    time = ObservedLog(log.records, GAP_MS).time_of(0, "s1")
    assert [time.at_offset(offset) for offset in range(4)] == [0, 500, 500, 1_500]
    assert time.at_time(BEGIN_MS + 700) == 700
    assert time.at_time(BEGIN_MS + 4_000) == 1_500
