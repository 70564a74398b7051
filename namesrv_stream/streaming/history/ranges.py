"""Ranges of offsets, partition by partition, in steps that fit into a small heap."""

from collections.abc import Mapping


def step_end(begin: Mapping[int, int], end: Mapping[int, int], limit: int) -> dict[int, int]:
    """The end of the next step: ``end``, or less where that is more than ``limit`` records.

    Each partition that is behind gets an equal share, and at least one record. One whose begin is beyond its end stays.

    Args:
        begin: partition → first offset.
        end: The same partitions → the offset after the last.
        limit: Records of all partitions.
    """
    behind = {p for p, first in begin.items() if first < end[p]}
    share = max(1, limit // len(behind)) if behind else 0
    return {p: min(end[p], first + share) if p in behind else first for p, first in begin.items()}


def is_empty(begin: Mapping[int, int], end: Mapping[int, int]) -> bool:
    """Whether no partition has a record in its range."""
    return all(first >= end[p] for p, first in begin.items())
