"""``{"$ref":"$.path"}``: how fastjson writes an object for the second time in one document.

A reference is replaced by the very object that it names. Two kinds are dropped, leaving None, because nobody writes
them and walking the result would not end: those that name something they are inside of, and those that name something
with a reference in it. What the references of a document name is limited in sum to the document's own length, so that
walking the result stays linear.

Source: fastjson 1.2.83, SerialContext.toString for the paths, verified in its output for keys with special characters.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

# `.name`, in which a backslash makes any character part of the name, or `[index]`, also written for integer keys.
_STEP: Final = re.compile(r"\.((?:[^.\[\]\\]|\\.)++)|\[([0-9]{1,10})\]", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that consists of ``$ref`` alone.

    Attributes:
        path: The path it holds, from ``$``, the document.
    """

    path: str


class References:
    """The references of one document while it is read."""

    def __init__(self, budget: int) -> None:
        """Expect references whose targets hold at most ``budget`` values in sum."""
        self._budget = budget
        self._open: list[dict[str, Any] | list[Any]] = []
        self._noted: list[tuple[Any, str | int, str]] = []
        # Containers with a reference somewhere inside, by id; holding them keeps the ids theirs.
        self._referring: dict[int, object] = {}

    def enter(self, container: dict[str, Any] | list[Any]) -> None:
        """Reading of ``container`` begins, inside of the one entered last."""
        self._open.append(container)

    def leave(self) -> None:
        """Reading of the container entered last has ended."""
        self._open.pop()

    def note(self, container: dict[str, Any] | list[Any], key: str | int, reference: Reference) -> None:
        """A reference is the value of ``key`` in ``container``, which is open; None holds its place."""
        self._noted.append((container, key, reference.path))
        for outer in self._open:
            self._referring[id(outer)] = outer

    def resolve(self, document: Any) -> None:
        """Put the targets in their places.

        Raises:
            ValueError: The targets are larger than the budget.
        """
        for container, key, path in self._noted:
            target = _find(document, path)
            if id(target) not in self._referring:
                self._spend_on(target)
                container[key] = target

    def _spend_on(self, target: Any) -> None:
        unvisited = [target]
        while unvisited:
            value = unvisited.pop()
            self._budget -= 1
            if self._budget < 0:
                raise ValueError("references make the document larger than its text")
            if isinstance(value, dict):
                unvisited += value.values()
            elif isinstance(value, list):
                unvisited += value


def _find(document: Any, path: str) -> Any:
    """What ``path`` names in ``document``; None if nothing."""
    steps = _steps(path)
    if steps is None:
        return None
    value = document
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _steps(path: str) -> list[str] | None:
    """The keys and indexes of ``path``; None if it cannot be read or does not begin at the document."""
    if not path.startswith("$"):
        return None
    steps: list[str] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return None
        name, index = match.groups()
        steps.append(index if name is None else _ESCAPED.sub(r"\1", name))
        position = match.end()
    return steps
