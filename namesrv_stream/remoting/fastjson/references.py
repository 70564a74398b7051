"""``{"$ref":"$.path"}``: how fastjson writes an object for the second time in one document.

A reference is replaced by the very object that it names. Two kinds are dropped, leaving None, because nobody writes
them and walking the result would not end: those that name something they are inside of, and those that name something
with a reference in it. What the references of a document name is limited in sum, texts counted by their length, so
that whatever is made of the result stays in proportion to the document.

Source: fastjson 1.2.83, SerialContext.toString for the paths, verified in its output for keys with special characters.
"""

import re
from typing import Any, Final

# Several times the document: a small one may name the same object often.
_FREE_CHARS: Final = 64 * 1024
_CHARS_A_CHAR: Final = 4
_CHARS_A_VALUE: Final = 16  # of the budget: values cost time

# `.name`, in which a backslash makes any character part of the name, or `[index]`, also written for integer keys.
_STEP: Final = re.compile(r"\.((?:[^.\[\]\\]|\\.)++)|\[([0-9]{1,10})\]", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def resolve_references(document: Any, size: int, max_depth: int) -> Any:
    """The document with the targets in the places of their references; it is changed in place.

    Args:
        document: What was read: dict, list, or a plain value.
        size: Length of the text that it was read from.
        max_depth: Most levels of nesting.

    Raises:
        ValueError: The targets are many times larger than the text, or the document is nested too deeply.
    """
    if _path_of(document) is not None:
        return None
    references = _References(_FREE_CHARS + _CHARS_A_CHAR * size, max_depth)
    if isinstance(document, dict | list):
        references.collect(document)
        references.resolve(document)
    return document


class _References:
    """The references of one document."""

    def __init__(self, budget: int, max_depth: int) -> None:
        """Expect references whose targets hold at most ``budget`` values and characters in sum."""
        self._budget = budget
        self._max_depth = max_depth
        self._open: list[Any] = []
        self._found: list[tuple[Any, Any, str]] = []
        self._referring: set[int] = set()  # ids of containers with a reference somewhere inside

    def collect(self, container: Any) -> None:
        """Note what is to be replaced in ``container``, and put None there until it is."""
        if len(self._open) >= self._max_depth:
            raise ValueError(f"nested more than {self._max_depth} levels deep")
        self._open.append(container)
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(value, dict | list):
                path = _path_of(value)
                if path is None:
                    self.collect(value)
                else:
                    container[key] = None
                    self._found.append((container, key, path))
                    self._referring.update(map(id, self._open))
        self._open.pop()

    def resolve(self, document: Any) -> None:
        """Put the targets in their places."""
        for container, key, path in self._found:
            target = _find(document, path)
            if id(target) not in self._referring:
                self._spend_on(target)
                container[key] = target

    def _spend_on(self, target: Any) -> None:
        unvisited = [target]
        while unvisited:
            value = unvisited.pop()
            self._budget -= _CHARS_A_VALUE
            if isinstance(value, dict):
                self._budget -= sum(map(len, value))
                unvisited += value.values()
            elif isinstance(value, list):
                unvisited += value
            elif isinstance(value, str):
                self._budget -= len(value)
            if self._budget < 0:
                raise ValueError("references make the document many times larger than its text")


def _path_of(value: Any) -> str | None:
    """The path that an object of ``$ref`` alone holds; None for all else."""
    if isinstance(value, dict) and len(value) == 1:
        path = value.get("$ref")
        return path if isinstance(path, str) else None
    return None


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
