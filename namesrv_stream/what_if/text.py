"""The reports for people, and for scripts."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from namesrv_stream.event_log.pieces import Store
from namesrv_stream.event_log.source import read_from_text
from namesrv_stream.instants import instant
from namesrv_stream.plurals import counted
from namesrv_stream.what_if.gaps import Gap
from namesrv_stream.what_if.log_analysis import LogAnalysis
from namesrv_stream.what_if.report import ClusterReport, RunReport, Sooner

_AS_IT_WAS = "as it was"
_NAMED = 10  # brokers


def as_text(analysis: LogAnalysis, reports: Sequence[ClusterReport]) -> RenderableType:
    """Tables, one for each cluster."""
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
        yield Text("no broker was heard")
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
        names = ", ".join(f"{k.broker_name} at {k.live_key.broker_addr}" for k in analysis.unregistered[:_NAMED])
        more = "" if len(analysis.unregistered) <= _NAMED else f" and {len(analysis.unregistered) - _NAMED} more"
        yield Text(f"left out, for no registration of theirs is known: {names}{more}")


def _log_lines(analysis: LogAnalysis) -> Iterator[str]:
    """What is to be known of the log; nothing where all was read from Kafka."""
    for partition, pieces in enumerate(analysis.read_from):
        if any(piece.store is Store.ARCHIVE for piece in pieces):
            yield f"partition {partition}: records {read_from_text(pieces)}"
    yield from analysis.notes


def _cluster_line(report: ClusterReport) -> Text:
    own = f", {report.with_own_timeout} with a timeout of their own" if report.with_own_timeout else ""
    return Text.assemble(("cluster ", ""), (report.cluster, "bold"), f": {counted(report.brokers, 'broker')}{own}")


def _runs_table(runs: Sequence[RunReport]) -> Table:
    table = Table("timeout", box=None, pad_edge=False)
    for head in ("expiries", "false", "unclear", "real", "deaths seen sooner: median", "p99", "of", "not yet seen"):
        table.add_column(head, justify="right")
    for run in runs:
        timeout = _AS_IT_WAS if run.timeout_ms is None else seconds(run.timeout_ms)
        counts = map(str, (run.expiries, run.false, run.unclear, run.real))
        table.add_row(escape(timeout), *counts, *_sooner_cells(run.sooner), style="bold red" if run.false else None)
    return table


def _sooner_cells(sooner: Sooner | None) -> Sequence[str]:
    if sooner is None or not (sooner.deaths or sooner.not_yet_seen):
        return ("", "", "", "")
    still_open = str(sooner.not_yet_seen) if sooner.not_yet_seen else ""
    if not sooner.deaths:
        return ("", "", "0", still_open)
    return (seconds(sooner.median_ms), seconds(sooner.p99_ms), str(sooner.deaths), still_open)


def _gap_line(gap: Gap) -> str:
    key = gap.key
    return f"{seconds(gap.ms)} {key.broker_name} at {key.live_key.broker_addr}, until {instant(gap.at_ms)}"


def as_json(analysis: LogAnalysis, reports: Sequence[ClusterReport]) -> dict[str, Any]:
    """All figures; durations in milliseconds of observed time, instants in epoch milliseconds."""
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
