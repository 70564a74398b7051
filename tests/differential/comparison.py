"""Compares two answers."""

import re
from typing import Final, NamedTuple

from tests.differential.body_text import in_order
from tests.differential.differences import DIFFERENCES, EVERYWHERE
from tests.differential.pair import Both
from tests.differential.request import Request
from tests.differential.wire import Answer

_SYSTEM_TOPICS: Final = 304
#: The answer names an arbitrary broker that can answer further requests.
_SOME_BROKER: Final = re.compile(rb'^\{"brokerAddr":"[0-9.:]+",')
_SHOWN_BEFORE: Final = 100
_SHOWN_BYTES: Final = 1_000


class Complaint(NamedTuple):
    """Two answers that differ; unordered parts are sorted."""

    request: Request
    both: Both
    reason: str

    def __str__(self) -> str:
        request = self.request
        what = f"{request.code} {dict(request.ext_fields or {})} version={request.version}"
        java, ours = self.both
        pairs = enumerate(zip(java.body, ours.body, strict=False))
        first = next((at for at, (mine, other) in pairs if mine != other), 0)
        start = max(first - _SHOWN_BEFORE, 0)
        return f"{self.reason}\n  asked {what}\n  java  {_shown(java, start)}\n  ours  {_shown(ours, start)}"


def _shown(answer: Answer, start: int) -> str:
    """Format an answer; its body begins shortly before the first difference."""
    body = answer.body[start : start + _SHOWN_BYTES].decode("utf-8", "backslashreplace")
    return (
        f"code={answer.code} remark={answer.remark!r} ext_fields={answer.ext_fields} flag={answer.flag}"
        f" header_type={answer.header_type} {'…' if start else ''}{body}"
    )


def compare(request: Request, both: Both, prefix: str, differs: str = "") -> Complaint | None:
    """Check that two answers are equal, or differ exactly as a listed difference says.

    Args:
        request: The request.
        both: The answers.
        prefix: Prefix of the scenario's names; other names are removed from lists.
        differs: Name of the expected difference.

    Returns:
        The difference; None if there is none.
    """
    java, ours = (_in_order(request, answer, prefix) for answer in both)
    both = Both(java, ours)
    for difference in EVERYWHERE:
        if not difference.holds(java, ours):
            return Complaint(request, both, f"not the listed difference {difference.name!r}")
        java = java._replace(**{name: getattr(ours, name) for name in difference.fields})
    if differs:
        difference = DIFFERENCES[differs]
        if java == ours and not difference.is_race:
            return Complaint(request, both, f"the listed difference {differs!r} no longer occurs")
        if not difference.holds(java, ours):
            return Complaint(request, both, f"not the listed difference {differs!r}")
        java = java._replace(**{name: getattr(ours, name) for name in difference.fields})
    unequal = [name for name, mine, other in zip(Answer._fields, java, ours, strict=True) if mine != other]
    return Complaint(request, both, f"{', '.join(unequal)} differ") if unequal else None


def _in_order(request: Request, answer: Answer, prefix: str) -> Answer:
    body = answer.body
    if request.code == _SYSTEM_TOPICS:
        body = _SOME_BROKER.sub(b"{", body)
    return answer._replace(body=in_order(body, has_sorted_maps=request.is_strict_route, only=prefix).encode())
