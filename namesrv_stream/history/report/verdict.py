"""The report in a few sentences: what somebody reads who reads nothing else."""

from namesrv_stream.history.outages import Scope
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.history.sections import percent
from namesrv_stream.instants import duration, instant
from namesrv_stream.plurals import times


def is_met(figures: Figures) -> bool:
    """Whether all brokers together met the objective."""
    return figures.asked.objective.is_met(figures.total.known_ms, figures.total.up_ms)


def verdict(figures: Figures) -> list[str]:
    """Sentences, the most important first."""
    return [text for text in (_objective(figures), _clusters(figures), _cause(figures), _worst(figures)) if text]


def _objective(figures: Figures) -> str:
    total, objective = figures.total, figures.asked.objective
    left = objective.left_share(total.known_ms, total.up_ms)
    if total.share is None or left is None:
        return ""
    rest = (
        f"{left * 100:.0f}% of the error budget is left"
        if left >= 0
        else f"{1 - left:,.1f} times the error budget was used"
    )
    met = "met" if is_met(figures) else "missed"
    return f"The objective of {objective} was {met}: brokers were up for {percent(total.share)} of their time, {rest}."


def _clusters(figures: Figures) -> str:
    if len(figures.clusters) < 2:
        return ""
    objective = figures.asked.objective
    missed = [c for c in figures.clusters if not objective.is_met(c.known_ms, c.up_ms)]
    if not missed:
        return f"Each of the {len(figures.clusters)} clusters met it."
    worst = min(missed, key=lambda c: c.share or 0)
    return (
        f"{len(missed)} of {len(figures.clusters)} clusters missed it, worst of all {worst.cluster}"
        f" with {percent(worst.share or 0)}."
    )


def _cause(figures: Figures) -> str:
    all_ms = sum(e.down_ms for e in figures.endings)
    if not all_ms:
        return "No broker was down."
    first = figures.endings[0]
    share = first.down_ms / all_ms * 100
    return f"{share:.0f}% of the down time came after “{first.cause}”, {times(first.count)}."


def _worst(figures: Figures) -> str:
    # All brokers of a cluster are worse than all processes of a name, however long those were gone.
    of_clusters = [o for o in figures.outages if o.scope is Scope.CLUSTER]
    wide = [*of_clusters, *(o for o in figures.outages if o.scope is Scope.BROKER_NAME)]
    if not wide:
        return ""
    longest = wide[0]
    what = "all brokers of cluster" if longest.scope is Scope.CLUSTER else "all processes of broker"
    length, begin = duration(longest.length_ms(figures.until_ms)), instant(longest.begin_ms)
    return f"Longest outage: {what} {longest.name} were gone for {length} from {begin}."
