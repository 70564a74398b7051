"""The result of the runs by cluster: false expiries, detection times, a suggestion; as text and as JSON."""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from namesrv_stream.instants import instant
from namesrv_stream.logs import safe
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.text_table import counted
from namesrv_stream.tools.replay.log_source import Store, read_from_text
from namesrv_stream.tools.tool_options import emit_json
from namesrv_stream.tools.what_if.gaps import Gap, GapTally, Suggestion, suggest
from namesrv_stream.tools.what_if.log_analysis import LogAnalysis
from namesrv_stream.tools.what_if.partition_analysis import PartitionAnalysis
from namesrv_stream.tools.what_if.silences import Silence, SilenceTally, Verdict

_ACTUAL = "actual"
_NAMED = 10  # brokers
_WIDTH = 200  # columns if stdout is not a terminal


@dataclass(frozen=True, slots=True)
class EarlierDetection:
    """How much sooner a run noticed deaths than the recorded log did, in observed time; negative if it was later.

    Attributes:
        deaths: Number of compared deaths.
        not_yet_seen: Number of other deaths, which the run had not noticed when the log ended.
    """

    deaths: int
    not_yet_seen: int
    median_ms: int
    p99_ms: int


@dataclass(frozen=True, slots=True)
class RunReport:
    """The effect of one timeout in one cluster.

    Attributes:
        timeout_ms: None for the recorded log.
        expiries: Number of expiries.
        false: Expiries of live brokers, according to their connection.
        unclear: Expiries of brokers that returned and may have restarted, or were silent and not yet expired in the
            recorded log when it ended.
        sooner: How much sooner deaths were noticed; None for the recorded log.
    """

    timeout_ms: int | None
    expiries: int
    false: int
    unclear: int
    sooner: EarlierDetection | None

    @property
    def real(self) -> int:
        return self.expiries - self.false - self.unclear


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """One cluster.

    Attributes:
        brokers: Number of registered broker processes.
        with_own_timeout: Number of those that request a timeout of their own, so that the default does not apply.
        gaps: Gaps of live brokers.
        runs: The recorded log, then every requested timeout.
    """

    cluster: str
    brokers: int
    with_own_timeout: int
    gaps: GapTally
    runs: Sequence[RunReport]
    suggestion: Suggestion


def cluster_reports(analyses: Sequence[PartitionAnalysis], limits: FoldSettings | None = None) -> list[ClusterReport]:
    """Return a report for every cluster, by name; the analyses must have the same overrides.

    Args:
        limits: Settings with the lower and the upper limit of a suggested timeout.
    """
    keys = {key: timeout for analysis in analyses for key, timeout in analysis.timeouts.items()}
    found = SilenceTally()
    for analysis in analyses:
        found.deaths += analysis.tally.deaths
        found.expiries.update(analysis.tally.expiries)
        for silence in analysis.silences.open:
            found.add(silence)
    reports = []
    for cluster in sorted({key.live_key.cluster for key in keys}):
        timeouts = [timeout for key, timeout in keys.items() if key.live_key.cluster == cluster]
        gaps = GapTally().merge(a.gaps.tallies.get(cluster, GapTally()) for a in analyses)
        overrides = [run.override for run in analyses[0].runs]
        deaths = [death for death in found.deaths if death.key.live_key.cluster == cluster]
        runs = [
            _run_report(number, o.timeout_ms, deaths, {v: found.expiries[cluster, number, v] for v in Verdict})
            for number, o in enumerate(overrides)
        ]
        unclear_ms, ended_ms = (
            max(longest[cluster] for longest in of_partitions)
            for of_partitions in ([a.gaps.unclear_ms for a in analyses], [a.gaps.ended_ms for a in analyses])
        )
        own = sum(timeout is not None for timeout in timeouts)
        suggestion = suggest(gaps, unclear_ms, ended_ms, limits or FoldSettings())
        reports.append(ClusterReport(cluster, len(timeouts), own, gaps, runs, suggestion))
    return reports


def _run_report(
    run: int, timeout_ms: int | None, deaths: Sequence[Silence], survived: Mapping[Verdict, int]
) -> RunReport:
    false, unclear = survived[Verdict.ALIVE], survived[Verdict.UNCLEAR]
    real = sum(run in death.ends and death.ends[run].is_expiry for death in deaths)
    return RunReport(timeout_ms, false + unclear + real, false, unclear, _sooner(run, deaths) if run else None)


def _sooner(run: int, deaths: Iterable[Silence]) -> EarlierDetection:
    """Compare a run with the recorded log, over the deaths that at least one of the two noticed by an expiry."""
    gains, still_open = [], 0
    for death in deaths:
        if not any(death.ends[r].is_expiry for r in (0, run) if r in death.ends):
            continue
        run_ms, actual_ms = death.seen_ms(run), death.seen_ms(0)
        if run_ms is None or actual_ms is None:
            still_open += 1
        else:
            gains.append(actual_ms - run_ms)
    gains.sort()
    return EarlierDetection(len(gains), still_open, _quantile(gains, 0.5), _quantile(gains, 0.99))


