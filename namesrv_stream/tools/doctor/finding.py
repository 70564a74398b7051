"""The result of a check."""

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How bad a finding is, in ascending order."""

    FINE = "ok"
    NOTE = "note"
    WARNING = "warn"
    FAULT = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        area: What was checked, such as ``Java``.
        grade: FAULT if the product cannot run or loses data; WARNING if that may happen one day.
        text: The result.
        remedy: What to do; "" for nothing.
    """

    area: str
    grade: Grade
    text: str
    remedy: str = ""


def fine(area: str, text: str) -> Finding:
    """Return the finding of a check that found no problem."""
    return Finding(area, Grade.FINE, text)


def note(area: str, text: str, remedy: str = "") -> Finding:
    """Return a finding that is worth knowing, but harmless."""
    return Finding(area, Grade.NOTE, text, remedy)


def warning(area: str, text: str, remedy: str) -> Finding:
    """Return a finding that may do harm one day."""
    return Finding(area, Grade.WARNING, text, remedy)


def fault(area: str, text: str, remedy: str) -> Finding:
    """Return a finding that does harm now."""
    return Finding(area, Grade.FAULT, text, remedy)
