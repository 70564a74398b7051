"""Formats the figures of runs."""

from collections.abc import Iterable, Mapping

from tests.chaos.run import Outcome


def text_of(outcome: Outcome) -> str:
    """Describe one run in a few lines."""
    figures = outcome.verdict.figures
    lines = [
        f"seed {outcome.seed}: {outcome.kills} kills; {_counts(figures.faults)}; disk: {outcome.disk}",
        f"  {figures.records} records, {figures.rows} rows, {figures.signs_of_life} signs of life of {figures.lives}"
        f" broker processes; deaths: {_counts(figures.deaths)}",
        f"  removed: {_counts(figures.endings)}; of live brokers: {figures.living_disconnected} disconnected,"
        f" {figures.cut_off} expired while cut off",
        f"  lag after the timeout, observed time, {figures.lags} of {figures.expiries} expiries while all parts ran:"
        f" p50 {figures.lag_p50_ms} ms, p99 {figures.lag_p99_ms} ms (in the log p99 {figures.lag_in_log_p99_ms} ms)",
        f"  (of all expiries: p99 {figures.lag_anyway_p99_ms} ms); the machine was overloaded for"
        f" {figures.starved_ms // 1000} s",
        f"  {figures.dead_letters} dead letters; ended by themselves: {figures.ended_by_themselves or 'none'}",
        f"  seconds: {_counts(outcome.seconds)}",
        *(f"  WRONG: {finding.check}: {finding.text}" for finding in outcome.verdict.findings),
    ]
    return "\n".join(lines)


def summary(outcomes: Iterable[Outcome]) -> str:
    """Describe all runs of a series as lines of a Markdown table."""
    rows = ["| run | kills | minutes | records | rows | deaths | expired | lag p50 / p99 ms | wrong |", "|-" * 9 + "|"]
    for number, outcome in enumerate(outcomes):
        figures = outcome.verdict.figures
        cells = (
            number,
            outcome.kills,
            f"{sum(outcome.seconds.values()) / 60:.1f}",
            figures.records,
            figures.rows,
            sum(figures.deaths.values()),
            figures.endings.get("expired", 0),
            f"{figures.lag_p50_ms} / {figures.lag_p99_ms}",
            len(outcome.verdict.findings),
        )
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def _counts(values: Mapping[str, int | float]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items())) or "none"