def _quantile(ordered: Sequence[int], share: float) -> int:
    """Return a quantile of ascending values; 0 if there are none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0


def print_report(analysis: LogAnalysis, reports: Sequence[ClusterReport], *, as_json: bool) -> None:
    """Print the reports to stdout, as tables or as JSON."""
    if as_json:
        emit_json(report_json(analysis, reports))
        return
    # If stdout is not a terminal, grep sees whole rows.
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    console.print(as_text(analysis, reports), soft_wrap=not console.is_terminal)


def as_text(analysis: LogAnalysis, reports: Sequence[ClusterReport]) -> RenderableType:
    """Return tables, one for every cluster, with remarks on the log."""
    return Group(*_parts(analysis, reports))


def _parts(analysis: LogAnalysis, reports: Sequence[ClusterReport]) -> Iterator[RenderableType]:
    if analysis.begin_at_ms is None or analysis.end_at_ms is None:
        yield Text("the log has no records of that time")
        yield from map(Text, analysis.notes)
        return
    yield from map(Text, _log_lines(analysis))
    span = f"{instant(analysis.begin_at_ms)} to {instant(analysis.end_at_ms)}"
    observed = seconds(analysis.observed_ms)
    yield Text(
        f"{counted(analysis.records, 'record')}, {span}, {observed} of observed time; every broker begins at age zero"
    )
    if not reports:
        yield Text("no broker has a heartbeat")
    for report in reports:
        yield Text()
        yield _cluster_line(report)
        yield _runs_table(report.runs)
        if report.gaps.total:
            gaps = report.gaps
            quantiles = f"median {seconds(gaps.quantile_ms(0.5))}, p99 {seconds(gaps.quantile_ms(0.99))}"
            yield Text(f"silences of live brokers: {gaps.total}, {quantiles}; the longest:")
            for gap in gaps.longest:
                yield Text(f"  {_gap_line(gap)}")
        suggestion = report.suggestion
        if suggestion.timeout_ms is None:
            yield Text(f"no suggestion: {suggestion.reason}")
        else:
            yield Text(f"suggested: {seconds(suggestion.timeout_ms)} ({suggestion.reason})")
    if analysis.unregistered:
        names = ", ".join(_name(key) for key in analysis.unregistered[:_NAMED])
        more = "" if len(analysis.unregistered) <= _NAMED else f" and {len(analysis.unregistered) - _NAMED} more"
        yield Text(f"left out because no registration is known: {names}{more}")


def _log_lines(analysis: LogAnalysis) -> Iterator[str]:
    """Yield remarks about the log, among them the partitions that were not read from Kafka alone."""
    for partition, pieces in enumerate(analysis.read_from):
        if any(piece.store is Store.ARCHIVE for piece in pieces):
            yield f"partition {partition}: records {read_from_text(pieces)}"
    yield from analysis.notes


def _cluster_line(report: ClusterReport) -> Text:
    own = f", {report.with_own_timeout} with a timeout of their own" if report.with_own_timeout else ""
    return Text.assemble(
        ("cluster ", ""), (safe(report.cluster), "bold"), f": {counted(report.brokers, 'broker')}{own}"
    )


def _runs_table(runs: Sequence[RunReport]) -> Table:
    table = Table("timeout", box=None, pad_edge=False)
    for head in ("expiries", "false", "unclear", "real", "detected earlier: median", "p99", "of", "undetected"):
        table.add_column(head, justify="right")
    for run in runs:
        timeout = _ACTUAL if run.timeout_ms is None else seconds(run.timeout_ms)
        counts = map(str, (run.expiries, run.false, run.unclear, run.real))
        table.add_row(escape(timeout), *counts, *_sooner_cells(run.sooner), style="bold red" if run.false else None)
    return table


def _sooner_cells(sooner: EarlierDetection | None) -> Sequence[str]:
    if sooner is None or not (sooner.deaths or sooner.not_yet_seen):
        return ("", "", "", "")
    still_open = str(sooner.not_yet_seen) if sooner.not_yet_seen else ""
    if not sooner.deaths:
        return ("", "", "0", still_open)
    return (seconds(sooner.median_ms), seconds(sooner.p99_ms), str(sooner.deaths), still_open)


def _gap_line(gap: Gap) -> str:
    return f"{seconds(gap.ms)} {_name(gap.key)}, until {instant(gap.at_ms)}"


def _name(key: LeaseKey) -> str:
    return f"{safe(key.broker_name)} at {safe(key.live_key.broker_addr)}"


def report_json(analysis: LogAnalysis, reports: Sequence[ClusterReport]) -> dict[str, Any]:
    """Return all figures; durations in milliseconds of observed time, instants in epoch milliseconds."""
    return {
        "records": analysis.records,
        "begin_at_ms": analysis.begin_at_ms,
        "end_at_ms": analysis.end_at_ms,
        "observed_ms": analysis.observed_ms,
        "read_from": [[piece._asdict() for piece in pieces] for pieces in analysis.read_from],
        "notes": list(analysis.notes),
        "left_out": [{"broker_name": k.broker_name, **k.live_key._asdict()} for k in analysis.unregistered],
        "clusters": {report.cluster: _cluster_json(report) for report in reports},
    }


def _cluster_json(report: ClusterReport) -> dict[str, Any]:
    gaps = report.gaps
    return {
        "brokers": report.brokers,
        "brokers_with_own_timeout": report.with_own_timeout,
        "runs": [_run_json(run) for run in report.runs],
        "gaps": {
            "count": gaps.total,
            "median_ms": gaps.quantile_ms(0.5),
            "p99_ms": gaps.quantile_ms(0.99),
            "longest": [_gap_json(gap) for gap in gaps.longest],
        },
        "suggested_timeout_ms": report.suggestion.timeout_ms,
        "reason": report.suggestion.reason,
    }


def _run_json(run: RunReport) -> dict[str, Any]:
    return {**asdict(run), "real": run.real}


def _gap_json(gap: Gap) -> dict[str, Any]:
    return {
        "gap_ms": gap.ms,
        "until_ms": gap.at_ms,
        "broker_name": gap.key.broker_name,
        "broker_addr": gap.key.live_key.broker_addr,
        "server_id": gap.server_id,
    }


def seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"
