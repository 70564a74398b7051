"""The figures hour by hour, day by day or week by week."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from namesrv_stream.history.report.buckets import Buckets
from namesrv_stream.history.report.figures import Figures


@dataclass(frozen=True, slots=True)
class Piece:
    """One hour, day or week; epoch milliseconds.

    Attributes:
        known_ms: For how long brokers were to be up in it, all together.
        down_ms: Cause → for how long they were not.
        ended: Cause → how many sessions ended.
        heartbeats: How many were heard.
        missed: How many were missed.
        shares: Cluster → availability, between 0 and 1; None where none of its brokers was to be up.
    """

    begin_ms: int
    end_ms: int
    known_ms: int
    down_ms: Mapping[str, int]
    ended: Mapping[str, int]
    heartbeats: int
    missed: int
    shares: Mapping[str, float | None]

    @property
    def share(self) -> float | None:
        """Of all; None where nobody was to be up."""
        return 1 - sum(self.down_ms.values()) / self.known_ms if self.known_ms else None


def by_piece(figures: Figures) -> list[Piece]:
    """The figures of each piece, by time."""
    pieces = figures.pieces
    known = _known_ms(figures)
    down = _down_ms(figures)
    ended = _ended(figures, pieces)
    heard = figures.heard
    clusters = [c.cluster or "" for c in figures.clusters]
    found = []
    for number in range(len(pieces)):
        shares = {
            name: 1 - sum(down[name][number].values()) / known[name][number] if known[name][number] else None
            for name in clusters
        }
        of_causes: dict[str, int] = {}
        for name in clusters:
            for cause, ms in down[name][number].items():
                of_causes[cause] = of_causes.get(cause, 0) + ms
        found.append(
            Piece(
                pieces.bounds_ms[number],
                pieces.bounds_ms[number + 1],
                sum(known[name][number] for name in clusters),
                of_causes,
                ended[number],
                heard.heartbeats[number] if heard else 0,
                heard.missed[number] if heard else 0,
                shares,
            )
        )
    return found


def _known_ms(figures: Figures) -> Mapping[str, Sequence[int]]:
    found = {c.cluster or "": [0] * len(figures.pieces) for c in figures.clusters}
    for one in figures.brokers:
        of_cluster = found[one.key.live_key.cluster]
        for number, ms in figures.pieces.parts(one.begin_ms, one.end_ms):
            of_cluster[number] += ms
    return found


def _down_ms(figures: Figures) -> Mapping[str, Sequence[dict[str, int]]]:
    found: dict[str, list[dict[str, int]]] = {
        c.cluster or "": [{} for _ in range(len(figures.pieces))] for c in figures.clusters
    }
    for absence in figures.absences:
        for number, ms in figures.pieces.parts(absence.begin_ms, absence.end_ms):
            of_causes = found[absence.cluster][number]
            of_causes[absence.cause] = of_causes.get(absence.cause, 0) + ms
    return found


def _ended(figures: Figures, pieces: Buckets) -> Sequence[dict[str, int]]:
    found: list[dict[str, int]] = [{} for _ in range(len(pieces))]
    for session in figures.sessions:
        # A session that ends at the very end of the time ends in its last piece.
        number = None if session.down_ms is None else pieces.of(min(session.down_ms, figures.until_ms - 1))
        if number is not None:
            cause = session.down_cause or ""
            found[number][cause] = found[number].get(cause, 0) + 1
    return found
