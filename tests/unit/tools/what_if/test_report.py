"""The results of the runs, on a fleet with known failures."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from namesrv_stream.errors import ConfigError
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.tools.what_if import what_if_report
from namesrv_stream.tools.what_if.gaps import Gap, GapTally, suggest
from namesrv_stream.tools.what_if.log_analysis import LogAnalysis
from namesrv_stream.tools.what_if.partition_analysis import Override, PartitionAnalysis
from namesrv_stream.tools.what_if.what_if_plot import write_timeout_plot
from namesrv_stream.tools.what_if.what_if_report import ClusterReport, EarlierDetection, RunReport, cluster_reports
from tests.support.builders import S1, S2, Log, a_key, a_registration

FLEET = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}") for n in range(6)]
OWN = a_registration("10.0.0.9:1", broker_name="own", timeout_ms=200_000)
BEAT_MS = 10_000
MINUTES = 20
FROZEN, DEAD, RESTARTED = FLEET[0], FLEET[1], FLEET[2]
#: Address → beats (from 0, one every 10 s) at which it is silent.
SILENT = {
    FROZEN.broker_addr: range(30, 34),
    DEAD.broker_addr: range(60, 1_000),
    RESTARTED.broker_addr: range(40, 46),
}


@cache
def _fleet_log() -> Log:
    """Return a log of 20 minutes: one broker is frozen for 50 s, one is killed, one restarts after 70 s."""
    log = Log()
    for broker in (*FLEET, OWN):
        log.register(broker)
    for beat in range(1, MINUTES * 60_000 // BEAT_MS):
        log.pass_time(BEAT_MS)
        for broker in (*FLEET, OWN):
            if beat not in SILENT.get(broker.broker_addr, ()):
                is_back = broker is RESTARTED and beat >= SILENT[RESTARTED.broker_addr].stop
                log.heard(broker, connection=2 if is_back else 1)
    return log


@cache
def _analysis() -> PartitionAnalysis:
    analysis = PartitionAnalysis(0, 1, [Override(20_000), Override(60_000), Override(90_000)])
    for record in _fleet_log().records:
        analysis.feed(record)
    return analysis


def _report() -> ClusterReport:
    (report,) = cluster_reports([_analysis()])
    return report


def test_false_expiries_are_distinguished_from_real_ones() -> None:
    assert [(r.timeout_ms, r.expiries, r.false, r.unclear, r.real) for r in _report().runs] == [
        (None, 1, 0, 0, 1),  # the dead broker, after 120 s
        (20_000, 3, 1, 0, 2),
        (60_000, 2, 0, 0, 2),
        (90_000, 1, 0, 0, 1),
    ]


def test_failures_are_detected_earlier_by_the_difference_of_the_timeouts() -> None:
    of_timeout = {run.timeout_ms: run.sooner for run in _report().runs}
    assert of_timeout[None] is None
    # The dead broker is detected 100 s earlier; the restarted one after 20 s of absence instead of at its return.
    assert of_timeout[20_000] == EarlierDetection(2, 0, 49_500, 100_000)
    assert of_timeout[60_000] == EarlierDetection(2, 0, 9_500, 60_000)
    assert of_timeout[90_000] == EarlierDetection(1, 0, 30_000, 30_000)


def test_failure_not_detected_by_a_longer_timeout_is_counted_separately() -> None:
    log = Log()
    log.register(a_registration())
    log.pass_time(130_000)
    analysis = PartitionAnalysis(0, 1, [Override(300_000)])
    for record in log.records:
        analysis.feed(record)
    (report,) = cluster_reports([analysis])
    assert report.runs[0].real == 1
    assert report.runs[1] == RunReport(300_000, 0, 0, 0, EarlierDetection(0, 1, 0, 0))


def test_brokers_between_two_heartbeats_when_the_log_ends_are_not_dead() -> None:
    log = Log()
    for broker in FLEET:
        log.register(broker)
    for _ in range(2):
        log.pass_time(30_000)
        for broker in FLEET:
            log.heard(broker)
    log.pass_time(25_000)
    analysis = PartitionAnalysis(0, 1, [Override(20_000)])
    for record in log.records:
        analysis.feed(record)
    (report,) = cluster_reports([analysis])
    false, unclear = 2 * len(FLEET), len(FLEET)
    assert report.runs[1] == RunReport(20_000, false + unclear, false, unclear, EarlierDetection(0, 0, 0, 0))
    assert report.runs[1].real == 0


def test_brokers_with_their_own_timeout_are_counted_and_not_affected() -> None:
    assert (_report().brokers, _report().with_own_timeout) == (7, 1)
    assert OWN.live_key not in {s.key.live_key for s in (*_analysis().tally.deaths, *_analysis().silences.open)}


def test_the_longest_silence_of_a_live_broker_is_named() -> None:
    longest = _report().gaps.longest[0]
    assert (longest.ms, longest.key.broker_name) == (50_000, FROZEN.broker_name)
    assert _report().gaps.quantile_ms(0.5) == BEAT_MS


def test_a_value_is_suggested_with_its_reason() -> None:
    suggestion = _report().suggestion
    assert suggestion.timeout_ms == 75_000
    assert "50 s, and a margin of one half" in suggestion.reason


def test_partitions_are_merged() -> None:
    (report,) = cluster_reports([_analysis(), PartitionAnalysis(1, 2, [Override(20_000)])])
    assert report == _report()


def _tally(*gaps_ms: int) -> GapTally:
    tally = GapTally()
    for ms in gaps_ms:
        tally.add(Gap(ms, 0, LeaseKey("b", a_key()), "s1"))
    return tally


@pytest.mark.parametrize(
    ("gaps_ms", "unclear_ms", "ended_ms", "expected_ms", "words"),
    [
        ([30_000] * 99, 0, 0, None, "only 99"),
        ([30_000] * 200, 0, 0, 90_000, "3 heartbeats of 30 s"),
        ([30_060] * 200, 0, 0, 90_000, "3 heartbeats of 30 s"),
        ([200] * 200, 0, 0, 5_000, "3 heartbeats of 0.5 s"),
        ([30_000] * 200 + [61_000], 0, 0, 95_000, "of a live broker, 61 s"),
        ([30_000] * 200, 130_000, 0, 195_000, "may have been alive, 130 s"),
        ([30_000] * 200, 0, 7_200_000, 90_000, "was silent for 7200 s and expired"),
        ([30_000] * 200 + [3_000_000], 0, 0, 3_600_000, "outside the limits"),
    ],
)
def test_the_suggestion_leaves_a_margin(
    gaps_ms: list[int], unclear_ms: int, ended_ms: int, expected_ms: int | None, words: str
) -> None:
    found = suggest(_tally(*gaps_ms), unclear_ms, ended_ms, FoldSettings())
    assert found.timeout_ms == expected_ms
    assert words in found.reason


def test_a_suggestion_does_not_depend_on_the_requested_timeouts() -> None:
    """A broker moves to another server 70 s after its last heartbeat at the first."""
    log = Log()
    log.register(FLEET[0])
    for _ in range(101):
        log.pass_time(10_000, S1, S2)
        log.heard(FLEET[0])
    log.pass_time(70_000, S1, S2)
    log.heard(FLEET[0], S2)
    found = []
    for timeouts in ((60_000,), (90_000,), (20_000, 300_000)):
        analysis = PartitionAnalysis(0, 1, [Override(ms) for ms in timeouts])
        for record in log.records:
            analysis.feed(record)
        found.append(cluster_reports([analysis])[0].suggestion)
    assert len(set(found)) == 1
    assert (found[0].timeout_ms, "may have been alive, 70 s" in found[0].reason) == (105_000, True)


def test_quantiles_are_rounded_up_to_the_next_step() -> None:
    tally = _tally(10, 150, 250, 1_000)
    assert [tally.quantile_ms(share) for share in (0.25, 0.5, 0.75, 1.0)] == [100, 200, 300, 1_000]
    assert GapTally().quantile_ms(0.5) == 0


def test_only_the_longest_gaps_are_kept() -> None:
    assert [gap.ms for gap in _tally(*range(1, 20)).longest] == [19, 18, 17, 16, 15]


def test_silences_of_live_brokers_are_counted_and_not_stored() -> None:
    log = Log()
    for broker in FLEET:
        log.register(broker)
    for _ in range(20):
        log.pass_time(30_000)
        for broker in FLEET:
            log.heard(broker)
    analysis = PartitionAnalysis(0, 1, [Override(20_000)])
    for record in log.records:
        analysis.feed(record)
    assert (analysis.tally.deaths, analysis.silences.open) == ([], [])
    assert cluster_reports([analysis])[0].runs[1].false == 20 * len(FLEET)


def test_text_and_json_have_the_same_content() -> None:
    analysis = LogAnalysis([_analysis()], len(_fleet_log().records), FoldSettings())
    reports = cluster_reports([_analysis()])
    console = Console(width=200)
    with console.capture() as capture:
        console.print(what_if_report.as_text(analysis, reports))
    lines = capture.get().splitlines()
    assert any(line.split() == ["20.0", "s", "3", "1", "0", "2", "49.5", "s", "100.0", "s", "2"] for line in lines)
    assert any(line.startswith("suggested: 75.0 s") for line in lines)
    found = json.loads(orjson.dumps(what_if_report.report_json(analysis, reports)))
    assert found["clusters"]["c0"]["runs"][1] == {
        "timeout_ms": 20_000,
        "expiries": 3,
        "false": 1,
        "unclear": 0,
        "real": 2,
        "sooner": {"deaths": 2, "not_yet_seen": 0, "median_ms": 49_500, "p99_ms": 100_000},
    }
    assert found["clusters"]["c0"]["suggested_timeout_ms"] == 75_000


def test_names_in_the_text_cannot_control_a_terminal() -> None:
    key = LeaseKey("b\x1b[2J", a_key("h\x1b[2J:1", "c\x1b[2J"))
    report = replace(_report(), cluster=key.live_key.cluster, gaps=GapTally())
    report.gaps.add(Gap(1_000, 5_000, key, "s1"))
    console = Console(width=200)
    with console.capture() as capture:
        console.print(what_if_report.as_text(LogAnalysis([_analysis()], 1, FoldSettings()), [report]))
    assert "\x1b" not in capture.get()
    assert r"b\x1b[2J at h\x1b[2J:1" in capture.get()


def test_log_without_records_is_reported() -> None:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(what_if_report.as_text(LogAnalysis([PartitionAnalysis(0, 1, [])], 0, FoldSettings()), []))
    assert "no records" in capture.get()


def test_the_plot_has_a_chart_for_each_cluster(tmp_path: Path) -> None:
    path = tmp_path / "gaps.html"
    without_gaps = replace(_report(), gaps=GapTally())
    write_timeout_plot([_report(), without_gaps], path)
    page = path.read_text()
    assert page.count("<svg") == 2
    assert "20 s: 1 false, 0 unclear, 2 real" in page
    with pytest.raises(ConfigError, match="--plot"):
        write_timeout_plot([_report()], tmp_path / "absent" / "gaps.html")
