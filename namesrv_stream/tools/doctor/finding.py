"""What an examination finds."""

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How bad it is, in this order."""

    FINE = "ok"
    NOTE = "note"
    WARNING = "warn"
    FAULT = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        area: What it is about, such as ``Java``.
        grade: FAULT where the product does not run, or loses what it must keep; WARNING where it may one day.
        text: What was found.
        remedy: What to do about it; "" where there is nothing to do.
    """

    area: str
    grade: Grade
    text: str
    remedy: str = ""


def fine(area: str, text: str) -> Finding:
    """All is well."""
    return Finding(area, Grade.FINE, text)


def note(area: str, text: str, remedy: str = "") -> Finding:
    """Worth knowing."""
    return Finding(area, Grade.NOTE, text, remedy)


def warning(area: str, text: str, remedy: str) -> Finding:
    """May do harm one day."""
    return Finding(area, Grade.WARNING, text, remedy)


def fault(area: str, text: str, remedy: str) -> Finding:
    """Does harm now."""
    return Finding(area, Grade.FAULT, text, remedy)
