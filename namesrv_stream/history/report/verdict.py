"""The report in a few sentences: what somebody reads who reads nothing else."""

from namesrv_stream.history.columns import percent
from namesrv_stream.history.report.figures import Figures
from namesrv_stream.instants import duration, instant
from namesrv_stream.text_table import times


def verdict(figures: Figures) -> list[str]:
    """Sentences, the most important first."""
    return [text for text in (_objective(figures), _clusters(figures), _cause(figures), _worst(figures)) if text]


def _objective(figures: Figures) -> str:
    total = figures.total
    left = total["budget_left"]
    if left is None:
        return ""
    rest = (
        f"{left * 100:.0f}% of the error budget is left"
        if left >= 0
        else f"{1 - left:,.1f} times the error budget was used"
    )
    met, share = "met" if total["met"] else "missed", percent(total["availability"])
    return (
        f"The objective of {figures.asked.objective_text} was {met}: brokers were up for {share} of their time, {rest}."
    )


def _clusters(figures: Figures) -> str:
    clusters = figures.rows["clusters"]
    if len(clusters) < 2:
        return ""
    missed = [row for row in clusters if not row["met"]]
    if not missed:
        return f"Each of the {len(clusters)} clusters met it."
    worst = min(missed, key=lambda row: row["availability"] or 0)
    return (
        f"{len(missed)} of {len(clusters)} clusters missed it, worst of all {worst['cluster']}"
        f" with {percent(worst['availability'] or 0)}."
    )


def _cause(figures: Figures) -> str:
    ends = figures.rows["session_ends"]
    if not any(row["down_ms"] for row in ends):
        return "No broker was down."
    first = ends[0]
    return f"{first['down_share'] * 100:.0f}% of the down time came after “{first['cause']}”, {times(first['count'])}."


def _worst(figures: Figures) -> str:
    # All brokers of a cluster are worse than all processes of a name, however long those were down.
    wide = [row for scope in ("cluster", "broker_name") for row in figures.rows["outages"] if row["scope"] == scope]
    if not wide:
        return ""
    longest = wide[0]
    what = "all brokers of cluster" if longest["scope"] == "cluster" else "all processes of broker"
    length, begin = duration(longest["duration_ms"]), instant(longest["begin_ms"])
    return f"Longest outage: {what} {longest['name']} were gone for {length} from {begin}."
