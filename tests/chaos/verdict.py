"""The verdict on one run: its findings and figures."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tests.chaos import liveness_checks as liveness
from tests.chaos.evidence import Evidence
from tests.chaos.liveness_checks import Ending, Lag
from tests.chaos.log_checks import Finding, check_log, shortened
from tests.chaos.observed_log import ObservedLog
from tests.chaos.parts import SERVERS

#: The largest permitted lag.
MOST_LAG_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a run. Lags are in milliseconds of observed time, -1 if none was measured.

    Attributes:
        lives: Broker processes that ran.
        deaths: How they ended: kind → number.
        endings: Cause of the rows that removed broker processes → number.
        living_disconnected: How many of these rows removed live brokers because their connection was closed.
        cut_off: Live brokers that expired while the rig had cut them off.
        lags: Number of expiries while all parts ran; the lag figures below are theirs.
        lag_anyway_p99_ms: Lag of all expiries, whatever was broken.
        starved_ms: How long the machine was overloaded.
        faults: Kind of fault → number.
    """

    lives: int
    deaths: dict[str, int]
    signs_of_life: int
    records: int
    rows: int
    endings: dict[str, int]
    living_disconnected: int
    cut_off: int
    expiries: int
    lags: int
    lag_p50_ms: int
    lag_p99_ms: int
    lag_in_log_p99_ms: int
    lag_anyway_p99_ms: int
    starved_ms: int
    dead_letters: int
    faults: dict[str, int]
    ended_by_themselves: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Findings, ideally none, and figures."""

    findings: list[Finding]
    figures: Figures

    def as_json(self) -> dict[str, Any]:
        return {"findings": [f._asdict() for f in self.findings], "figures": asdict(self.figures)}


def judge(evidence: Evidence, end_ms: int, ended: dict[str, list[int]] | None = None) -> Verdict:
    """Judge the evidence of a run.

    Args:
        evidence: Evidence of the run.
        end_ms: When the evidence was collected; no broker had ended for a long time before.
        ended: Part → exit codes with which it ended by itself.
    """
    truth = evidence.truth
    log = ObservedLog(evidence.records, evidence.max_gap_ms)
    found = liveness.endings(evidence.stored)
    false, cut_off = liveness.false_expiries(truth, log, found)
    lags = liveness.measured_lags(evidence, log, found)
    quiet = liveness.while_all_ran(evidence, log, lags)
    served = {name: s.brokers for name, s in evidence.servers.items()}
    ended = ended or {}
    findings = [
        *check_log(evidence),
        *shortened("no live broker expires", false),
        *shortened("no broker expires early", liveness.early_expiries(truth, found)),
        *shortened("no broker expires early by the log", liveness.never_early_by_the_log(lags)),
        *shortened("every dead broker expires", liveness.missing_endings(truth, log, evidence.stored, end_ms)),
        *shortened("the servers have exactly the live brokers", liveness.wrong_at_the_end(truth, served)),
        *shortened("expiries are seen in time", _late(quiet)),
        *shortened("no server ends by itself", (f"{s}: exit codes {ended[s]}" for s in SERVERS if s in ended)),
    ]
    return Verdict(findings, _figures(evidence, found, lags, quiet, cut_off, ended))


def _late(lags: Sequence[Lag]) -> list[str]:
    late_ms = percentile([lag.in_table_ms for lag in lags], 99)
    if late_ms <= MOST_LAG_MS:
        return []
    worst = max(lags, key=lambda lag: lag.in_table_ms)
    return [f"p99 of {len(lags)} lags is {late_ms} ms, the longest {worst.in_table_ms} ms of {worst.ending}"]


def percentile(values: Sequence[int], percent: int) -> int:
    """Return the smallest value that this percentage does not exceed; -1 if there are no values."""
    if not values:
        return -1
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def _figures(
    evidence: Evidence,
    found: Sequence[Ending],
    lags: Sequence[Lag],
    quiet: Sequence[Lag],
    cut_off: int,
    ended: dict[str, list[int]],
) -> Figures:
    truth = evidence.truth
    alive_then = [
        ending
        for ending in found
        if ending.cause == "disconnected"
        and any(life.is_up(ending.at_ms, ending.at_ms) for life in truth.of(ending.key))
    ]
    return Figures(
        lives=len(truth.lives),
        deaths=dict(Counter(life.how for life in truth.lives if life.down_ms is not None)),
        signs_of_life=sum(len(times) for times in truth.acks.values()),
        records=len(evidence.records),
        rows=len(evidence.stored),
        endings=dict(Counter(str(ending.cause) for ending in found)),
        living_disconnected=len(alive_then),
        cut_off=cut_off,
        expiries=len(lags),
        lags=len(quiet),
        lag_p50_ms=percentile([lag.in_table_ms for lag in quiet], 50),
        lag_p99_ms=percentile([lag.in_table_ms for lag in quiet], 99),
        lag_in_log_p99_ms=percentile([lag.in_log_ms for lag in quiet], 99),
        lag_anyway_p99_ms=percentile([lag.in_table_ms for lag in lags], 99),
        starved_ms=sum(span.to_ms - span.from_ms for span in truth.spans if span.what == "starved"),
        dead_letters=len(set(evidence.dead_letters)),
        faults=dict(Counter(f"{span.what} {span.part}" for span in truth.spans if span.what != "starved")),
        ended_by_themselves=ended,
    )
