"""What the runs come to, per cluster: expiries and how many were false, how much sooner deaths were seen, a value."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.what_if.analysis import PartitionAnalysis
from namesrv_stream.what_if.gaps import GapTally
from namesrv_stream.what_if.silences import Silence, Verdict
from namesrv_stream.what_if.suggestion import Suggestion, suggest


@dataclass(frozen=True, slots=True)
class Sooner:
    """How much sooner deaths were seen than they were in the log as it is; negative for later. Observed time.

    Attributes:
        deaths: How many are compared.
        not_yet_seen: How many are not: one of the two had not seen them when the log ended.
    """

    deaths: int
    not_yet_seen: int
    median_ms: int
    p99_ms: int


@dataclass(frozen=True, slots=True)
class RunReport:
    """One timeout in one cluster.

    Attributes:
        timeout_ms: None for the log as it is.
        expiries: How often a broker was taken out because it was not heard.
        false: Of those: it was alive, as the connection over which it was heard again says.
        unclear: Of those: it came back, and nothing says whether it had restarted.
        sooner: None for the log as it is.
    """

    timeout_ms: int | None
    expiries: int
    false: int
    unclear: int
    sooner: Sooner | None

    @property
    def real(self) -> int:
        return self.expiries - self.false - self.unclear


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """One cluster.

    Attributes:
        brokers: Broker processes heard and registered.
        with_own_timeout: How many of them ask for a timeout, which another default does not move.
        gaps: Of brokers that were alive.
        runs: The log as it is, then each timeout asked for.
    """

    cluster: str
    brokers: int
    with_own_timeout: int
    gaps: GapTally
    runs: Sequence[RunReport]
    suggestion: Suggestion


def cluster_reports(analyses: Sequence[PartitionAnalysis], limits: FoldSettings | None = None) -> list[ClusterReport]:
    """A report of every cluster, by name; the analyses must be of the same overrides.

    Args:
        analyses: Of all partitions.
        limits: Between which a timeout can be suggested.
    """
    keys = {key: timeout for analysis in analyses for key, timeout in analysis.timeouts.items()}
    deaths: dict[str, list[Silence]] = {}
    survived: Counter[tuple[str, int, Verdict]] = Counter()
    for analysis in analyses:
        survived.update(analysis.tally.expiries)
        for silence in (*analysis.tally.deaths, *analysis.silences.open):
            deaths.setdefault(silence.key.live_key.cluster, []).append(silence)
    reports = []
    for cluster in sorted({key.live_key.cluster for key in keys}):
        asked = [timeout for key, timeout in keys.items() if key.live_key.cluster == cluster]
        gaps = GapTally().merge(a.gaps.tallies.get(cluster, GapTally()) for a in analyses)
        overrides = [run.override for run in analyses[0].runs]
        runs = [
            _run_report(
                number, o.timeout_ms, deaths.get(cluster, []), {v: survived[cluster, number, v] for v in Verdict}
            )
            for number, o in enumerate(overrides)
        ]
        unclear_ms, ended_ms = (
            max(longest[cluster] for longest in of_partitions)
            for of_partitions in ([a.gaps.unclear_ms for a in analyses], [a.gaps.ended_ms for a in analyses])
        )
        own = sum(timeout is not None for timeout in asked)
        suggestion = suggest(gaps, unclear_ms, ended_ms, limits or FoldSettings())
        reports.append(ClusterReport(cluster, len(asked), own, gaps, runs, suggestion))
    return reports


def _run_report(
    run: int, timeout_ms: int | None, deaths: Sequence[Silence], survived: Mapping[Verdict, int]
) -> RunReport:
    false, unclear = survived[Verdict.ALIVE], survived[Verdict.UNCLEAR]
    real = sum(run in death.ends and death.ends[run].is_expiry for death in deaths)
    return RunReport(timeout_ms, false + unclear + real, false, unclear, _sooner(run, deaths) if run else None)


def _sooner(run: int, deaths: Iterable[Silence]) -> Sooner:
    """Compare a run with the log as it is, over deaths that either of them saw by an expiry."""
    gains, still_open = [], 0
    for death in deaths:
        if not any(death.ends[r].is_expiry for r in (0, run) if r in death.ends):
            continue
        ours, theirs = death.seen_ms(run), death.seen_ms(0)
        if ours is None or theirs is None:
            still_open += 1
        else:
            gains.append(theirs - ours)
    gains.sort()
    return Sooner(len(gains), still_open, _quantile(gains, 0.5), _quantile(gains, 0.99))


def _quantile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that such a share of all does not exceed; 0 of none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0
